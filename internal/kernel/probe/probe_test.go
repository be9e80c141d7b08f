package probe

import (
	"slices"
	"strings"
	"testing"

	"xlane/internal/testenv"
)

func TestTheOldestKernelIsKnown(t *testing.T) {
	for release, want := range map[string]string{
		"6.13.0":     "",
		"6.13-rc1":   "",
		"6.18.44-fc": "",
		"7.0":        "",
		"10.1.2":     "",
		"6.12.99":    "kernel 6.12.99 is too old (requires kernel >= 6.13)",
		"5.15.0-91":  "kernel 5.15.0-91 is too old (requires kernel >= 6.13)",
		"6":          `cannot read the version of Linux "6"`,
		"x.y":        `cannot read the version of Linux "x.y"`,
		"":           `cannot read the version of Linux ""`,
	} {
		err := checkRelease(release)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: got %v, want %q", release, err, want)
		}
	}
}

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	for _, c := range []struct {
		name      string
		effective uint64
		want      []string
	}{
		{"root", ^uint64(0), nil},
		{"nothing", 0, []string{"CAP_NET_ADMIN", "CAP_BPF", "CAP_SYS_ADMIN", "CAP_SYS_NICE"}},
		{"CAP_SYS_ADMIN includes CAP_BPF", 1 << 21, []string{"CAP_NET_ADMIN", "CAP_SYS_NICE"}},
		{"CAP_BPF does not include CAP_SYS_ADMIN", 1<<39 | 1<<12 | 1<<23, []string{"CAP_SYS_ADMIN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := missingCapabilities(c.effective); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEveryNeedIsMetWhereTheSuiteRuns(t *testing.T) {
	testenv.Lab(t)
	seen := map[string]bool{}
	for _, p := range All() {
		if !p.OK {
			t.Errorf("%s: %s", p.Name, p.Detail)
		}
		if p.Detail == "" || p.Lost == "" || seen[p.Name] {
			t.Errorf("%+v lacks something, or comes twice", p)
		}
		seen[p.Name] = true
	}
	for _, name := range []string{"kernel", "privilege", "btf", "tcx", "xdp", "napi-set", "napi-threaded", "bpffs"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestAPlaceWithoutAFileSystemIsReported(t *testing.T) {
	if p := bpfFileSystem("/sys/fs/no-such-place"); p.OK || !strings.Contains(p.Detail, "no such file or directory") {
		t.Errorf("got %+v", p)
	}
}
