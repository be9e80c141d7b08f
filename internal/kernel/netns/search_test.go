package netns

import (
	"slices"
	"strings"
	"testing"
)

func TestNamespaceMountsAreReadFromMountinfo(t *testing.T) {
	const mountinfo = `22 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw
530 28 0:4 net:[4026532281] /run/netns/blue rw shared:260 - nsfs nsfs rw
531 28 0:4 net:[4026532282] /run/docker/netns/a\040b rw - nsfs nsfs rw
532 28 0:4 mnt:[4026532283] /run/mnt rw - nsfs nsfs rw
a line that is none
`
	got := namespaceMounts(strings.NewReader(mountinfo))
	want := []string{"/run/netns/blue", "/run/docker/netns/a b"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFoundNamespaceIsLabelledAsItWouldBeOpened(t *testing.T) {
	for path, want := range map[string]string{
		"/run/netns/blue":          `"blue"`,
		"/proc/417/ns/net":         "of process 417",
		"/proc/thread-self/ns/net": "of this process",
		"/run/docker/netns/1":      `"/run/docker/netns/1"`,
	} {
		if got := label(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}
