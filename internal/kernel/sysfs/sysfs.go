// Package sysfs reads and writes what the kernel offers for a device's queues
// in sysfs alone: which transmit queue a CPU or receive queue uses (XPS), which
// CPUs take over a receive queue's packets (RPS), how many queues are in use,
// and the device-wide NAPI defaults. It works in any namespace and changes no
// mount that anybody sees. Per-NAPI settings are left to package napi.
package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/netns"
)

// FS is the sysfs of one namespace: a mount without a mount point, reached
// through its file descriptor only. It may be used from several goroutines.
type FS struct {
	root *os.File
	ns   string
}

// Open mounts the namespace's sysfs, detached (fsopen(2), Linux 5.2). It needs
// CAP_SYS_ADMIN. A sysfs shows the devices of the network namespace that its
// mounter was in, which is why the mount at /sys does not do.
func Open(ns *netns.Handle) (*FS, error) {
	var root *os.File
	err := ns.Do(func() error {
		context, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(context)
		if err := unix.FsconfigCreate(context); err != nil {
			return err
		}
		fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC,
			unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		root = os.NewFile(uintptr(fd), "sysfs")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open sysfs of namespace %s: %w", ns, err)
	}
	return &FS{root: root, ns: ns.String()}, nil
}

// Close releases the mount.
func (fs *FS) Close() error { return fs.root.Close() }

// Queues counts the queues that the device uses now.
func (fs *FS) Queues(dev string) (rx, tx int, err error) {
	dir, err := fs.file(dev, "queues", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, 0, fmt.Errorf("count queues of %q: %w", dev, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, 0, fmt.Errorf("count queues of %q: %w", dev, err)
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "rx-"):
			rx++
		case strings.HasPrefix(name, "tx-"):
			tx++
		}
	}
	return rx, tx, nil
}

// XPSCPUs returns the CPUs whose packets leave by the transmit queue. It is
// empty when nothing was set, and on a device with one queue, where the kernel
// has no such setting.
func (fs *FS) XPSCPUs(dev string, txQueue int) (cpu.Set, error) {
	return fs.mask(dev, queueFile("tx", txQueue, "xps_cpus"))
}

// SetXPSCPUs sets them. XPS overrides a queue that a BPF program chose, so the
// empty set is what sorting needs.
func (fs *FS) SetXPSCPUs(dev string, txQueue int, cpus cpu.Set) error {
	return fs.setMask(dev, queueFile("tx", txQueue, "xps_cpus"), cpus)
}

// XPSRxQueues returns the receive queues whose connections leave by the
// transmit queue, as XPSCPUs does for CPUs.
func (fs *FS) XPSRxQueues(dev string, txQueue int) (cpu.Set, error) {
	return fs.mask(dev, queueFile("tx", txQueue, "xps_rxqs"))
}

// SetXPSRxQueues sets them.
func (fs *FS) SetXPSRxQueues(dev string, txQueue int, rxQueues cpu.Set) error {
	return fs.setMask(dev, queueFile("tx", txQueue, "xps_rxqs"), rxQueues)
}

// RPSCPUs returns the CPUs to which the receive queue's packets are handed,
// which is empty when they stay. Under RPS the queue's own timers no longer
// govern its delay.
func (fs *FS) RPSCPUs(dev string, rxQueue int) (cpu.Set, error) {
	return fs.mask(dev, queueFile("rx", rxQueue, "rps_cpus"))
}

// SetRPSCPUs sets them.
func (fs *FS) SetRPSCPUs(dev string, rxQueue int, cpus cpu.Set) error {
	return fs.setMask(dev, queueFile("rx", rxQueue, "rps_cpus"), cpus)
}

// Attribute reads one of the device's own files, such as "gro_flush_timeout"
// (ns), "napi_defer_hard_irqs" or "threaded": the values that new NAPIs start
// with.
func (fs *FS) Attribute(dev, name string) (string, error) {
	if err := checkName("attribute", name); err != nil {
		return "", err
	}
	s, err := fs.read(dev, name)
	if err != nil {
		return "", fmt.Errorf("read %s of %q: %w", name, dev, err)
	}
	return s, nil
}

// SetAttribute writes one of the device's own files.
func (fs *FS) SetAttribute(dev, name, value string) error {
	if err := checkName("attribute", name); err != nil {
		return err
	}
	if err := fs.write(dev, name, value); err != nil {
		return fmt.Errorf("set %s of %q to %q: %w", name, dev, value, err)
	}
	return nil
}

func queueFile(kind string, queue int, name string) string {
	return path.Join("queues", kind+"-"+strconv.Itoa(queue), name)
}

func (fs *FS) mask(dev, file string) (cpu.Set, error) {
	text, err := fs.read(dev, file)
	if errors.Is(err, errSingleQueue) {
		return cpu.Set{}, nil
	}
	if err != nil {
		return cpu.Set{}, fmt.Errorf("read %s of %q: %w", file, dev, err)
	}
	set, err := cpu.ParseMask(text)
	if err != nil {
		return cpu.Set{}, fmt.Errorf("read %s of %q: %w", file, dev, err)
	}
	return set, nil
}

func (fs *FS) setMask(dev, file string, set cpu.Set) error {
	err := fs.write(dev, file, set.Mask())
	if errors.Is(err, errSingleQueue) && set.Empty() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set %s of %q to %s: %w", file, dev, set.Mask(), err)
	}
	return nil
}

// errSingleQueue is what reading or writing an XPS file gives on a device with
// one transmit queue: the file can be opened and then fails with ENOENT
// (netif_is_multiqueue in net/core/net-sysfs.c).
var errSingleQueue = errors.New("the device has one transmit queue")

// fileBytesMax is what sysfs gives at once: a page.
const fileBytesMax = 4096

func (fs *FS) read(dev, file string) (string, error) {
	f, err := fs.file(dev, file, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileBytesMax))
	if err != nil {
		return "", explain(err)
	}
	return string(bytes.TrimSpace(b)), nil
}

func (fs *FS) write(dev, file, value string) error {
	f, err := fs.file(dev, file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return explain(errors.Join(err, f.Close()))
}

// file opens a file below the device. A missing device and a missing file of a
// device are told apart.
func (fs *FS) file(dev, file string, flags int) (*os.File, error) {
	if err := checkName("device", dev); err != nil {
		return nil, err
	}
	at := path.Join("class/net", dev)
	fd, err := unix.Openat(int(fs.root.Fd()), path.Join(at, file), flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		var st unix.Stat_t
		if unix.Fstatat(int(fs.root.Fd()), at, &st, 0) != nil {
			return nil, fmt.Errorf("%w in namespace %s", unix.ENODEV, fs.ns)
		}
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), file), nil
}

// checkName keeps a name from reaching outside its directory.
func checkName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a name of a %s", name, what)
	}
	return nil
}

// explain drops the file's name, which means nothing outside this package,
// from an error, and names the one that misleads.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOENT) {
		return errSingleQueue
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
