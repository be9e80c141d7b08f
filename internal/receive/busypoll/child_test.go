package busypoll

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
)

// childEnv makes the test binary one of the servers below: processes of their
// own, which know nothing of busy polling.
const childEnv = "XLANE_BUSYPOLL_CHILD"

const port = 7000

func TestMain(m *testing.M) {
	serve := map[string]func() error{
		"epoll": echoEpoll, "blocking": echoBlocking, "crowd": crowd, "unprivileged": unprivileged,
	}[os.Getenv(childEnv)]
	if serve == nil {
		os.Exit(m.Run())
	}
	if err := serve(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// echoEpoll answers through Go's network poller, one epoll instance.
func echoEpoll() error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go io.Copy(c, c)
	}
}

// echoBlocking answers one connection at a time with calls that block.
func echoBlocking() error {
	runtime.LockOSThread()
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(l, &unix.SockaddrInet4{Port: port}); err != nil {
		return err
	}
	if err := unix.Listen(l, 8); err != nil {
		return err
	}
	fmt.Println("ready")
	buf := make([]byte, 4096)
	for {
		c, _, err := unix.Accept(l)
		if err != nil {
			return err
		}
		for {
			n, err := unix.Read(c, buf)
			if n <= 0 || err != nil {
				break
			}
			if _, err := unix.Write(c, buf[:n]); err != nil {
				break
			}
		}
		unix.Close(c)
	}
}

// crowd is echoEpoll with 10,000 descriptors more.
func crowd() error {
	const extra = 10000
	limit := unix.Rlimit{Cur: extra + 1000, Max: extra + 1000}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	for range extra {
		if _, err := unix.Dup(1); err != nil {
			return err
		}
	}
	return echoEpoll()
}

// unprivileged prints what Open says to somebody who may not.
func unprivileged() error {
	ns, err := netns.Current()
	if err != nil {
		return err
	}
	_, err = Open(Config{NS: ns, RecordDir: "/nonexistent"})
	return err
}

// only lists the given connection as bulk, and nothing else.
func only(c net.Conn) func(func(local, remote netip.AddrPort) bool) error {
	return func(yield func(local, remote netip.AddrPort) bool) error {
		// The client's remote end is the server's local one.
		yield(netip.MustParseAddrPort(c.RemoteAddr().String()), netip.MustParseAddrPort(c.LocalAddr().String()))
		return nil
	}
}
