package bpffs_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"xlane/internal/kernel/bpffs"
	"xlane/internal/testenv"
)

func TestNamesBecomeFitAndStayDifferent(t *testing.T) {
	for name, want := range map[string]string{
		"eth0":     "eth0",
		"eth0.7":   "eth0%2E7",
		"eth0%2E7": "eth0%252E7",
		"..":       "%2E%2E",
		"a/b":      "a%2Fb",
	} {
		if got := bpffs.Escape(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestNothingIsLocatedOutsideOurDirectory(t *testing.T) {
	fs := bpffs.FS{Path: "/sys/fs/bpf"}
	if got, err := fs.Locate("..", "../../etc"); err != nil || !strings.HasPrefix(got, "/sys/fs/bpf/xlane/") || strings.Contains(got, "..") {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := fs.Locate("a", ""); err == nil {
		t.Errorf("an empty element: got %q", got)
	}
}

// mounted makes a BPF file system of the test's own.
func mounted(t *testing.T) bpffs.FS {
	t.Helper()
	testenv.BPF(t)
	dir := t.TempDir()
	fs, err := bpffs.Ensure(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return fs
}

func TestAFileSystemIsMountedOnce(t *testing.T) {
	fs := mounted(t)
	if !fs.Mounted {
		t.Fatal("Ensure found a mount in a new directory")
	}
	if ok, err := bpffs.IsMounted(fs.Path); err != nil || !ok {
		t.Errorf("got %v, %v", ok, err)
	}
	again, err := bpffs.Ensure(fs.Path)
	if err != nil || again.Mounted {
		t.Errorf("the second time: got %+v, %v", again, err)
	}
	if err := again.Unmount(); err != nil {
		t.Errorf("what was not mounted: got %v", err)
	}
	if ok, err := bpffs.IsMounted(fs.Path); err != nil || !ok {
		t.Errorf("the mount of another is gone: got %v, %v", ok, err)
	}
}

func TestADirectoryThatDoesNotExistIsNotMounted(t *testing.T) {
	testenv.BPF(t)
	_, err := bpffs.Ensure("/sys/fs/no-such-place")
	if want := `examine "/sys/fs/no-such-place": no such file or directory`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestPinsAreMadeListedAndRemoved(t *testing.T) {
	fs := mounted(t)
	if names, err := fs.List("4026531840", "eth0.7"); err != nil || len(names) != 0 {
		t.Errorf("before: got %q, %v", names, err)
	}
	dir, err := fs.MakeDir("4026531840", "eth0.7")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
	for _, name := range []string{"rules", "counters"} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		path, err := fs.Locate("4026531840", "eth0.7", name)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Pin(path); err != nil {
			t.Fatal(err)
		}
	}
	names, err := fs.List("4026531840", "eth0.7")
	if err != nil || !slices.Equal(names, []string{"counters", "rules"}) {
		t.Errorf("got %q, %v", names, err)
	}
	if err := fs.Remove("4026531840"); err != nil {
		t.Fatal(err)
	}
	if names, err := fs.List(); err != nil || len(names) != 0 {
		t.Errorf("after: got %q, %v", names, err)
	}
	if err := fs.Remove("4026531840"); err != nil {
		t.Errorf("removing what is gone: got %v", err)
	}
}
