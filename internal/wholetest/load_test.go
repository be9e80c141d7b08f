package wholetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xlane/internal/awm"
	"xlane/internal/kernel/netns"
	"xlane/internal/testenv"
)

// serveAWM starts the modeler's server on the server.
func (p *pair) serveAWM(t *testing.T) {
	t.Helper()
	s := startIn(t, p.server, builtXlane(t), "awm", "serve", "--listen", p.addr+":5301")
	testenv.Eventually(t, soon, "awm serve to be ready", func() bool { return s.stdout.String() != "" || !s.running() })
}

// load starts a mix of workloads from the client, which goes on until loaded
// ends it.
func (p *pair) load(t *testing.T, specs ...string) *process {
	t.Helper()
	args := []string{"awm", "run", "--json", "--duration", "2m", "--warmup", "0s", p.addr + ":5301"}
	return startIn(t, p.client, builtXlane(t), append(args, specs...)...)
}

// loaded ends a load and returns its report; wrong payload, and connections
// that broke, fail the test.
func loaded(t *testing.T, l *process) awm.Report {
	t.Helper()
	l.signal(syscall.SIGINT)
	if code := l.wait(t); code != 0 {
		t.Fatalf("awm run: exit code %d: %s", code, l.stderr)
	}
	var r awm.Report // of an interrupted run, as asked
	if err := json.Unmarshal([]byte(l.stdout.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, l.stdout)
	}
	for _, c := range r.Classes {
		if c.PayloadErrors != 0 || c.Aborted != 0 {
			t.Errorf("%s: %d payload errors, %d aborted: %q", c.Spec, c.PayloadErrors, c.Aborted, r.Problems)
		}
	}
	return r
}

// udpFlow sends numbered datagrams to the server and keeps account of them.
type udpFlow struct {
	stop            chan struct{}
	ended, received chan struct{}
	sent, got       atomic.Uint64
	disorder        atomic.Uint64
}

// udpEvery is the pace of a flow: fast enough that no gap of a daemon's change
// is missed, slow enough to cost nothing.
const udpEvery = 500 * time.Microsecond

func (p *pair) startUDP(t *testing.T) *udpFlow {
	t.Helper()
	var in, out *net.UDPConn
	addr := net.UDPAddr{IP: net.ParseIP(p.addr), Port: 5400}
	inside(t, p.server, func() (err error) { in, err = net.ListenUDP("udp4", &addr); return err })
	inside(t, p.client, func() (err error) { out, err = net.DialUDP("udp4", nil, &addr); return err })
	if err := in.SetReadBuffer(8 << 20); err != nil {
		t.Fatal(err)
	}
	f := &udpFlow{stop: make(chan struct{}), ended: make(chan struct{}), received: make(chan struct{})}
	t.Cleanup(func() { in.Close(); out.Close(); <-f.received })
	go func() {
		defer close(f.received)
		buf := make([]byte, 64)
		next := uint64(0)
		for {
			if _, err := in.Read(buf); err != nil {
				return
			}
			number := binary.BigEndian.Uint64(buf)
			if number != next {
				f.disorder.Add(1)
			}
			next = number + 1
			f.got.Add(1)
		}
	}()
	go func() {
		defer close(f.ended)
		tick := time.NewTicker(udpEvery)
		defer tick.Stop()
		var buf [8]byte
		for {
			select {
			case <-f.stop:
				return
			case <-tick.C:
			}
			binary.BigEndian.PutUint64(buf[:], f.sent.Load())
			if _, err := out.Write(buf[:]); err != nil {
				return
			}
			f.sent.Add(1)
		}
	}()
	return f
}

// finish ends the flow and fails the test if a datagram was lost or overtaken.
func (f *udpFlow) finish(t *testing.T) {
	t.Helper()
	close(f.stop)
	<-f.ended
	if f.sent.Load() == 0 {
		t.Error("no datagram was sent")
	}
	testenv.Eventually(t, soon, "every datagram to arrive, in order", func() bool { return f.got.Load() == f.sent.Load() || f.disorder.Load() > 0 })
	if n := f.disorder.Load(); n > 0 {
		t.Errorf("%d gaps or overtakings in %d datagrams", n, f.sent.Load())
	}
}

// inside runs f in a namespace; sockets that it makes stay there.
func inside(t testing.TB, name string, f func() error) {
	t.Helper()
	ns, err := netns.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// unmoved fails the test when a counter of a namespace has risen.
func unmoved(t *testing.T, ns string, before map[string]int64, names ...string) {
	t.Helper()
	after := counters(t, ns)
	for _, name := range names {
		if d := after[name] - before[name]; d != 0 {
			t.Errorf("%s in %s rose by %d; all that rose: %s", name, ns, d, risen(before, after))
		}
	}
}

// lostNothing fails the test when a sender sent a segment again that had not
// arrived: one that had is answered with a duplicate SACK (RFC 2883). Those are
// the sender's impatience, which a busy machine's delays are enough for.
func lostNothing(t *testing.T, ns string, before map[string]int64) {
	t.Helper()
	var lost int64
	testenv.Eventually(t, soon, "the last answers", func() bool {
		after := counters(t, ns)
		rose := func(name string) int64 { return after[name] - before[name] }
		was := lost
		lost = rose("TcpRetransSegs") - rose("TcpExtTCPDSACKRecv") - rose("TcpExtTCPDSACKOfoRecv")
		return lost <= 0 || lost == was
	})
	if lost > 0 {
		t.Errorf("%d segments were lost; all that rose: %s", lost, risen(before, counters(t, ns)))
	}
}

// risen lists the counters of TCP that have risen.
func risen(before, after map[string]int64) string {
	var out []string
	for name, v := range after {
		if d := v - before[name]; d > 0 && strings.HasPrefix(name, "Tcp") {
			out = append(out, fmt.Sprintf("%s %d", strings.TrimPrefix(name, "TcpExt"), d))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
