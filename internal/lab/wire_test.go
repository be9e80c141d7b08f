package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"xlane/internal/testenv"
)

// capture sees every frame of one device of the wire.
type capture struct {
	fd      int
	stop    atomic.Bool
	done    chan struct{}
	err     error
	tcp     int // frames that carry TCP payload
	udp     int
	longest int // bytes above the Ethernet header
}

func startCapture(t *testing.T, l *Lab, dev string) *capture {
	t.Helper()
	c := &capture{done: make(chan struct{})}
	err := l.Wire.Do(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		timeout := unix.NsecToTimeval(int64(20 * time.Millisecond))
		return errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.run()
	return c
}

func (c *capture) run() {
	defer close(c.done)
	buf := make([]byte, 1<<16+100)
	for {
		// Looked at first: what came before the stop is then still read.
		isLast := c.stop.Load()
		n, _, err := unix.Recvfrom(c.fd, buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			if isLast {
				return
			}
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			c.err = err
			return
		}
		frame := gopacket.NewPacket(buf[:n], layers.LayerTypeEthernet, gopacket.NoCopy)
		link, ok := frame.LinkLayer().(*layers.Ethernet)
		if !ok {
			c.err = fmt.Errorf("a frame of %d bytes is not Ethernet", n)
			return
		}
		c.longest = max(c.longest, len(link.Payload))
		switch l4 := frame.TransportLayer().(type) {
		case *layers.TCP:
			if len(l4.Payload) > 0 {
				c.tcp++
			}
		case *layers.UDP:
			c.udp++
		}
	}
}

// end waits until all frames so far were read.
func (c *capture) end(t *testing.T) {
	t.Helper()
	c.stop.Store(true)
	<-c.done
	unix.Close(c.fd)
	if c.err != nil {
		t.Fatal(c.err)
	}
}

// TestFramesNeverExceedTheMTU sends what senders like to send in one piece:
// a TCP stream, and UDP with segmentation asked for by the application.
func TestFramesNeverExceedTheMTU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		spec LinkSpec
		mtu  int // 0: larger frames are expected
		// seen is how often a capture at the sender's adapter sees a frame.
		seen int
	}{
		{"standard frames", LinkSpec{}, 1500, 1},
		{"jumbo frames", LinkSpec{MTU: 9000}, 9000, 1},
		{"with a slow lane", LinkSpec{Out: Path{Faults: Faults{Delay: time.Millisecond}}}, 1500, 2},
		{"a plain veth carries larger ones", LinkSpec{PlainVeth: true}, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, hosts := newLab(t, c.spec, "client", "server")
			captures := []struct {
				*capture
				seen int
			}{{startCapture(t, l, hosts[0].FarDev), c.seen}, {startCapture(t, l, hosts[1].FarDev), 1}}
			for _, addr := range []netip.Addr{hosts[1].Addr4, hosts[1].Addr6} {
				transfer(t, hosts[0], hosts[1], addr, 1<<20)
			}
			const segments, size = 10, 1000
			sendSegmented(t, hosts[0], hosts[1], segments, size)
			for _, cap := range captures {
				cap.end(t)
				if cap.tcp == 0 || cap.udp == 0 {
					t.Fatalf("the capture saw %d TCP and %d UDP frames", cap.tcp, cap.udp)
				}
				if c.mtu != 0 && (cap.longest > c.mtu || cap.udp != segments*cap.seen) {
					t.Errorf("the longest frame carries %d bytes over an MTU of %d; %d datagrams were seen as %d frames", cap.longest, c.mtu, segments, cap.udp)
				}
				if c.mtu == 0 && cap.longest <= mtuDefault {
					t.Errorf("the longest frame carries %d bytes: this is not a plain veth", cap.longest)
				}
			}
		})
	}
}

// sendSegmented hands the kernel several datagrams in one write (UDP_SEGMENT)
// and waits for all of them.
func sendSegmented(t *testing.T, from, to *Host, segments, size int) {
	t.Helper()
	var sink *net.UDPConn
	err := to.Do(func() (err error) {
		sink, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Addr4, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	conn := dial(t, from, "udp", sink.LocalAddr()).(*net.UDPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)
	}); control != nil || err != nil {
		t.Fatal(control, err)
	}
	if _, err := conn.Write(payload(segments * size)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2*size)
	for n := range segments {
		if err := sink.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if got, err := sink.Read(buf); err != nil || got != size {
			t.Fatalf("datagram %d: %d bytes, %v", n, got, err)
		}
	}
}

// TestTheSwitchCarriesWhatTheProgramsDoNotKnow sends a frame with two VLAN
// tags and an unknown type through links with faults on both directions.
func TestTheSwitchCarriesWhatTheProgramsDoNotKnow(t *testing.T) {
	t.Parallel()
	faulty := Path{Faults: Faults{Delay: time.Millisecond}}
	_, hosts := newLab(t, LinkSpec{In: faulty, Out: faulty}, "client", "server")
	open := func(h *Host) (fd int, index int) {
		err := h.Do(func() (err error) {
			const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
			if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
				return err
			}
			link, err := net.InterfaceByName(h.Dev)
			if err != nil {
				return err
			}
			index = link.Index
			return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd, index
	}
	in, _ := open(hosts[1])
	out, index := open(hosts[0])
	frame := append(append([]byte{}, hosts[1].MAC...), hosts[0].MAC...)
	frame = append(frame, 0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x88, 0xb5) // two tags, experimental type
	frame = append(frame, payload(100)...)
	if err := unix.Sendto(out, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	testenv.Eventually(t, 5*time.Second, "the frame arrives", func() bool {
		n, _, err := unix.Recvfrom(in, buf, 0)
		// The outer tag is beside the frame here, as the kernel keeps it.
		return err == nil && n >= 100 && string(buf[n-100:n]) == string(payload(100))
	})
	if s := stats(t, hosts[1], In); s.Returned == 0 || s.Overflowed != 0 {
		t.Errorf("the frame did not take the lane: %+v", s)
	}
}
