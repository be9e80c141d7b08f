package busypoll

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// held is what is engaged. Of an epoll instance a duplicate is kept, so that it
// stays the same one whatever its process does with its number; it holds none
// of the connections open. Of a socket none is kept, because the connection
// would not close while there is one.
type held struct {
	who waiter
	dup int // of an epoll instance; -1 for a socket
	was int // its busy-poll time before, in µs
	on  bool
}

// hold takes a waiter, without changing it. It returns nil and no error when
// the application polls already: it knows why.
func hold(w waiter) (*held, error) {
	h := &held{who: w, dup: -1}
	if w.kind == socket {
		was, err := h.socketTime()
		if err != nil || was != 0 {
			return nil, err
		}
		return h, nil
	}
	dup, err := w.proc.borrow(w.fd)
	if err != nil {
		return nil, err
	}
	if where, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dup)); err != nil || where != eventpollLink {
		unix.Close(dup)
		return nil, fmt.Errorf("descriptor %d of process %d is another: %w", w.fd, w.proc.pid, unix.EBADF)
	}
	p, err := epollGet(dup)
	if err != nil || p.Usecs != 0 {
		unix.Close(dup)
		return nil, err
	}
	h.dup = dup
	return h, nil
}

// over says why the waiter must be left now, or "".
func (h *held) over(t *table) string {
	if !h.who.proc.alive() {
		return "the process ended"
	}
	if h.who.kind == socket {
		s, ok := t.socks[h.who.inode]
		switch {
		case !ok || s.cookie != h.who.cookie:
			return "the connection ended"
		case s.bulk:
			return "the connection is bulk now"
		}
		return ""
	}
	if !sameFile(h.dup, h.who.proc, h.who.fd) {
		return "the application closed it"
	}
	inodes, err := members(fmt.Sprintf("/proc/self/fdinfo/%d", h.dup))
	if err != nil {
		return err.Error()
	}
	for _, ino := range inodes {
		if t.socks[ino].bulk {
			return "a bulk connection is among its own"
		}
	}
	return ""
}

// set lets the waiter poll, or puts back what it had. A time that somebody
// else has changed since is left alone.
func (h *held) set(on bool) error {
	if on == h.on {
		return nil
	}
	expect, to := h.was, PollUsecs
	if !on {
		expect, to = PollUsecs, h.was
	}
	var err error
	if h.who.kind == socket {
		err = changeSocket(h.who.proc, h.who.fd, h.who.cookie, expect, to)
	} else {
		err = changeEpoll(h.dup, expect, to)
	}
	if !on && errors.Is(err, errOther) {
		err = nil
	}
	if err == nil {
		h.on = on
	}
	return err
}

// errOther says that somebody else has set a time since.
var errOther = errors.New("the application set a busy-poll time of its own")

// changeEpoll writes a time if the expected one is there.
func changeEpoll(dup, expect, to int) error {
	p, err := epollGet(dup)
	if err != nil {
		return err
	}
	if int(p.Usecs) != expect {
		return errOther
	}
	return epollSet(dup, uint32(to))
}

// changeSocket writes a time if the expected one is there.
func changeSocket(p process, fd int, cookie uint64, expect, to int) error {
	dup, err := p.borrowSocket(fd, cookie)
	if err != nil {
		return err
	}
	defer unix.Close(dup)
	now, err := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
	if err != nil {
		return fmt.Errorf("read SO_BUSY_POLL: %w", err)
	}
	if now != expect {
		return errOther
	}
	if err := unix.SetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_BUSY_POLL, to); err != nil {
		return fmt.Errorf("set SO_BUSY_POLL to %d us: %w", to, err)
	}
	return nil
}

// socketTime reads SO_BUSY_POLL, in µs.
func (h *held) socketTime() (int, error) {
	dup, err := h.who.proc.borrowSocket(h.who.fd, h.who.cookie)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dup)
	v, err := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
	if err != nil {
		return 0, fmt.Errorf("read SO_BUSY_POLL: %w", err)
	}
	return v, nil
}

func (h *held) close() {
	if h.dup >= 0 {
		unix.Close(h.dup)
		h.dup = -1
	}
}
