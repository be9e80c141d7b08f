package sysctl

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/netns"
)

func TestNamesAreFoundBelowNetOnly(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.tcp_comp_sack_nr":      "/proc/sys/net/ipv4/tcp_comp_sack_nr",
		"net/ipv4/conf/eth0.7/rp_filter": "/proc/sys/net/ipv4/conf/eth0.7/rp_filter",
		"vm.swappiness":                  "",
		"net":                            "",
		"net/../vm/swappiness":           "",
		"net..ipv4":                      "",
		"/net/ipv4/tcp_sack":             "",
		"":                               "",
	} {
		got, err := locate(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
}

func TestASettingIsChangedInItsNamespaceAlone(t *testing.T) {
	const name = "net.ipv4.tcp_comp_sack_nr"
	one, other := kerneltest.Namespace(t), kerneltest.Namespace(t)
	before, err := Read(other, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(one, name, "7"); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(one, name); err != nil || got != "7" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := Read(other, name); err != nil || got != before {
		t.Errorf("another namespace: got %q, %v, was %q", got, err, before)
	}
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if got, err := Read(own, name); err != nil || got == "7" {
		t.Errorf("our own namespace: got %q, %v", got, err)
	}
}

func TestASettingThatIsMissingOrRefusedSaysWhy(t *testing.T) {
	ns := kerneltest.Namespace(t)
	// Busy polling is machine-wide, so a new namespace does not have it.
	_, err := Read(ns, "net.core.busy_poll")
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "read net.core.busy_poll in namespace made by this process: no such setting there") {
		t.Errorf("got %v", err)
	}
	err = Write(ns, "net.ipv4.tcp_comp_sack_nr", "many")
	if want := `set net.ipv4.tcp_comp_sack_nr to "many" in namespace made by this process: invalid argument`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := Write(ns, "net.ipv4.no_such_thing", "1"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
}
