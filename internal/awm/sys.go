package awm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the hot path are made raw: they do not block (every socket is
// non-blocking), and telling Go's scheduler about each would cost as much as
// some of them do.

// sysRead reads once; a negative n is an error.
func sysRead(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), e
}

// sysSend writes once, and never raises SIGPIPE.
func sysSend(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

// gather is what sendmsg needs to write a head and a payload in one call. It
// lives in a loop, so that no call allocates.
type gather struct {
	iov [2]unix.Iovec
	msg unix.Msghdr
}

// send writes head and then body, once, and never raises SIGPIPE.
func (g *gather) send(fd int, head, body []byte) (int, unix.Errno) {
	g.iov[0].Base, g.iov[0].Len = &head[0], uint64(len(head))
	g.msg.Iov, g.msg.Iovlen = &g.iov[0], 1
	if len(body) > 0 {
		g.iov[1].Base, g.iov[1].Len = &body[0], uint64(len(body))
		g.msg.Iovlen = 2
	}
	n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&g.msg)), unix.MSG_NOSIGNAL)
	runtime.KeepAlive(head)
	runtime.KeepAlive(body)
	return int(n), e
}

func sysAccept(fd int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(n), e
}

func sysClose(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// sysEpollWait waits until wait has passed, or without end if it is negative.
// With pwait2 the wait is in nanoseconds, which an open loop's schedule needs.
//
// This call does block, and is raw all the same: entering and leaving Go's
// scheduler made a transaction 15% dearer. The thread keeps its processor
// while it waits, which reserveProcs pays for; when Go wants to stop it (to
// collect garbage) its preemption signal ends the wait with EINTR.
func sysEpollWait(epfd int, events []unix.EpollEvent, wait time.Duration) (int, unix.Errno) {
	var ts unix.Timespec
	var tsp unsafe.Pointer
	if wait >= 0 {
		ts = unix.NsecToTimespec(int64(wait))
		tsp = unsafe.Pointer(&ts)
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(tsp), 0, 0)
	return int(n), e
}

// sysTCPInfo fills info. Fields that the kernel does not know stay zero.
func sysTCPInfo(fd int, info *unix.TCPInfo) unix.Errno {
	*info = unix.TCPInfo{}
	size := uint32(unsafe.Sizeof(*info))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&size)), 0)
	return e
}

// sockaddr builds a raw socket address; connects reuse it, so that none
// allocates.
type sockaddr struct {
	raw  unix.RawSockaddrAny
	size uint32
	v6   bool
}

func newSockaddr(a netip.AddrPort) *sockaddr {
	s := &sockaddr{v6: a.Addr().Is6() && !a.Addr().Is4In6()}
	port := [2]byte{byte(a.Port() >> 8), byte(a.Port())}
	if s.v6 {
		r := (*unix.RawSockaddrInet6)(unsafe.Pointer(&s.raw))
		r.Family, r.Addr = unix.AF_INET6, a.Addr().As16()
		r.Port = *(*uint16)(unsafe.Pointer(&port))
		r.Scope_id = scopeID(a.Addr().Zone())
		s.size = unix.SizeofSockaddrInet6
		return s
	}
	r := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
	r.Family, r.Addr = unix.AF_INET, a.Addr().Unmap().As4()
	r.Port = *(*uint16)(unsafe.Pointer(&port))
	s.size = unix.SizeofSockaddrInet4
	return s
}

func (s *sockaddr) family() int {
	if s.v6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// connect starts a connection and returns its socket; progress comes by epoll.
func (s *sockaddr) connect(options func(fd int) error) (int, error) {
	r, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(s.family()), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return -1, fmt.Errorf("open a socket: %w", e)
	}
	fd := int(r)
	if err := options(fd); err != nil {
		sysClose(fd)
		return -1, err
	}
	_, _, e = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&s.raw)), uintptr(s.size))
	if e != 0 && e != unix.EINPROGRESS {
		sysClose(fd)
		return -1, fmt.Errorf("connect: %w", e)
	}
	return fd, nil
}

// PortRange bounds the ports that a server listens on for data; the zero value
// leaves the choice to the kernel.
type PortRange struct{ Low, High uint16 }

// scopeID returns the interface index of a link-local address's zone, given as
// a number or as a name; an unknown zone is 0, and connect says so.
func scopeID(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if zone != "" {
		if dev, err := net.InterfaceByName(zone); err == nil {
			return uint32(dev.Index)
		}
	}
	return 0
}

// listenBacklog is the kernel's own default limit (net.core.somaxconn, 4096
// since Linux 5.4); it clamps what is larger.
const listenBacklog = 4096

// listen opens a listening socket on addr at the first free port of ports, or
// at any if ports is zero.
func listen(addr netip.Addr, ports PortRange, options func(fd int) error) (fd int, port uint16, err error) {
	for p := int(ports.Low); p <= int(ports.High); p++ {
		fd, port, err = listenAt(netip.AddrPortFrom(addr, uint16(p)), options)
		if err == nil || !errors.Is(err, unix.EADDRINUSE) {
			return fd, port, err
		}
	}
	return -1, 0, fmt.Errorf("find a free port from %d to %d: %w", ports.Low, ports.High, err)
}

func listenAt(at netip.AddrPort, options func(fd int) error) (int, uint16, error) {
	sa := newSockaddr(at)
	fd, err := unix.Socket(sa.family(), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, fmt.Errorf("open a listening socket: %w", err)
	}
	port, err := bindListen(fd, sa, at, options)
	if err != nil {
		sysClose(fd)
		return -1, 0, err
	}
	return fd, port, nil
}

func bindListen(fd int, sa *sockaddr, at netip.AddrPort, options func(fd int) error) (uint16, error) {
	// A port whose earlier connections are in TIME_WAIT may be listened on.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := options(fd); err != nil {
		return 0, err
	}
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(sa.size))
	if e != 0 {
		return 0, fmt.Errorf("listen on %s: %w", at, e)
	}
	if err := unix.Listen(fd, listenBacklog); err != nil {
		return 0, fmt.Errorf("listen on %s: %w", at, err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("read the port of %s: %w", at, err)
	}
	return addrPort(name).Port(), nil
}

// addrPort converts what the unix package returns; an unknown family gives the
// zero address.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// socketOptions sets what a class wants of its sockets. Connections that a
// listening socket accepts inherit all of it.
type socketOptions struct {
	sendBuf, recvBuf int
	cc               string // empty: the host's default is already the one wanted
	noDelay          bool
	paceBytes        uint64 // bytes a second for each connection; 0 is no limit
}

func newSocketOptions(s Spec) (socketOptions, error) {
	o := socketOptions{sendBuf: s.SendBuf, recvBuf: s.RecvBuf, cc: s.CC, noDelay: s.NoDelay}
	if s.Pace > 0 {
		o.paceBytes = max(uint64(s.Pace)/8/uint64(s.Conns), 1)
	}
	standard, err := defaultCC()
	if err != nil {
		return o, err
	}
	if standard == s.CC {
		o.cc = ""
	}
	return o, nil
}

// defaultCC asks a new socket. A class that uses the default saves a system
// call a connection, which CRR would feel.
func defaultCC() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open a socket: %w", err)
	}
	defer sysClose(fd)
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return "", fmt.Errorf("read the default congestion control: %w", err)
	}
	return name, nil
}

func (o *socketOptions) set(fd int) error {
	if o.noDelay {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("set TCP_NODELAY: %w", err)
		}
	}
	if o.cc != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.cc); err != nil {
			return fmt.Errorf("set congestion control %q: %w", o.cc, err)
		}
	}
	if o.sendBuf > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, o.sendBuf); err != nil {
			return fmt.Errorf("set SO_SNDBUF to %d: %w", o.sendBuf, err)
		}
	}
	if o.recvBuf > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, o.recvBuf); err != nil {
			return fmt.Errorf("set SO_RCVBUF to %d: %w", o.recvBuf, err)
		}
	}
	if o.paceBytes > 0 {
		// Eight bytes since Linux 4.20; unix has no call for that size.
		_, _, e := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE,
			uintptr(unsafe.Pointer(&o.paceBytes)), unsafe.Sizeof(o.paceBytes), 0)
		if e != 0 {
			return fmt.Errorf("set SO_MAX_PACING_RATE to %d bytes/s: %w", o.paceBytes, e)
		}
	}
	return nil
}

// pendingError takes the socket's error, which a failed connect leaves there.
func pendingError(fd int) error {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if v != 0 {
		return syscall.Errno(v)
	}
	return nil
}
