package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outputWait is how long Wait goes on reading a pipe that a grandchild holds
// open after the command itself has ended.
const outputWait = 2 * time.Second

// Cmd is an exec.Cmd that starts inside a namespace. It sees the namespace's
// devices also under /sys/class/net, in a mount namespace of its own; all
// other files are the machine's. Close of the lab kills it.
type Cmd struct {
	*exec.Cmd

	node *Node
	wait sync.Once
	err  error // what Wait answers
}

// Command prepares a program to run inside the namespace, as exec.Command does.
func (n *Node) Command(name string, args ...string) *Cmd {
	c := &Cmd{Cmd: exec.Command(name, args...), node: n}
	c.WaitDelay = outputWait
	return c
}

// Start starts the command inside the namespace and does not wait for it.
func (c *Cmd) Start() error {
	err := onSpareThread(func() error {
		if err := unix.Setns(int(c.node.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		if err := showDevices(); err != nil {
			return fmt.Errorf("mount sysfs: %w", err)
		}
		return c.Cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("start %s in %q: %w", filepath.Base(c.Path), c.node.NetNS, err)
	}
	c.node.cmds.mu.Lock()
	c.node.cmds.started = append(c.node.cmds.started, c)
	c.node.cmds.mu.Unlock()
	return nil
}

// Wait waits for a started command, as exec.Cmd does, but may be called more
// than once and from several goroutines.
func (c *Cmd) Wait() error {
	c.wait.Do(func() { c.err = c.Cmd.Wait() })
	return c.err
}

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns what it wrote to stdout. An error holds
// what it wrote to stderr, unless Stderr was set.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("run command: Stdout is already set")
	}
	var stdout, stderr bytes.Buffer
	c.Stdout = &stdout
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	err := c.Run()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns all that it wrote.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("run command: Stdout or Stderr is already set")
	}
	var all bytes.Buffer
	c.Stdout, c.Stderr = &all, &all
	err := c.Run()
	return all.Bytes(), err
}

// kill ends the command and collects it, if nobody has yet.
func (c *Cmd) kill() {
	// A command that has ended on its own cannot be killed: nothing is lost.
	_ = c.Process.Kill()
	_ = c.Wait()
}

// onSpareThread runs f on a thread that ends with it, for what cannot be
// undone on a thread. It is never the process's main thread, because
// /proc/PID shows that one's namespaces as the process's own.
func onSpareThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is not to be used again
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		// While this goroutine holds the main thread, the next one cannot get it.
		next := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			next <- f()
		}()
		done <- <-next
		runtime.UnlockOSThread()
	}()
	return <-done
}

// sysfsDir is where a new sysfs is mounted for a moment. It lies beside the
// records so that nothing else of the machine is covered.
const sysfsDir = "/run/xlane/lab/sysfs"

// showDevices gives the thread a mount namespace in which /sys/class/net shows
// the devices of its network namespace. Only these two directories are
// replaced, because /sys/fs/bpf and /sys/fs/cgroup must stay reachable.
func showDevices() error {
	if err := os.MkdirAll(sysfsDir, 0o755); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	// Nothing that is mounted here may reach the machine's own mounts.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("sysfs", sysfsDir, "sysfs", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"class/net", "devices/virtual/net"} {
		err := unix.Mount(filepath.Join(sysfsDir, dir), filepath.Join("/sys", dir), "", unix.MS_BIND, "")
		if err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	return unix.Unmount(sysfsDir, unix.MNT_DETACH)
}
