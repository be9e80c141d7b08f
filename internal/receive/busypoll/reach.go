package busypoll

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const eventpollLink = "anon_inode:[eventpoll]"

// process is one process for as long as it lives: its number and when it
// started, in clock ticks since the host did. Numbers are used again; both
// together are not.
type process struct {
	pid   int
	start uint64
	name  string
}

// identify reads who has the number now.
func identify(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The name is in brackets and may hold anything, brackets too.
	open, shut := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || shut < open {
		return process{}, fmt.Errorf("read process %d: %w", pid, unix.ESRCH)
	}
	// starttime is field 22 (proc_pid_stat(5)); the first after the name is 3.
	fields := strings.Fields(string(text[shut+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("read process %d: %w", pid, unix.ESRCH)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("read process %d: %w", pid, unix.ESRCH)
	}
	return process{pid: pid, start: start, name: string(text[open+1 : shut])}, nil
}

// alive reports whether the process is still the one with its number.
func (p process) alive() bool {
	now, err := identify(p.pid)
	return err == nil && now.start == p.start
}

// borrow duplicates one of the process's descriptors into this one, which must
// close it soon: a socket is closed when its last descriptor is. The process
// is checked after it was opened, so its number cannot have changed hands.
func (p process) borrow(fd int) (int, error) {
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.pid, err)
	}
	defer unix.Close(pidfd)
	if !p.alive() {
		return -1, fmt.Errorf("open process %d: %w", p.pid, unix.ESRCH)
	}
	dup, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate descriptor %d of process %d: %w", fd, p.pid, err)
	}
	return dup, nil
}

// borrowSocket is borrow, and makes sure that it is the socket that was meant.
func (p process) borrowSocket(fd int, cookie uint64) (int, error) {
	dup, err := p.borrow(fd)
	if err != nil {
		return -1, err
	}
	got, err := unix.GetsockoptUint64(dup, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil || got != cookie {
		unix.Close(dup)
		return -1, fmt.Errorf("descriptor %d of process %d is another: %w", fd, p.pid, unix.EBADF)
	}
	return dup, nil
}

// napiOf asks a socket which NAPI its last packet came by; zero is none.
func napiOf(o owner, ino uint32) (uint32, error) {
	dup, err := o.proc.borrow(o.fd)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dup)
	var st unix.Stat_t
	if err := unix.Fstat(dup, &st); err != nil {
		return 0, err
	}
	if uint32(st.Ino) != ino || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0, fmt.Errorf("descriptor %d of process %d is another: %w", o.fd, o.proc.pid, unix.EBADF)
	}
	id, err := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_INCOMING_NAPI_ID)
	return uint32(id), err
}

// isGone says that the process, or its descriptor, is no more.
func isGone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EBADF) || errors.Is(err, fs.ErrNotExist)
}

// isDenied says that the kernel does not let us reach in.
func isDenied(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

// joinErr leaves an error that stands alone as it is.
func joinErr(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// epollParams is struct epoll_params (include/uapi/linux/eventpoll.h, 6.9).
type epollParams struct {
	Usecs  uint32
	Budget uint16
	Prefer uint8
	_      uint8
}

func epollGet(fd int) (epollParams, error) {
	var p epollParams
	return p, epollCtl(fd, unix.EPIOCGPARAMS, &p)
}

// epollSet changes the time alone: the budget (8 when zero) and the preference
// are the application's.
func epollSet(fd int, usecs uint32) error {
	p, err := epollGet(fd)
	if err != nil {
		return err
	}
	p.Usecs = usecs
	return epollCtl(fd, unix.EPIOCSPARAMS, &p)
}

func epollCtl(fd int, request uintptr, p *epollParams) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(p)))
	switch errno {
	case 0:
		return nil
	case unix.ENOTTY:
		return fmt.Errorf("set the busy-poll time of an epoll instance (requires Linux >= 6.9): %w", errno)
	}
	return fmt.Errorf("set the busy-poll time of an epoll instance: %w", errno)
}

// sameFile asks the kernel whether our descriptor and the process's lead to one
// open file (kcmp(2), KCMP_FILE).
func sameFile(ours int, p process, theirs int) bool {
	const kcmpFile = 0
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(self), uintptr(p.pid), kcmpFile, uintptr(ours), uintptr(theirs), 0)
	return errno == 0 && r == 0
}
