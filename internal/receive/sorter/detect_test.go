package sorter

import (
	"fmt"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

const mss = 1448

// stream delivers n bytes of the remote's payload in full segments.
func (r *rig) stream(c *conn, n int) {
	r.t.Helper()
	for ; n > 0; n -= mss {
		r.deliver(c.in(min(n, mss)))
	}
}

// host is the host's side of a connection: what it has sent.
type host struct {
	r   *rig
	c   *conn
	end uint32
}

func (r *rig) host(c *conn) *host { return &host{r, c, c.ack} }

// reply sends n bytes in segments; the remote has not seen them yet.
func (h *host) reply(n int) {
	for ; n > 0; n -= mss {
		size := min(n, mss)
		h.r.turn(h.c.out(size, h.end))
		h.end += uint32(size)
	}
}

// seen lets the remote's next packets acknowledge everything sent so far.
func (h *host) seen() { h.c.ack = h.end }

// transact is one request and its whole reply.
func (h *host) transact(in, out int) {
	h.r.t.Helper()
	h.r.stream(h.c, in)
	h.reply(out)
	h.seen()
	if out > 2*mss { // the remote acknowledges a long reply before it asks again
		h.r.deliver(h.c.in(0))
	}
}

func (r *rig) wantBulk(want bool, found uint64) {
	r.t.Helper()
	c := r.counters()
	if c.Event["registered"] != found {
		r.t.Errorf("%d connections were registered as bulk, want %d", c.Event["registered"], found)
	}
	if got := r.state().Registered == 1; got != want {
		r.t.Errorf("registered now: %v, want %v", got, want)
	}
}

// TestBPFWhatIsNotBulk and TestBPFWhatIsBulk are the two lists of the issue.
func TestBPFWhatIsNotBulk(t *testing.T) {
	rr := func(in, out, times int) func(*rig) {
		return func(r *rig) {
			h := r.host(newConn(r.t, client4, server4))
			for i := 0; i < times; i++ {
				h.transact(in, out)
			}
		}
	}
	cases := map[string]func(*rig){
		"RR 100/800":                   rr(100, 800, 3000),
		"RR 1/1":                       rr(1, 1, 3000),
		"RR 64 KB/100":                 rr(65536, 100, 50),
		"RR 64 KB/1":                   rr(65536, 1, 50),
		"RR of exactly one segment":    rr(mss, 10, 500),
		"RR of exactly forty segments": rr(40*mss, 10, 50),
		"RR 1000/32000":                rr(1000, 32000, 300),
		"RR 1/1 MB replies":            rr(1, 1_000_000, 5),
		"RR just below the threshold":  rr(179_000, 100, 10),
		"TLS handshake, then small requests": func(r *rig) {
			h := r.host(newConn(r.t, client4, server4))
			h.transact(517, 4000)
			h.transact(80, 250)
			rrOn(h, 300, 1200, 300)
		},
		"a reply that was lost and asked again": func(r *rig) {
			c := newConn(r.t, client4, server4)
			h := r.host(c)
			for i := 0; i < 100; i++ {
				r.stream(c, 60_000)
				h.reply(100)
				again := *c // the remote repeats its last segment without having seen the reply
				again.seq -= mss
				r.deliver(again.in(mss))
				h.seen()
			}
		},
		"keepalives": func(r *rig) {
			c := newConn(r.t, client4, server4)
			r.deliver(c.in(1000))
			for i := 0; i < 2000; i++ { // one byte before the window, as Linux sends them
				r.deliver(c.packet(true, &layers.TCP{Seq: c.seq - 1, Ack: c.ack, ACK: true}, 0))
			}
		},
		"a SYN flood": func(r *rig) {
			for i := 0; i < 2000; i++ {
				c := newConn(r.t, fmt.Sprintf("10.9.%d.%d:%d", i/250, i%250+1, 1024+i), server4)
				r.sort(c.packet(true, &layers.TCP{Seq: 1, SYN: true}, 0))
			}
		},
		"a port scan": func(r *rig) {
			for i := 0; i < 2000; i++ {
				c := newConn(r.t, client4, fmt.Sprintf("10.0.0.2:%d", i+1))
				r.sort(c.packet(true, &layers.TCP{Seq: 1, SYN: true}, 0))
				r.sort(c.packet(true, &layers.TCP{Seq: 2, RST: true}, 0))
			}
		},
		"CRR 64/8192": func(r *rig) {
			for i := 0; i < 300; i++ {
				c := newConn(r.t, fmt.Sprintf("10.0.0.1:%d", 10000+i), server4)
				r.sort(c.packet(true, &layers.TCP{Seq: 999, SYN: true}, 0))
				h := r.host(c)
				h.transact(64, 8192)
				r.deliver(c.packet(true, &layers.TCP{Seq: c.seq, Ack: c.ack, ACK: true, FIN: true}, 0))
			}
		},
		"a download": func(r *rig) {
			c := newConn(r.t, client4, server4)
			h := r.host(c)
			h.transact(100, 0)
			for i := 0; i < 500; i++ {
				h.reply(10 * mss)
				h.seen()
				r.deliver(c.in(0))
			}
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			play(r)
			r.wantBulk(false, 0)
			if n := r.counters().Packets[model.BulkData]; n != 0 {
				t.Errorf("%d packets went to BULKDATA", n)
			}
		})
	}
}

func rrOn(h *host, in, out, times int) {
	for i := 0; i < times; i++ {
		h.transact(in, out)
	}
}

func TestBPFWhatIsBulk(t *testing.T) {
	with := func(tags []uint16, remote, local string) func(*rig) {
		return func(r *rig) { c := newConn(r.t, remote, local); c.tags = tags; r.stream(c, 300_000) }
	}
	cases := map[string]func(*rig){
		"a stream":               with(nil, client4, server4),
		"a stream over IPv6":     with(nil, client6, server6),
		"a stream with one tag":  with([]uint16{5}, client4, server4),
		"a stream with two tags": with([]uint16{5, 6}, client6, server6),
		"an upload after a request": func(r *rig) {
			c := newConn(r.t, client4, server4)
			h := r.host(c)
			h.transact(200, 25)
			r.stream(c, 300_000)
		},
		"an rsync-like stream with small acknowledgements": func(r *rig) {
			c := newConn(r.t, client4, server4)
			h := r.host(c)
			for i := 0; i < 30; i++ {
				r.stream(c, 16*1024)
				h.reply(40) // while the stream goes on: the peer did not wait
				r.stream(c, 16*1024)
				h.seen()
			}
		},
		"bulk in both directions at once": func(r *rig) {
			c := newConn(r.t, client4, server4)
			h := r.host(c)
			for i := 0; i < 300; i++ {
				h.reply(2 * mss)
				r.stream(c, mss) // has not seen the last two
				c.ack = h.end - mss
			}
		},
		"a stream after a long chat": func(r *rig) {
			c := newConn(r.t, client4, server4)
			h := r.host(c)
			rrOn(h, 120, 900, 2000)
			r.stream(c, 300_000)
		},
		"STR 20 MB/1, request after request": func(r *rig) {
			h := r.host(newConn(r.t, client4, server4))
			for i := 0; i < 6; i++ {
				h.transact(2_000_000, 1)
			}
		},
		"an upload in small chunks": func(r *rig) { // the sender does not wait, so there is no turn
			c := newConn(r.t, client4, server4)
			for i := 0; i < 400; i++ {
				r.deliver(c.in(700))
			}
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			play(r)
			r.wantBulk(true, 1)
			f := r.flow()
			if !f.Bulk || f.Queue != model.BulkData {
				t.Errorf("the connection is on %v, bulk %v", f.Queue, f.Bulk)
			}
			if f.FoundBytes < 180_000 || f.FoundBytes > 256_000 || f.MovedBytes > 256_000 {
				t.Errorf("found after %d bytes, moved after %d; want 180,000 to 256,000", f.FoundBytes, f.MovedBytes)
			}
		})
	}
}

func TestBPFAConnectionThatTurnsInteractiveGoesHome(t *testing.T) {
	r := newRig(t, Config{})
	c := newConn(t, client4, server4)
	h := r.host(c)
	h.transact(400_000, 100)
	r.wantBulk(true, 1)
	rrOn(h, 100, 800, 3)
	r.wantBulk(true, 1) // three short runs are not enough
	rrOn(h, 100, 800, 4)
	r.wantBulk(false, 1)
	if f := r.flow(); f.Queue != model.Primary || f.Pending {
		t.Errorf("the connection is on %v, pending %v; want PRIMARY", f.Queue, f.Pending)
	}
	if n := r.counters().Event["released_turned"]; n != 1 {
		t.Errorf("released_turned = %d, want 1", n)
	}
	r.stream(c, 400_000)
	r.wantBulk(true, 2)
}

func TestBPFABulkConnectionThatFallsSilentIsReleased(t *testing.T) {
	r := newRig(t, Config{Silence: 50 * time.Millisecond, Window: 50 * time.Millisecond, Pause: 20 * time.Millisecond, Forget: 10 * time.Second})
	c := newConn(t, client4, server4)
	r.stream(c, 400_000)
	r.wantBulk(true, 1)
	testenv.Eventually(t, 5*time.Second, "the sweeper releases it", func() bool {
		if err := r.s.Sweep(); err != nil {
			t.Fatal(err)
		}
		return r.state().Registered == 0
	})
	r.deliver(c.in(100)) // its next packet, after the pause, goes to PRIMARY at once
	if f := r.flow(); f.Queue != model.Primary {
		t.Errorf("the connection is on %v, want PRIMARY", f.Queue)
	}
	if n := r.counters().Event["moved_paused"]; n != 1 {
		t.Errorf("moved_paused = %d, want 1", n)
	}
}

func TestBPFTheSweeperForgetsIdleConnections(t *testing.T) {
	r := newRig(t, Config{Silence: 20 * time.Millisecond, Forget: 40 * time.Millisecond})
	r.deliver(newConn(t, client4, server4).in(100))
	r.deliver(newConn(t, client6, server6).in(100))
	if n := r.state().Tracked; n != 2 {
		t.Fatalf("%d connections tracked, want 2", n)
	}
	testenv.Eventually(t, 5*time.Second, "the table is empty", func() bool {
		if err := r.s.Sweep(); err != nil {
			t.Fatal(err)
		}
		return r.state().Tracked == 0
	})
}

func TestBPFAFloodCannotPushOutBulk(t *testing.T) {
	r := newRig(t, Config{FlowsMax: 64, BulkMax: 16})
	var bulk []*conn
	for i := 0; i < 4; i++ {
		c := newConn(t, fmt.Sprintf("10.0.0.1:%d", 40000+i), server4)
		bulk = append(bulk, c)
		r.stream(c, 200_000)
	}
	if n := r.state().Registered; n != 4 {
		t.Fatalf("%d registered, want 4", n)
	}
	late := newConn(t, "10.0.0.1:50000", server4)
	for i := 0; i < 5000; i++ {
		r.deliver(newConn(t, fmt.Sprintf("10.8.%d.%d:%d", i/250, i%250+1, 1024+i), server4).in(mss))
		if i%20 == 0 { // a stream that begins in the middle of the flood is found all the same
			r.deliver(late.in(mss))
		}
	}
	st := r.state()
	if st.Tracked > 64 {
		t.Errorf("%d connections tracked, the table holds 64", st.Tracked)
	}
	if st.Registered != 5 {
		t.Errorf("%d registered after the flood, want the 4 from before and the late one", st.Registered)
	}
	c := r.counters()
	if c.Event["released_silent"]+c.Event["released_closed"] != 0 {
		t.Errorf("bulk connections were released: %v", c.Event)
	}
	if c.Event["replaced"] == 0 || c.Event["tracked"] < 1000 {
		t.Errorf("the flood was not seen: %v", c.Event)
	}
	for _, b := range bulk {
		before := r.counters().Packets[model.BulkData]
		r.deliver(b.in(mss))
		if r.counters().Packets[model.BulkData] != before+1 {
			t.Errorf("%v lost its place", b.remote)
		}
	}
}

func TestBPFWhatFindsNoRoomIsCounted(t *testing.T) {
	r := newRig(t, Config{FlowsMax: 64, BulkMax: 64})
	n := 0
	for i := 0; i < 400; i++ { // only bulk connections: none may be pushed out
		c := newConn(t, fmt.Sprintf("10.0.%d.%d:%d", i/200, i%200+1, 40000), server4)
		r.stream(c, 190_000)
		n++
	}
	c, st := r.counters(), r.state()
	if c.Event["refused"] == 0 || c.Reason["tcp_refused"] == 0 {
		t.Errorf("nothing was refused: %v", c.Event)
	}
	if st.Registered > 64 || st.Tracked > 64 {
		t.Errorf("%d registered and %d tracked in a table of 64", st.Registered, st.Tracked)
	}
}

func TestBPFNoMoreThanBulkMaxAreRegistered(t *testing.T) {
	r := newRig(t, Config{FlowsMax: 256, BulkMax: 2})
	for i := 0; i < 5; i++ {
		r.stream(newConn(t, fmt.Sprintf("10.0.0.1:%d", 40000+i), server4), 400_000)
	}
	if n := r.state().Registered; n != 2 {
		t.Errorf("%d registered, want 2", n)
	}
	if r.counters().Event["register_refused"] == 0 {
		t.Error("the refusals were not counted")
	}
}

func TestBPFAConnectionThatClosesIsReleased(t *testing.T) {
	for name, flags := range map[string]*layers.TCP{"FIN": {ACK: true, FIN: true}, "RST": {RST: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			c := newConn(t, client4, server4)
			r.stream(c, 400_000)
			r.wantBulk(true, 1)
			flags.Seq, flags.Ack = c.seq, c.ack
			before := r.counters().Packets[model.BulkData]
			r.deliver(c.packet(true, flags, 0))
			if got := r.counters().Packets[model.BulkData]; got != before+1 {
				t.Error("the last packet did not follow the others on BULKDATA")
			}
			r.wantBulk(false, 1)
			// a new connection between the same ports begins on PRIMARY
			again := newConn(t, client4, server4)
			again.seq = 77
			r.deliver(again.packet(true, &layers.TCP{Seq: 76, SYN: true}, 0))
			r.deliver(again.in(100))
			if f := r.flow(); f.Queue != model.Primary || f.Bulk {
				t.Errorf("the new connection is on %v, bulk %v", f.Queue, f.Bulk)
			}
		})
	}
}

func TestBPFASpoofedSYNDoesNotMoveABulkConnection(t *testing.T) {
	r := newRig(t, Config{})
	c := newConn(t, client4, server4)
	r.stream(c, 400_000)
	r.deliver(c.packet(true, &layers.TCP{Seq: 12345, SYN: true}, 0))
	r.deliver(c.in(mss))
	if f := r.flow(); !f.Bulk || f.Queue != model.BulkData {
		t.Errorf("the connection is on %v, bulk %v", f.Queue, f.Bulk)
	}
}

func TestBPFDrainSendsEverybodyHome(t *testing.T) {
	r := newRig(t, Config{})
	c := newConn(t, client4, server4)
	r.stream(c, 400_000)
	if err := r.s.Drain(); err != nil {
		t.Fatal(err)
	}
	r.stream(c, 10*mss)
	r.wantBulk(false, 1)
	if f := r.flow(); f.Queue != model.Primary {
		t.Errorf("the connection is on %v, want PRIMARY", f.Queue)
	}
}

func TestBPFASlowTrickleIsNotBulk(t *testing.T) {
	// The window is shorter than a step of the coarse clock, so every step begins a new one.
	r := newRig(t, Config{Window: time.Nanosecond, ThresholdBytes: 5_000_000})
	c := newConn(t, client4, server4)
	for n := 0; n < 10_000_000; n += mss {
		r.deliver(c.in(mss))
	}
	r.wantBulk(false, 0)
	if r.flow().Idle > time.Minute {
		t.Error("the connection was forgotten")
	}
}
