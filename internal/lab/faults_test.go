package lab

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xlane/internal/testenv"
)

func TestLaneQueueKeepsOrder(t *testing.T) {
	t.Parallel()
	const always = 1 << 32
	for _, c := range []struct {
		name     string
		settings laneSettings
		held     int // of 1000 frames; -1: some but not all
		latest   time.Duration
	}{
		{"a delay holds every frame alike", laneSettings{delay: 5 * time.Millisecond, all: true}, 0, 5 * time.Millisecond},
		{"jitter never lets a frame overtake", laneSettings{delay: 5 * time.Millisecond, jitter: 5 * time.Millisecond, seed: 3, all: true}, 0, 10 * time.Millisecond},
		{"the longest times do not overflow", laneSettings{delay: laneTimeMax / 2, jitter: laneTimeMax / 2, seed: 4, all: true}, 0, laneTimeMax},
		{"without a delay only chosen frames come, and all are held", laneSettings{hold: time.Millisecond, reorder: 7}, 1000, time.Millisecond},
		{"with a delay the lane chooses", laneSettings{delay: time.Millisecond, hold: time.Millisecond, reorder: always / 4, seed: 5, all: true}, -1, 2 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			const frames, gap = 1000, 10 * time.Microsecond
			var q laneQueue
			held := make([]bool, frames)
			came := make([]time.Duration, frames)
			earliest := c.settings.delay - c.settings.jitter
			lastOrdered, lastHeld, count := -1, -1, 0
			now := time.Duration(0)
			takeDue := func() {
				for frame := q.due(now); frame != nil; frame = q.due(now) {
					n := int(binary.BigEndian.Uint16(frame))
					count++
					if wait := now - came[n]; wait < earliest || wait > c.latest+gap {
						t.Errorf("frame %d waits %v, want %v to %v", n, wait, earliest, c.latest)
					}
					last := &lastOrdered
					if held[n] {
						last = &lastHeld
					}
					if n <= *last {
						t.Errorf("frame %d overtook frame %d of its line", n, *last)
					}
					*last = n
				}
			}
			for n := range frames {
				now += gap
				came[n] = now
				held[n] = q.admit(binary.BigEndian.AppendUint16(nil, uint16(n)), now, &c.settings)
				takeDue()
			}
			for next, ok := q.next(); ok; next, ok = q.next() {
				now = max(now, next)
				takeDue()
			}
			total := 0
			for _, isHeld := range held {
				if isHeld {
					total++
				}
			}
			if count != frames {
				t.Errorf("%d of %d frames came out", count, frames)
			}
			if total != c.held && (c.held >= 0 || total == 0 || total == frames) {
				t.Errorf("%d frames were held back, want %d", total, c.held)
			}
		})
	}
}

func TestFaultsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		spec LinkSpec
	}{
		{"a negative loss", LinkSpec{In: Path{Faults: Faults{Loss: -0.1}}}},
		{"a loss above 1", LinkSpec{In: Path{Faults: Faults{Loss: 1.1}}}},
		{"a loss that is no number", LinkSpec{Out: Path{Faults: Faults{Loss: math.NaN()}}}},
		{"a reordering above 1", LinkSpec{Out: Path{Faults: Faults{Reorder: 2}}}},
		{"a negative delay", LinkSpec{Out: Path{Faults: Faults{Delay: -1}}}},
		{"jitter above the delay", LinkSpec{Out: Path{Faults: Faults{Delay: 1, Jitter: 2}}}},
		{"a delay of a minute", LinkSpec{Out: Path{Faults: Faults{Delay: time.Minute}}}},
		{"a rate of one bit per second", LinkSpec{Out: Path{RateBPS: 1}}},
		{"a rate above what HTB can say", LinkSpec{In: Path{RateBPS: 1e11}}},
		{"a negative number of queues", LinkSpec{Queues: -1}},
		{"more queues than the limit", LinkSpec{Queues: queuesMax + 1}},
		{"an MTU too small for IPv6", LinkSpec{MTU: 1279}},
		{"an MTU too large for a veth", LinkSpec{MTU: 65536}},
		{"a plain veth with queues", LinkSpec{PlainVeth: true, Queues: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.spec.withDefaults(); err == nil {
				t.Errorf("%+v was taken", c.spec)
			}
		})
	}
}

// probe is a UDP flow from one host to another whose datagrams are numbered.
type probe struct {
	conn net.Conn
	sink *net.UDPConn
}

// newProbe opens a flow, and sends one datagram so that addresses are resolved.
func newProbe(t *testing.T, from, to *Host, addr netip.Addr) *probe {
	t.Helper()
	p := &probe{}
	err := to.Do(func() (err error) {
		p.sink, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.sink.Close() })
	// The receiver must never be the one that loses datagrams.
	raw, err := p.sink.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.conn = dial(t, from, "udp", p.sink.LocalAddr())
	p.send(t, 0)
	if got := p.receive(t, 1); len(got) != 1 {
		t.Fatal("the first datagram did not arrive")
	}
	return p
}

// sendAll sends datagrams 0 to count-1 from one CPU: a sender that moves leaves
// frames in the backlog of the CPU where it was, which reorders on its own.
func (p *probe) sendAll(t *testing.T, count int) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	for n := range uint32(count) {
		p.send(t, n)
	}
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
}

func (p *probe) send(t *testing.T, number uint32) {
	t.Helper()
	if _, err := p.conn.Write(binary.BigEndian.AppendUint32(nil, number)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the numbers of the next count datagrams as they arrive.
func (p *probe) receive(t *testing.T, count int) []uint32 {
	t.Helper()
	var got []uint32
	buf := make([]byte, 16)
	for len(got) < count {
		if err := p.sink.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := p.sink.Read(buf)
		if err != nil || n != 4 {
			t.Fatalf("read datagram %d of %d: %d bytes, %v", len(got)+1, count, n, err)
		}
		got = append(got, binary.BigEndian.Uint32(buf))
	}
	return got
}

func stats(t *testing.T, h *Host, d Direction) FaultStats {
	t.Helper()
	s, err := h.FaultStats(d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLossIsCountedAndRepeats(t *testing.T) {
	t.Parallel()
	_, hosts := newLab(t, LinkSpec{}, "client", "server")
	client, server := hosts[0], hosts[1]
	const sent = 2000
	for _, c := range []struct {
		name string
		host *Host
		way  Direction
		addr netip.Addr
		loss Faults
	}{
		{"on the way out, IPv4", client, Out, server.Addr4, Faults{Loss: 0.1, Seed: 1}},
		{"on the way in, IPv6", server, In, server.Addr6, Faults{Loss: 0.01, Seed: 2}},
		{"all", client, Out, server.Addr6, Faults{Loss: 1, Seed: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProbe(t, client, server, c.addr)
			var want []uint32
			for n := range uint32(sent) {
				if !c.loss.Loses(uint64(n)) {
					want = append(want, n)
				}
			}
			for _, run := range []string{"the first run", "the same again"} {
				if err := c.host.SetFaults(c.way, c.loss); err != nil {
					t.Fatal(err)
				}
				before := stats(t, c.host, c.way)
				p.sendAll(t, sent)
				if got := p.receive(t, len(want)); !slices.Equal(got, want) {
					t.Errorf("%s: %d datagrams arrived, and not those that the seed leaves", run, len(got))
				}
				after := stats(t, c.host, c.way)
				if lost := after.Lost - before.Lost; lost != uint64(sent-len(want)) {
					t.Errorf("%s: %d are counted as lost, the sender misses %d", run, lost, sent-len(want))
				}
				if passed := after.Passed - before.Passed; passed != uint64(len(want)) {
					t.Errorf("%s: %d are counted as passed, %d arrived", run, passed, len(want))
				}
			}
			if err := c.host.SetFaults(c.way, Faults{}); err != nil {
				t.Fatal(err)
			}
			p.send(t, 7)
			if got := p.receive(t, 1); got[0] != 7 {
				t.Errorf("after the faults were taken away, %d arrived", got[0])
			}
		})
	}
	if s := stats(t, server, Out); s != (FaultStats{}) {
		t.Errorf("where faults were never set, the counters are %+v", s)
	}
}

func TestReorderingReorders(t *testing.T) {
	t.Parallel()
	_, hosts := newLab(t, LinkSpec{}, "client", "server")
	client, server := hosts[0], hosts[1]
	const sent = 2000
	for _, c := range []struct {
		name   string
		host   *Host
		way    Direction
		faults Faults
	}{
		{"out, chosen frames only", client, Out, Faults{Reorder: 0.05, Seed: 1}},
		{"in, chosen frames only", server, In, Faults{Reorder: 0.05, ReorderHold: 3 * time.Millisecond, Seed: 2}},
		{"in, with a delay of all", server, In, Faults{Reorder: 0.05, Delay: 2 * time.Millisecond, Jitter: time.Millisecond, Seed: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProbe(t, client, server, server.Addr4)
			if err := c.host.SetFaults(c.way, c.faults); err != nil {
				t.Fatal(err)
			}
			before := stats(t, c.host, c.way)
			p.sendAll(t, sent)
			got := p.receive(t, sent)
			after := stats(t, c.host, c.way)
			highest, late := uint32(0), uint64(0)
			for _, n := range got {
				if n < highest {
					late++
				}
				highest = max(highest, n)
			}
			held := after.Reordered - before.Reordered
			if held == 0 || held > sent/5 {
				t.Errorf("%d of %d frames were chosen, want about 100", held, sent)
			}
			if late == 0 || late > held {
				t.Errorf("%d frames came late, %d were held back", late, held)
			}
			diverted, returned := after.Diverted-before.Diverted, after.Returned-before.Returned
			if diverted != returned || after.Overflowed != 0 {
				t.Errorf("%d frames took the lane, %d came back, %d found it full", diverted, returned, after.Overflowed)
			}
			if want := map[bool]uint64{true: sent, false: held}[c.faults.Delay > 0]; diverted != want {
				t.Errorf("%d frames took the lane, want %d", diverted, want)
			}
			slices.Sort(got)
			for n, v := range got {
				if int(v) != n {
					t.Fatalf("datagram %d is missing or came twice", n)
				}
			}
			if err := c.host.SetFaults(c.way, Faults{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestDelayIsNeverShorterAndKeepsOrder(t *testing.T) {
	t.Parallel()
	_, hosts := newLab(t, LinkSpec{}, "client", "server")
	p := newProbe(t, hosts[0], hosts[1], hosts[1].Addr4)
	const delay, jitter = 20 * time.Millisecond, 5 * time.Millisecond
	if err := hosts[0].SetFaults(Out, Faults{Delay: delay, Jitter: jitter, Seed: 9}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p.sendAll(t, 500)
	p.receive(t, 1)
	if took := time.Since(start); took < delay-jitter {
		t.Errorf("the first datagram took %v, and its delay is at least %v", took, delay-jitter)
	}
	if rest := p.receive(t, 499); !slices.IsSorted(rest) {
		t.Errorf("jitter changed the order: %v", rest)
	}
}

func TestFaultsChangeWhileTrafficRuns(t *testing.T) {
	t.Parallel()
	_, hosts := newLab(t, LinkSpec{In: Path{RateBPS: 200e6}}, "client", "server")
	client, server := hosts[0], hosts[1]
	done := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		changes := []Faults{
			{Loss: 0.01, Seed: 1}, {Delay: time.Millisecond}, {}, {Reorder: 0.02, Seed: 2},
			{Loss: 0.005, Delay: 2 * time.Millisecond, Jitter: time.Millisecond, Reorder: 0.01, Seed: 3},
		}
		for n := 0; ; n++ {
			for _, way := range []Direction{In, Out} {
				if err := server.SetFaults(way, changes[n%len(changes)]); err != nil {
					failed <- err
					return
				}
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	transfer(t, client, server, server.Addr4, 4<<20)
	transfer(t, client, server, server.Addr6, 4<<20)
	close(done)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if s := stats(t, server, In); s.Lost == 0 || s.Returned == 0 || s.Overflowed != 0 {
		t.Errorf("the faults did not all happen: %+v", s)
	}
}

func TestRateLimitHolds(t *testing.T) {
	t.Parallel()
	testenv.Lab(t)
	const bps = 100_000_000
	_, hosts := newLab(t, LinkSpec{}, "client", "server")
	client, server := hosts[0], hosts[1]
	const size = 6 << 20 // half a second at that rate
	for _, c := range []struct {
		name string
		host *Host
		way  Direction
	}{{"out", client, Out}, {"in", server, In}} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.host.SetRate(c.way, bps/2); err != nil {
				t.Fatal(err)
			}
			// Setting it again changes it in place.
			if err := c.host.SetRate(c.way, bps); err != nil {
				t.Fatal(err)
			}
			took := transfer(t, client, server, server.Addr4, size)
			if got := float64(size*8) / took.Seconds(); got > 1.3*bps {
				t.Errorf("%.0f Mbit/s came through a limit of %d", got/1e6, bps/1_000_000)
			}
			for range 2 { // the second time there is nothing to take away
				if err := c.host.SetRate(c.way, 0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	transfer(t, client, server, server.Addr4, size)
}
