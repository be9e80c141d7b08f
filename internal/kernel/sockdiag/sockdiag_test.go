package sockdiag

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/netns"
	"xlane/internal/testenv"
)

func TestASocketIsReadFromItsBytes(t *testing.T) {
	b := make([]byte, diagMessageBytes)
	b[0], b[1] = unix.AF_INET6, byte(CloseWait)
	binary.BigEndian.PutUint16(b[4:], 443)
	binary.BigEndian.PutUint16(b[6:], 51000)
	copy(b[8:], netip.MustParseAddr("2001:db8::1").AsSlice())
	copy(b[24:], netip.MustParseAddr("2001:db8::2").AsSlice())
	for i, v := range []uint32{7, 0x11223344, 0x55667788, 0, 1000, 2000, 33, 44} {
		binary.NativeEndian.PutUint32(b[40+4*i:], v)
	}
	// A short tcp_info, as an older kernel sends: up to tcpi_rtt.
	info := make([]byte, 72)
	binary.NativeEndian.PutUint32(info[68:], 1500)
	attr, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: inetDiagInfo, Data: info}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseSocket(append(bytes.Clone(b), attr...))
	want := Socket{
		Local: netip.MustParseAddrPort("[2001:db8::1]:443"), Remote: netip.MustParseAddrPort("[2001:db8::2]:51000"),
		State: CloseWait, Cookie: 0x5566778811223344, Ifindex: 7, UID: 33, Inode: 44,
		RxQueue: 1000, TxQueue: 2000, Info: Info{RTT: 1500 * time.Microsecond},
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if s, err := parseSocket(b[:diagMessageBytes-1]); err == nil {
		t.Errorf("cut short: got %+v", s)
	}
}

func TestStatesHaveTheNamesOfTheRFC(t *testing.T) {
	if Established.String() != "ESTABLISHED" || Listen.String() != "LISTEN" || State(0).String() != "STATE-0" || State(99).String() != "STATE-99" {
		t.Error(Established, Listen, State(0), State(99))
	}
	if In(Established, Listen) != 1<<1|1<<10 {
		t.Errorf("got %b", In(Established, Listen))
	}
}

// connect makes a connection across the pair and sends bytes to its server,
// which does not read them.
func connect(t *testing.T, pair kerneltest.Pair, bytes int) {
	t.Helper()
	var listener net.Listener
	err := pair.Near.Do(func() (err error) {
		listener, err = net.Listen("tcp4", "10.77.0.1:7000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var client net.Conn
	err = pair.Far.Do(func() (err error) {
		client, err = net.DialTimeout("tcp4", "10.77.0.1:7000", 5*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if _, err := io.Copy(client, io.LimitReader(zeros{}, int64(bytes))); err != nil {
		t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func list(t *testing.T, ns *netns.Handle, states States) []Socket {
	t.Helper()
	var sockets []Socket
	if err := TCP(ns, states, func(s Socket) error { sockets = append(sockets, s); return nil }); err != nil {
		t.Fatal(err)
	}
	return sockets
}

func TestAConnectionIsListedWithWhatItCarried(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	const sent = 10_000
	connect(t, pair, sent)
	var s Socket
	testenv.Eventually(t, 5*time.Second, "the bytes arrived", func() bool {
		sockets := list(t, pair.Near, In(Established))
		if len(sockets) != 1 {
			t.Fatalf("got %+v, want one connection", sockets)
		}
		s = sockets[0]
		return s.Info.BytesReceived == sent
	})
	if s.Local != netip.MustParseAddrPort("10.77.0.1:7000") || s.Remote.Addr() != netip.MustParseAddr("10.77.0.2") ||
		s.State != Established || s.RxQueue != sent || s.Cookie == 0 || s.Inode == 0 || s.Info.RTT <= 0 || s.Info.DataSegmentsIn == 0 {
		t.Errorf("got %+v", s)
	}
	listening := list(t, pair.Near, In(Listen))
	if len(listening) != 1 || listening[0].Local.Port() != 7000 || listening[0].State != Listen {
		t.Errorf("got %+v, want one listener", listening)
	}
	far := list(t, pair.Far, AllStates)
	if len(far) != 1 || far[0].Info.BytesAcked < sent || far[0].Local != s.Remote {
		t.Errorf("the other side: got %+v", far)
	}
}

func TestALongListComesWholeAndCanBeStopped(t *testing.T) {
	ns := kerneltest.Namespace(t)
	h := kerneltest.Netlink(t, ns)
	if err := h.LinkSetUp(kerneltest.Device(t, h, "lo")); err != nil {
		t.Fatal(err)
	}
	const many = 400 // several datagrams of answers
	err := ns.Do(func() error {
		for range many {
			l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp6", "[::1]:0")
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(list(t, ns, AllStates)); got != many {
		t.Errorf("got %d sockets, want %d", got, many)
	}
	seen := 0
	err = TCP(ns, AllStates, func(Socket) error {
		if seen++; seen == 3 {
			return ErrStop
		}
		return nil
	})
	if err != nil || seen != 3 {
		t.Errorf("stopped at 3: saw %d, %v", seen, err)
	}
	mine := errors.New("mine")
	if err := TCP(ns, AllStates, func(Socket) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
}
