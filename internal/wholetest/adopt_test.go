package wholetest

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"xlane/internal/kernel/link"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/model"
	"xlane/internal/testenv"
)

// counting reports whether the sorter counts packets while no daemon runs: the
// pinned counters change.
func (p *pair) counting(t *testing.T) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(p.pinDir(t), "counters"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	read := func() []byte {
		var per [][]byte
		if err := m.Lookup(uint32(0), &per); err != nil {
			t.Fatal(err)
		}
		return bytes.Join(per, nil)
	}
	was := read()
	testenv.Eventually(t, soon, "packets to be counted without a daemon", func() bool { return !bytes.Equal(was, read()) })
}

func TestKillingAndAdoptingUnderTrafficLosesAndReordersNothing(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	d := p.daemon(t)
	p.serveAWM(t)
	server, client := counters(t, p.server), counters(t, p.client)
	udp := p.startUDP(t)
	l := p.load(t, "RR4(100/800)", "STR2(in):pace=300M")
	testenv.Eventually(t, soon, "both streams to be bulk", func() bool { return len(p.osainfo(t).Rules.Bulk) == 2 })
	for range 3 {
		p.kill(t, d)
		p.counting(t)
		d = p.daemon(t)
		d.logs(t, "msg=adopted")
	}
	if n := len(p.osainfo(t).Rules.Bulk); n != 2 {
		t.Errorf("%d bulk connections after adoption, want 2", n)
	}
	r := loaded(t, l)
	udp.finish(t)
	t.Logf("RR %.0f/s, STR %.0f MB/s", r.Classes[0].TransactionsPerS, r.Classes[1].InMBPerS)
	unmoved(t, p.server, server, "TcpExtTCPOFOQueue", "TcpRetransSegs")
	unmoved(t, p.client, client, "TcpExtTCPLostRetransmit", "TcpExtTCPSACKReorder")
	lostNothing(t, p.client, client)
	p.stop(t, d)
	same(t, "after three kills, under traffic", strings.ReplaceAll(was, "\n\n", "\n"), strings.ReplaceAll(p.state(t), "\n\n", "\n"))
}

// disturbances reset something of what the daemon set up.
var disturbances = []struct {
	name string
	do   func(*testing.T, *pair)
}{
	{"GRO switched off", func(t *testing.T, p *pair) { in(t, p.server, "ethtool", "-K", p.dev, "gro", "off") }},
	{"the far end's TSO switched on", func(t *testing.T, p *pair) { in(t, p.client, "ethtool", "-K", p.dev, "tso", "on") }},
	{"channels changed", func(t *testing.T, p *pair) {
		in(t, p.client, "ethtool", "-L", p.dev, "tx", "1")
		in(t, p.server, "ethtool", "-L", p.dev, "rx", "1")
	}},
	{"XPS set at the far end", func(t *testing.T, p *pair) {
		in(t, p.client, "sh", "-c", "echo 3 >/sys/class/net/"+p.dev+"/queues/tx-1/xps_cpus")
	}},
	{"the threads stopped", func(t *testing.T, p *pair) {
		in(t, p.server, "sh", "-c", "echo 0 >/sys/class/net/"+p.dev+"/threaded")
	}},
	{"the sorter detached", func(t *testing.T, p *pair) { p.detach(t, "link_sort") }},
	{"an observer detached", func(t *testing.T, p *pair) { p.detach(t, "link_prove") }},
	{"the device down and up", func(t *testing.T, p *pair) { p.downAndUp(t, p.server) }},
	{"the far end down and up", func(t *testing.T, p *pair) { p.downAndUp(t, p.client) }},
}

func (p *pair) downAndUp(t *testing.T, ns string) {
	t.Helper()
	run(t, "ip", "-n", ns, "link", "set", p.dev, "down")
	testenv.Eventually(t, again, "the display to say that it recovers, and why", func() bool {
		v := p.shown(t)
		return v.State == model.StateRecovering && strings.Contains(v.Reason, "down")
	})
	run(t, "ip", "-n", ns, "link", "set", p.dev, "up")
}

func TestWhatIsResetIsReapplied(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	d := p.daemon(t)
	p.serveAWM(t)
	l := p.load(t, "RR2(100/800)", "STR1(in):pace=100M")
	testenv.Eventually(t, soon, "the stream to be bulk", func() bool { return len(p.osainfo(t).Rules.Bulk) == 1 })
	applied := steady(p.state(t))
	for _, c := range disturbances {
		t.Run(c.name, func(t *testing.T) {
			c.do(t, p)
			testenv.Eventually(t, again, "it to be reapplied", func() bool {
				return p.shown(t).State == model.StateReady && steady(p.state(t)) == applied
			})
			if t.Failed() {
				same(t, c.name, applied, steady(p.state(t)))
			}
		})
	}
	t.Run("another's timers", func(t *testing.T) {
		strange := model.Hold{Timeout: 4321 * time.Microsecond, DeferCount: 9}
		p.eachNAPI(t, func(c *napi.Conn, n napi.NAPI) {
			if err := c.SetHold(n.ID, strange); err != nil {
				t.Fatal(err)
			}
		})
		testenv.Eventually(t, again, "the timers to be ours again", func() bool {
			ours := true
			p.eachNAPI(t, func(_ *napi.Conn, n napi.NAPI) { ours = ours && n.Hold != strange })
			return ours
		})
	})
	testenv.Eventually(t, soon, "the stream to be bulk again", func() bool { return len(p.osainfo(t).Rules.Bulk) == 1 })
	r := loaded(t, l)
	for _, c := range r.Classes {
		if c.Transactions == 0 && c.InMBPerS == 0 {
			t.Errorf("%s stood still", c.Spec)
		}
	}
	p.stop(t, d)
	same(t, "after all of it", was, p.state(t))
}

// steady is a state without the timers, which follow the traffic.
func steady(s string) string {
	var keep []string
	for _, l := range strings.Split(s, "\n") {
		if i := strings.Index(l, " napi "); i >= 0 {
			l = l[:i] + l[strings.Index(l, " threaded "):]
		}
		keep = append(keep, l)
	}
	return strings.Join(keep, "\n")
}

// detach takes one pinned program off behind the daemon's back.
func (p *pair) detach(t *testing.T, pin string) {
	t.Helper()
	l, err := ebpfLink(filepath.Join(p.pinDir(t), pin))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) eachNAPI(t *testing.T, f func(*napi.Conn, napi.NAPI)) {
	t.Helper()
	ns, err := netns.Open(p.server)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := napi.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.List(ifindex(t, ns, p.dev))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		f(c, n)
	}
}

func TestTheDisplaysSayWhatHappened(t *testing.T) {
	p := plain(t)
	d := p.daemon(t, "--sysdist", "10.9.0.77")
	run(t, "ip", "-n", p.server, "addr", "add", "10.9.0.77/24", "dev", p.dev)
	p.serveAWM(t)
	sent := p.farSent(t)
	was := p.osainfo(t)

	udp := p.startUDP(t)
	l := p.load(t, "RR2(100/800)", "STR2(in):pace=200M")
	testenv.Eventually(t, soon, "both streams to be bulk", func() bool { return len(p.osainfo(t).Rules.Bulk) == 2 })
	// The registered connections are the streams', as the host sees them.
	sockets := in(t, p.server, "ss", "-tnH", "state", "established")
	for _, b := range p.osainfo(t).Rules.Bulk {
		if !strings.Contains(sockets, b.Destination.String()) || !strings.Contains(sockets, b.Source.String()) {
			t.Errorf("%v to %v is registered, and no connection:\n%s", b.Source, b.Destination, sockets)
		}
	}
	loaded(t, l)
	udp.finish(t)

	// Quiet now: every packet that left the far end has been counted once.
	testenv.Eventually(t, soon, "the queues' packets to equal the link's", func() bool {
		v := p.osainfo(t)
		var queues, link uint64
		for i, q := range v.Queues {
			queues += q.Counters.Packets - was.Queues[i].Counters.Packets
		}
		link = p.farSent(t) - sent
		return queues > 1000 && queues == link
	})
	v := p.osainfo(t)
	if got := v.Sorter.Reasons["udp"] - was.Sorter.Reasons["udp"]; got != udp.sent.Load() {
		t.Errorf("%d datagrams are counted, %d were sent", got, udp.sent.Load())
	}
	if got, want := v.Queues[1].Counters.Packets, v.Sorter.Reasons["bulk"]; got < want {
		t.Errorf("BULKDATA counts %d packets, of which %d were bulk", got, want)
	}
	if len(v.Rules.SysDist) != 1 || v.Rules.SysDist[0].String() != "10.9.0.77" {
		t.Errorf("distributed addresses: %v", v.Rules.SysDist)
	}
	p.stop(t, d)
}

// farSent is how many packets the far end has put on the link.
func (p *pair) farSent(t *testing.T) uint64 {
	t.Helper()
	ns, err := netns.Open(p.client)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := link.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.ByName(p.dev)
	if err != nil {
		t.Fatal(err)
	}
	return l.Stats.TxPackets
}
