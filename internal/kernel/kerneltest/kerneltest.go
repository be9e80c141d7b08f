// Package kerneltest makes what the tests of the kernel packages need: network
// namespaces, named or not, and veth pairs between them. Everything is removed
// when the test ends. It is imported by tests only, and speaks to the kernel
// through another library than the packages under test, so that neither hides
// the other's mistakes.
package kerneltest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
	"xlane/internal/testenv"
)

// serial makes names unique within the test binary.
var serial atomic.Uint32

// Namespace makes an unnamed namespace whose loopback is down.
func Namespace(t testing.TB) *netns.Handle {
	t.Helper()
	testenv.Lab(t)
	ns, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// Named makes a namespace with a name below netns.Dir.
func Named(t testing.TB) (name string, ns *netns.Handle) {
	t.Helper()
	ns = Namespace(t)
	name = fmt.Sprintf("xltest%d-%d", os.Getpid(), serial.Add(1))
	if err := os.MkdirAll(netns.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(netns.Dir, name)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.FD()), path, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("bind namespace to %s: %v", path, err)
	}
	t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
	return name, ns
}

// HeldByProcess makes a namespace that only a process holds.
func HeldByProcess(t testing.TB) (pid int) {
	t.Helper()
	testenv.Lab(t)
	cmd := exec.Command(testenv.Tool(t, "cat"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	// An echoed line proves that the process is past its fork.
	if _, err := io.WriteString(in, "started\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// Pair is a veth between two namespaces.
type Pair struct {
	Near, Far         *netns.Handle
	NearName, FarName string
}

// Connect joins two namespaces by a veth "eth0" (near) and "wire0" (far) with
// the given number of queues each way, addresses 10.77.0.1/24 and
// 10.77.0.2/24, and both ends up.
func Connect(t testing.TB, near, far *netns.Handle, queues int) Pair {
	t.Helper()
	p := Pair{Near: near, Far: far, NearName: "eth0", FarName: "wire0"}
	h := Netlink(t, near)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = p.NearName, queues, queues
	err := h.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: p.FarName, PeerNamespace: netlink.NsFd(far.FD()),
		PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues),
	})
	if err != nil {
		t.Fatalf("add veth: %v", err)
	}
	raise(t, near, p.NearName, "10.77.0.1/24")
	raise(t, far, p.FarName, "10.77.0.2/24")
	return p
}

// NewPair makes two unnamed namespaces and joins them.
func NewPair(t testing.TB, queues int) Pair {
	t.Helper()
	return Connect(t, Namespace(t), Namespace(t), queues)
}

// Netlink opens the test's own netlink library in a namespace.
func Netlink(t testing.TB, ns *netns.Handle) *netlink.Handle {
	t.Helper()
	h, err := netlink.NewHandleAt(vnetns.NsHandle(ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// Device finds a device through the test's own library.
func Device(t testing.TB, h *netlink.Handle, name string) netlink.Link {
	t.Helper()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatalf("find %q: %v", name, err)
	}
	return l
}

func raise(t testing.TB, ns *netns.Handle, name, address string) {
	t.Helper()
	h := Netlink(t, ns)
	l := Device(t, h, name)
	a, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.AddrAdd(l, a); err != nil {
		t.Fatalf("add address to %q: %v", name, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		t.Fatalf("set %q up: %v", name, err)
	}
}
