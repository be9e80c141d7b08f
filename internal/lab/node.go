package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) looks for named namespaces.
const netnsDir = "/run/netns"

// Node is one network namespace of a lab, and what was started in it.
type Node struct {
	// NetNS is the name under which ip-netns(8) knows the namespace.
	NetNS string
	// NetNSPath is the file that is bound to the namespace.
	NetNSPath string

	ns *os.File        // keeps the namespace, and is what Do enters
	nl *netlink.Handle // a netlink socket inside the namespace

	cmds *commands
}

// commands are the processes that were started through Command.
type commands struct {
	mu      sync.Mutex
	started []*Cmd
}

// newNode makes a namespace and binds it at /run/netns/name. Only that path
// is left behind when it fails.
func newNode(name string) (Node, error) {
	n := Node{NetNS: name, NetNSPath: filepath.Join(netnsDir, name), cmds: &commands{}}
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return n, fmt.Errorf("make namespace %q: %w", name, err)
	}
	f, err := os.OpenFile(n.NetNSPath, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0)
	if err != nil {
		return n, fmt.Errorf("make namespace %q: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return n, fmt.Errorf("make namespace %q: %w", name, err)
	}
	err = keepingNamespace(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return unix.Mount("/proc/thread-self/ns/net", n.NetNSPath, "none", unix.MS_BIND, "")
	})
	if err != nil {
		return n, fmt.Errorf("make namespace %q: %w", name, err)
	}
	if n.ns, err = os.Open(n.NetNSPath); err != nil {
		return n, fmt.Errorf("open namespace %q: %w", name, err)
	}
	return n, nil
}

// open connects a netlink socket inside the namespace and sets loopback up.
func (n *Node) open() error {
	nl, err := netlink.NewHandleAt(netns.NsHandle(n.ns.Fd()))
	if err != nil {
		return fmt.Errorf("open netlink in %q: %w", n.NetNS, err)
	}
	n.nl = nl
	lo, err := nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo in %q: %w", n.NetNS, err)
	}
	if err := nl.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up in %q: %w", n.NetNS, err)
	}
	return nil
}

// Do runs f inside the namespace, on the calling goroutine, whose thread is
// locked meanwhile; calls may be nested. Goroutines that f starts are not in
// the namespace. Sockets stay in the namespace they were opened in. /proc/sys/net
// is the namespace's; /sys/class/net is not (Command has both).
func (n *Node) Do(f func() error) error {
	return keepingNamespace(func() error {
		if err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %q: %w", n.NetNS, err)
		}
		return f()
	})
}

// keepingNamespace runs f, which may change its thread's network namespace,
// and brings the thread back. A thread that cannot be brought back stays
// locked to its goroutine and ends with it.
func keepingNamespace(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer home.Close()
	defer func() {
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("return to own namespace: %w", back))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// stop ends every process in the namespace and collects those that were
// started through Command.
func (n *Node) stop() error {
	if n.ns == nil {
		return nil
	}
	n.cmds.mu.Lock()
	started := n.cmds.started
	n.cmds.started = nil
	n.cmds.mu.Unlock()
	for _, c := range started {
		c.kill()
	}
	return killInside(n.NetNSPath)
}

// close lets go of the namespace and removes its name. The kernel frees it,
// and every device that is still in it, when nothing else holds it.
func (n *Node) close() error {
	if n.nl != nil {
		n.nl.Close()
		n.nl = nil
	}
	if n.ns != nil {
		n.ns.Close()
	}
	if n.NetNSPath == "" {
		return nil
	}
	return removeName(n.NetNSPath)
}

// removeName unbinds and removes the file of a named namespace; one that is
// not there is fine.
func removeName(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove namespace name: %w", err)
	}
	return nil
}

// setSysctl writes a sysctl of the thread's namespace; key is its path below
// /proc/sys.
func setSysctl(key, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	return nil
}

// setSysctlIfPresent is for sysctls of optional parts of the kernel.
func setSysctlIfPresent(key, value string) error {
	if err := setSysctl(key, value); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
