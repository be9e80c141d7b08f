// Package testenv says what a test needs from the machine and decides whether
// it may be skipped. With XLANE_REQUIRE=all (CI) a missing requirement is a
// failure, never a skip. It sets nothing up: labs and loaders do that.
package testenv

import (
	"flag"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Update is set by -update: golden files are rewritten instead of compared.
var Update = flag.Bool("update", false, "rewrite golden files")

func need(t testing.TB, what string, ok bool, why string) {
	t.Helper()
	if ok {
		return
	}
	if r := os.Getenv("XLANE_REQUIRE"); r == "all" || strings.Contains(","+r+",", ","+what+",") {
		t.Fatalf("this test needs %s: %s", what, why)
	}
	t.Skipf("needs %s: %s", what, why)
}

// Root skips (fails in CI) unless the test runs as root, and under -short.
func Root(t testing.TB) {
	t.Helper()
	need(t, "root", os.Geteuid() == 0, "not running as root")
	need(t, "long", !testing.Short(), "-short was given")
}

// BPF skips (fails in CI) unless BPF programs can be loaded here.
func BPF(t testing.TB) {
	t.Helper()
	Root(t)
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	need(t, "bpf", err == nil, "the kernel has no BTF")
}

// Lab skips (fails in CI) unless network namespaces can be made here.
func Lab(t testing.TB) {
	t.Helper()
	BPF(t)
	_, err := os.Stat("/proc/self/ns/net")
	need(t, "netns", err == nil, "the kernel has no network namespaces")
}

// Tool skips (fails in CI) unless the named program is installed, and returns its path.
func Tool(t testing.TB, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	need(t, "tools", err == nil, name+" is not installed (make deps installs it)")
	return p
}

// Rand returns a random source whose seed is printed, and taken from
// XLANE_SEED when that is set, so that a failure can be run again.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := time.Now().UnixNano()
	if s := os.Getenv("XLANE_SEED"); s != "" {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("read XLANE_SEED: %v", err)
		}
		seed = v
	}
	t.Logf("XLANE_SEED=%d", seed)
	return rand.New(rand.NewSource(seed))
}

// Golden compares got with testdata/name, or rewrites that file under -update.
func Golden(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs (run with -update to rewrite it)\n--- want\n%s\n--- got\n%s", path, want, got)
	}
}

// Eventually polls ok until it returns true or the deadline passes. It is the
// only way tests wait: no test sleeps for a fixed time.
func Eventually(t testing.TB, deadline time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(deadline)
	for tick := time.Millisecond; ; tick = min(tick*2, 50*time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", deadline, what)
		}
		wait := time.NewTimer(tick)
		<-wait.C
	}
}
