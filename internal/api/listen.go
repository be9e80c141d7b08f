package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ErrInUse marks that another daemon serves the socket that was asked for.
var ErrInUse = errors.New("another daemon serves it")

const (
	socketMode = 0o660 // root and the group; a Unix socket needs write permission to connect
	folderMode = 0o755
	lockMode   = 0o600

	// pathMax is what sockaddr_un.sun_path holds, less its final zero (unix(7)).
	pathMax = 107

	newSuffix  = ".new"
	lockSuffix = ".lock"

	// probeTime is how long an old socket may take to show that it is alive. A
	// Unix connect either succeeds or fails at once; this only bounds it.
	probeTime = time.Second
)

// Listener is the daemon's socket, held. It also holds a lock on PATH.lock,
// which the kernel drops when the process dies however it dies: so two daemons
// that start together cannot both win, and a dead one's socket is replaced.
// The lock file itself stays: removing it would let two daemons lock two files.
type Listener struct {
	socket *net.UnixListener
	path   string
	made   os.FileInfo
	lock   *os.File
	once   sync.Once
}

// Listen takes the socket at path, making the folder it is in. Group gets
// access where it exists ("" for none). It refuses with ErrInUse if a daemon
// answers there, and refuses to replace what is not a socket. The socket
// appears at path complete, never for a moment with a wider mode.
func Listen(path, group string) (*Listener, error) {
	l, err := listen(path, group)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", path, err)
	}
	return l, nil
}

func listen(path, group string) (*Listener, error) {
	if n := len(path) + len(newSuffix); n > pathMax {
		return nil, fmt.Errorf("path has %d bytes, at most %d fit", len(path), pathMax-len(newSuffix))
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return nil, err
	}
	lock, err := takeLock(path + lockSuffix)
	if err != nil {
		return nil, err
	}
	l := &Listener{path: path, lock: lock}
	if err := l.bind(group); err != nil {
		lock.Close()
		return nil, err
	}
	return l, nil
}

func takeLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, lockMode)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return lock, nil
}

// bind makes the socket beside its place and renames it there. The caller holds
// the lock, so whatever lies at PATH.new was left by a daemon that died.
func (l *Listener) bind(group string) error {
	if err := replaceable(l.path); err != nil {
		return err
	}
	fresh := l.path + newSuffix
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return err
	}
	socket.SetUnlinkOnClose(false) // it would unlink the name it no longer has
	err = giveAccess(fresh, group)
	if err == nil {
		l.made, err = os.Lstat(fresh)
	}
	if err == nil {
		err = os.Rename(fresh, l.path)
	}
	if err != nil {
		socket.Close()
		return errors.Join(err, os.Remove(fresh))
	}
	l.socket = socket
	return nil
}

// replaceable returns nil if nothing is at path, or a socket nobody serves.
func replaceable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is not a socket is there")
	}
	conn, err := net.DialTimeout("unix", path, probeTime)
	if err == nil {
		conn.Close()
		return ErrInUse
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Anything else (a full backlog, say) does not prove that it is dead.
	return fmt.Errorf("see whether a daemon serves it: %w", err)
}

func giveAccess(path, group string) error {
	if err := os.Chmod(path, socketMode); err != nil {
		return err
	}
	if group == "" || os.Geteuid() != 0 {
		return nil
	}
	g, err := user.LookupGroup(group)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) || errors.Is(err, fs.ErrNotExist) {
		return nil // no such group on this host: root alone
	}
	if err != nil {
		return fmt.Errorf("look up group %q: %w", group, err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("look up group %q: %w", group, err)
	}
	return os.Chown(path, 0, gid)
}

// Close gives the socket up: nobody can connect any more, the file is removed
// unless somebody has put another in its place, and the lock is dropped.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		err = l.socket.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil // the server closed it
		}
		if now, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(now, l.made) {
			err = errors.Join(err, os.Remove(l.path))
		}
		err = errors.Join(err, l.lock.Close())
	})
	return err
}
