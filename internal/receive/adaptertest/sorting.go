package adaptertest

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xlane/internal/kernel/napi"
	"xlane/internal/lab"
	"xlane/internal/model"
	"xlane/internal/testenv"
)

func testSorts(t *testing.T, s Subject, link Link) {
	for _, family := range []struct {
		name string
		addr func(*lab.Host) netip.Addr
	}{
		{"IPv4", func(h *lab.Host) netip.Addr { return h.Addr4 }},
		{"IPv6", func(h *lab.Host) netip.Addr { return h.Addr6 }},
	} {
		t.Run(family.name, func(t *testing.T) {
			r := newRig(t, s, link)
			r.apply()
			srv := serve(t, r.host, family.addr(r.host))
			chat, stream := dial(t, r.peer, srv.ln.Addr()), dial(t, r.peer, srv.ln.Addr())
			r.reading(model.BulkData) // counting begins
			const bytes = 40 * streamBytes
			together(t, []*client{chat, stream}, func(c *client) error {
				if c == stream {
					return c.ask(bytes, 1)
				}
				for range 300 {
					if err := c.ask(askBytes, answerBytes); err != nil {
						return err
					}
				}
				return nil
			})
			if q := r.queueOf(chat); q != model.Primary {
				t.Errorf("questions and answers are on %v", q)
			}
			if q := r.queueOf(stream); q != model.BulkData {
				t.Errorf("the stream is on %v", q)
			}
			c := r.counters()
			if got := c.Bytes[model.BulkData]; got < bytes/2 || got > bytes*11/10 {
				t.Errorf("%d bytes of a stream of %d were put on BULKDATA", got, bytes)
			}
			if got := r.reading(model.BulkData); got.Bytes < bytes/2 {
				t.Errorf("BULKDATA's queue counts %d bytes of a stream of %d", got.Bytes, bytes)
			}
			if c.Event["registered"] != 1 {
				t.Errorf("%d connections were found to be bulk, want 1", c.Event["registered"])
			}
		})
	}
}

// testOrder sends connections to BULKDATA and home again many times. A frame
// that overtook another would show in the kernel's count of segments out of
// order, and, were TCP wrong, in the content.
func testOrder(t *testing.T, s Subject, link Link) {
	for _, load := range []struct {
		name           string
		conns, cycles  int
		sendBuffer     int
		movesEachCycle int // at least, of two: a stream may end before its move
	}{
		{"four connections that wait for acknowledgements", 4, 150, sendBuffer, 1},
		{"one connection that keeps the queue full", 1, 150, sendBufferLong, 0},
	} {
		t.Run(load.name, func(t *testing.T) {
			r := newRig(t, s, link)
			r.apply()
			clients := r.clients(load.conns)
			for _, c := range clients {
				c.window(t, load.sendBuffer)
			}
			host, peer := r.stat(r.ns), r.stat(openNS(t, r.peer.NetNSPath))
			together(t, clients, func(c *client) error { return c.alternate(load.cycles) })
			c := r.counters()
			t.Logf("moves: %d (%d seen at the host, %d acknowledged, %d after a pause)", c.Moves(),
				c.Event["moved_proved"], c.Event["moved_acked"], c.Event["moved_paused"])
			if least := uint64(load.conns * load.cycles * load.movesEachCycle); c.Moves() < max(least, 1) {
				t.Errorf("%d moves in %d cycles of %d connections: %v", c.Moves(), load.cycles, load.conns, c.Event)
			}
			r.inOrder(host, peer)
			r.silent("after the load")
		})
	}
}

func testRules(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.apply()
	distributed := netip.MustParseAddr("10.77.0.250")
	r.run(&r.host.Node, "ip", "address", "add", distributed.String()+"/32", "dev", r.host.Dev)
	if err := r.a.Sorter().SetSysDist([]netip.Addr{distributed}); err != nil {
		t.Fatal(err)
	}
	before := r.counters()
	c := dial(t, r.peer, serve(t, r.host, distributed).ln.Addr())
	for range 50 {
		if err := c.ask(askBytes, answerBytes); err != nil {
			t.Fatal(err)
		}
	}
	sendEE(t, r, 20)
	testenv.Eventually(t, patience, "SYSDIST and EE count what was sent", func() bool {
		now := r.counters()
		return now.Packets[model.SysDist]-before.Packets[model.SysDist] >= 50 && now.Packets[model.EE]-before.Packets[model.EE] == 20
	})
	if err := c.ask(40*streamBytes, 1); err != nil {
		t.Fatal(err)
	}
	if q := r.queueOf(c); q != model.BulkData {
		t.Errorf("a stream to a distributed address is on %v", q)
	}
}

// sendEE sends datagrams to a port of Enterprise Extender, and waits for them.
func sendEE(t *testing.T, r *rig, n int) {
	t.Helper()
	var in net.PacketConn
	var out net.Conn
	to := netip.AddrPortFrom(r.host.Addr4, 12002).String()
	err := errors.Join(
		r.host.Do(func() (err error) { in, err = net.ListenPacket("udp", to); return err }),
		r.peer.Do(func() (err error) { out, err = net.Dial("udp", to); return err }))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	if err := in.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for range n {
		if _, err := out.Write(contentAt(0, 60)); err != nil {
			t.Fatal(err)
		}
		if got, _, err := in.ReadFrom(buf); err != nil || string(buf[:got]) != string(contentAt(0, 60)) {
			t.Fatalf("read %d bytes of EE: %v", got, err)
		}
	}
}

func testHold(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.apply()
	hold := model.Hold{Timeout: 150 * time.Microsecond, DeferCount: 3}
	err := r.a.SetHold(model.BulkData, hold)
	if !s.Can.Hold {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("SetHold: %v, want errors.ErrUnsupported", err)
		}
		if !strings.Contains(strings.Join(r.a.Cannot(), "\n"), "hold") {
			t.Errorf("Cannot does not say that queues cannot be held: %q", r.a.Cannot())
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range r.queues() {
		want := model.Hold{}
		if q.ID == model.BulkData {
			want = hold
		}
		if q.Shares == 0 && q.Hold != want {
			t.Errorf("%v says it is held %v, want %v", q.ID, q.Hold, want)
		}
		if q.Shares == 0 && r.kernelHold(q.NAPI) != want {
			t.Errorf("the kernel holds %v %v, want %v", q.ID, r.kernelHold(q.NAPI), want)
		}
	}
	r.silent("after SetHold")
	r.good()
	r.sorts()
}

// kernelHold reads a NAPI's timers through a connection of the test's own.
func (r *rig) kernelHold(id uint32) model.Hold {
	r.t.Helper()
	c, err := napi.Dial(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	n, err := c.Get(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return n.Hold
}

func testSilent(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.apply()
	r.sorts()
	for range 10 {
		r.silent("under ordinary traffic")
	}
	if err := r.subjectHolds(); err != nil {
		t.Fatal(err)
	}
	r.silent("after a change of holds")
}
