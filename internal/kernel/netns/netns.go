// Package netns opens network namespaces and runs functions inside them. It
// touches the calling thread's namespace only, on a thread of its own that is
// thrown away when it cannot be restored. What is done inside a namespace it
// leaves to the packages that take a Handle.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where iproute2 keeps named namespaces (ip-netns(8)).
const Dir = "/run/netns"

// ErrNotFound says that no namespace has the name, path or process asked for.
var ErrNotFound = errors.New("no such namespace")

// ID tells namespaces apart for as long as they exist: two handles with equal
// IDs are the same namespace. An ID may be used again after its namespace died.
type ID struct {
	Dev uint64
	Ino uint64
}

// String writes the namespace as the kernel does in /proc/PID/ns/net.
func (id ID) String() string { return "net:[" + strconv.FormatUint(id.Ino, 10) + "]" }

// Handle is an open network namespace. It keeps the namespace alive until
// Close. A Handle may be used from several goroutines at once.
type Handle struct {
	file  *os.File
	id    ID
	label string
}

// Find opens what an operator wrote: nothing for the caller's own namespace, a
// path (anything with a slash), or the name of a namespace below Dir.
func Find(spec string) (*Handle, error) {
	switch {
	case spec == "":
		return Current()
	case strings.Contains(spec, "/"):
		return OpenPath(spec)
	}
	return Open(spec)
}

// Open opens the named namespace, Dir/name. The error wraps ErrNotFound when
// there is none.
func Open(name string) (*Handle, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return nil, fmt.Errorf("open namespace %q: not a name; use a path to open a file elsewhere", name)
	}
	return open(filepath.Join(Dir, name), strconv.Quote(name))
}

// OpenPath opens the namespace behind a file: a bind mount or /proc/PID/ns/net.
func OpenPath(path string) (*Handle, error) { return open(path, strconv.Quote(path)) }

// OpenPID opens the namespace of a process. The number is read in the PID
// namespace of the mounted /proc.
func OpenPID(pid int) (*Handle, error) {
	return open(fmt.Sprintf("/proc/%d/ns/net", pid), fmt.Sprintf("of process %d", pid))
}

// Current opens the namespace of the calling thread, which is the process's
// own unless the caller is inside Do.
func Current() (*Handle, error) { return open("/proc/thread-self/ns/net", "of this process") }

// Create makes a new, unnamed namespace. It lives until the handle is closed
// and nothing else holds it; its loopback device is down.
func Create() (*Handle, error) {
	home, err := Current()
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	defer home.Close()
	var made *Handle
	// Do brings the thread back, which matters beyond saving a thread: the
	// runtime never ends the process's first thread, so one that stayed inside
	// would make /proc/PID/ns/net point there for good.
	err = home.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
		var err error
		made, err = open("/proc/thread-self/ns/net", "made by this process")
		return err
	})
	return made, err
}

func open(path, label string) (*Handle, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("open namespace %s: %w (%s does not exist)", label, ErrNotFound, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", label, err)
	}
	// A name whose bind mount is gone, as after a crash, is an ordinary file.
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		f.Close()
		return nil, fmt.Errorf("open namespace %s: %w (%s is not a network namespace)", label, ErrNotFound, path)
	}
	id, err := identify(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open namespace %s: %w", label, err)
	}
	return &Handle{file: f, id: id, label: label}, nil
}

func identify(f *os.File) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ID{}, err
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}

func identifyPath(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, err
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}

// ID returns the namespace's identity.
func (h *Handle) ID() ID { return h.id }

// FD returns the open file, valid until Close. The caller must not close it.
func (h *Handle) FD() int { return int(h.file.Fd()) }

// String names the namespace as it was opened, for use in sentences.
func (h *Handle) String() string { return h.label }

// Same reports whether both handles are of one namespace.
func (h *Handle) Same(other *Handle) bool { return h.id == other.id }

// Clone opens the same namespace once more, with a lifetime of its own.
func (h *Handle) Clone() (*Handle, error) {
	fd, err := unix.FcntlInt(h.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("clone handle of namespace %s: %w", h.label, err)
	}
	return &Handle{file: os.NewFile(uintptr(fd), h.file.Name()), id: h.id, label: h.label}, nil
}

// Close releases the namespace. Devices in it die with its last holder.
func (h *Handle) Close() error { return h.file.Close() }

// Do runs fn on a locked OS thread inside the namespace and returns fn's
// error. The thread is brought back afterwards; when that fails it ends with
// its goroutine and no other code ever runs on it. What fn starts on other
// goroutines runs outside the namespace.
//
// No privilege is needed when the thread is in the namespace already;
// otherwise CAP_SYS_ADMIN is.
func (h *Handle) Do(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		// Stands if fn leaves through runtime.Goexit, as t.Fatal does.
		err := errors.New("the function in the namespace ended its goroutine")
		defer func() { result <- err }()
		err = h.doLocked(fn)
	}()
	return <-result
}

// doLocked locks the thread, and gives it back only if it is in its namespace
// again, whatever fn did to it.
func (h *Handle) doLocked(fn func() error) error {
	runtime.LockOSThread()
	home, err := Current()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if unix.Setns(home.FD(), unix.CLONE_NEWNET) == nil || isHere(home) {
			runtime.UnlockOSThread()
		}
		home.Close()
	}()
	if !home.Same(h) {
		if err := unix.Setns(h.FD(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", h.label, err)
		}
	}
	return fn()
}

// isHere reports whether the calling thread is in the namespace. It answers for
// the unprivileged, who can enter none and so left none.
func isHere(h *Handle) bool {
	id, err := identifyPath("/proc/thread-self/ns/net")
	return err == nil && id == h.id
}
