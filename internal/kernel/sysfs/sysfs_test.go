package sysfs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/sysfs"
)

func open(t *testing.T, ns *netns.Handle) *sysfs.FS {
	t.Helper()
	fs, err := sysfs.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return fs
}

func TestXPSAndRPSReadBackPerQueue(t *testing.T) {
	pair := kerneltest.NewPair(t, 2)
	fs := open(t, pair.Near)
	dev := pair.NearName
	rx, tx, err := fs.Queues(dev)
	if err != nil || rx != 2 || tx != 2 {
		t.Fatalf("got %d rx and %d tx queues, %v", rx, tx, err)
	}
	for _, c := range []struct {
		name string
		get  func(string, int) (cpu.Set, error)
		set  func(string, int, cpu.Set) error
	}{
		{"xps_cpus", fs.XPSCPUs, fs.SetXPSCPUs},
		{"xps_rxqs", fs.XPSRxQueues, fs.SetXPSRxQueues},
		{"rps_cpus", fs.RPSCPUs, fs.SetRPSCPUs},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := c.get(dev, 1); err != nil || !got.Empty() {
				t.Errorf("at first: got %q, %v", got, err)
			}
			if err := c.set(dev, 1, cpu.Of(0)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.get(dev, 1); err != nil || got != cpu.Of(0) {
				t.Errorf("after setting: got %q, %v", got, err)
			}
			if got, err := c.get(dev, 0); err != nil || !got.Empty() {
				t.Errorf("the other queue: got %q, %v", got, err)
			}
			if err := c.set(dev, 1, cpu.Set{}); err != nil {
				t.Fatal(err)
			}
			if got, err := c.get(dev, 1); err != nil || !got.Empty() {
				t.Errorf("after clearing: got %q, %v", got, err)
			}
		})
	}
}

func TestADeviceWithOneQueueHasNoXPSToClear(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	fs := open(t, pair.Near)
	if got, err := fs.XPSCPUs(pair.NearName, 0); err != nil || !got.Empty() {
		t.Errorf("got %q, %v", got, err)
	}
	if err := fs.SetXPSCPUs(pair.NearName, 0, cpu.Set{}); err != nil {
		t.Errorf("clearing: got %v", err)
	}
	err := fs.SetXPSCPUs(pair.NearName, 0, cpu.Of(0))
	if want := `set queues/tx-0/xps_cpus of "eth0" to 1: the device has one transmit queue`; err == nil || err.Error() != want {
		t.Errorf("setting: got %v, want %s", err, want)
	}
}

func TestDeviceAttributesReadBack(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	fs := open(t, pair.Near)
	if err := fs.SetAttribute(pair.NearName, "gro_flush_timeout", "20000"); err != nil {
		t.Fatal(err)
	}
	if got, err := fs.Attribute(pair.NearName, "gro_flush_timeout"); err != nil || got != "20000" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWhatDoesNotExistIsNamed(t *testing.T) {
	name, _ := kerneltest.Named(t)
	ns, err := netns.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	kerneltest.Connect(t, ns, kerneltest.Namespace(t), 2)
	fs := open(t, ns)
	_, err = fs.XPSCPUs("eth9", 0)
	if want := fmt.Sprintf("read queues/tx-0/xps_cpus of \"eth9\": no such device in namespace %q", name); !errors.Is(err, unix.ENODEV) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := fs.XPSCPUs("eth0", 7); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a queue that does not exist: got %v", err)
	}
	for _, odd := range []string{"", "..", "../eth0", "eth0/.."} {
		if _, err := fs.XPSCPUs(odd, 0); err == nil || !strings.Contains(err.Error(), "not a name") {
			t.Errorf("device %q: got %v", odd, err)
		}
	}
}

func TestNoMountIsLeftBehind(t *testing.T) {
	ns := kerneltest.Namespace(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	open(t, ns)
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if b, a := strings.Count(string(before), " - sysfs "), strings.Count(string(after), " - sysfs "); a != b {
		t.Errorf("%d sysfs mounts became %d", b, a)
	}
}
