package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xlane/internal/kernel/bpffs"
	devices "xlane/internal/kernel/link"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/netstat"
	"xlane/internal/kernel/setting"
	"xlane/internal/lab"
	"xlane/internal/model"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
	"xlane/internal/testenv"
)

// patience is how long anything may take before a test fails. Nothing takes
// nearly as long unless it never happens.
const patience = 20 * time.Second

// rig is a lab of two hosts, one of which an adapter manages.
type rig struct {
	t       *testing.T
	subject Subject
	lab     *lab.Lab
	host    *lab.Host // managed
	peer    *lab.Host // sends to it
	ns      *netns.Handle
	wire    *netns.Handle
	journal *memory
	spec    receive.Spec
	a       receive.Adapter
}

func newRig(t *testing.T, s Subject, link Link) *rig {
	t.Helper()
	l, err := lab.New(context.Background(), lab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, subject: s, lab: l, journal: &memory{}}
	for _, h := range []struct {
		name string
		host **lab.Host
	}{{"host", &r.host}, {"peer", &r.peer}} {
		if *h.host, err = l.AddHost(h.name, link.Spec); err != nil {
			t.Fatal(err)
		}
	}
	r.ns, r.wire = openNS(t, r.host.NetNSPath), openNS(t, l.Wire.NetNSPath)
	r.keepWireInOrder()
	d := sorter.DefaultConfig()
	r.spec = receive.Spec{
		NS: r.ns, Device: r.host.Dev, Sort: true, Journal: r.journal,
		Sorter: sorter.Config{EEPortFirst: d.EEPortFirst, EEPortLast: d.EEPortLast},
	}
	if link.Over != nil {
		r.spec.Device = link.Over(func(name string, args ...string) { r.run(&r.host.Node, name, args...) })
	}
	return r
}

// keepWireInOrder has one CPU receive what the peer sends: a veth without NAPI
// hands each frame to the CPU that sent it, so that a sender which changes its
// CPU, or sends from its own and from where its acknowledgements come in, is
// overtaken on the wire already. What is out of order then is the adapter's doing.
func (r *rig) keepWireInOrder() {
	r.t.Helper()
	r.run(&r.lab.Wire.Node, "sh", "-c", fmt.Sprintf("for q in /sys/class/net/%s/queues/rx-*; do echo 1 > $q/rps_cpus; done", r.peer.FarDev))
}

// apply makes the adapter and applies it; it is closed when the test ends.
func (r *rig) apply() {
	r.t.Helper()
	r.a = r.another()
	if err := r.a.Apply(context.Background()); err != nil {
		r.t.Fatalf("apply: %v", err)
	}
	r.silent("after Apply")
}

func (r *rig) another() receive.Adapter {
	r.t.Helper()
	a, err := r.subject.New(r.spec)
	if err != nil {
		r.t.Fatalf("new: %v", err)
	}
	if a.Name() != r.subject.Name {
		r.t.Errorf("the adapter is called %q, want %q", a.Name(), r.subject.Name)
	}
	r.t.Cleanup(a.Close)
	return a
}

// pins numbers the pin directories of this process.
var pins atomic.Uint32

// pin has the adapter keep its programs in a directory of this test's own.
func (r *rig) pin() {
	r.t.Helper()
	fs, err := bpffs.Ensure(bpffs.Root)
	if err != nil {
		r.t.Fatal(err)
	}
	name := fmt.Sprintf("test-%s-%d-%d", r.subject.Name, os.Getpid(), pins.Add(1))
	if r.spec.PinDir, err = fs.Locate(name); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := fs.Remove(name); err != nil {
			r.t.Error(err)
		}
	})
}

// silent fails the test when Check reports anything.
func (r *rig) silent(when string) {
	r.t.Helper()
	if drift, err := r.a.Check(); err != nil || len(drift) > 0 {
		r.t.Fatalf("%s Check says %q, error %v", when, drift, err)
	}
}

// good applies again until nothing is amiss.
func (r *rig) good() {
	r.t.Helper()
	var last string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the last state was: %s", last)
		}
	}()
	testenv.Eventually(r.t, patience, "Apply makes all good again", func() bool {
		if err := r.a.Apply(context.Background()); err != nil {
			last = err.Error()
			return false
		}
		drift, err := r.a.Check()
		last = fmt.Sprintf("%q, error %v", drift, err)
		return err == nil && len(drift) == 0
	})
}

func (r *rig) counters() sorter.Counters {
	r.t.Helper()
	c, err := r.a.Sorter().Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// reading is what the adapter itself counted on one queue's place.
func (r *rig) reading(q model.QueueID) receive.Reading {
	r.t.Helper()
	all, err := r.a.Read()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, one := range all {
		if one.ID == q {
			if !one.Known.Packets {
				r.t.Fatalf("%v is not counted", q)
			}
			return one
		}
	}
	r.t.Fatalf("there is no reading of %v: %+v", q, all)
	return receive.Reading{}
}

// queueOf is the queue of a client's connection, as the sorter has it.
func (r *rig) queueOf(c *client) (q model.QueueID) {
	r.t.Helper()
	err := r.a.Sorter().Flows(false, func(f sorter.Flow) bool {
		if f.Remote == c.local() {
			q = f.Queue
		}
		return q == 0
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return q
}

// clients connects n clients to a server on the host's IPv4 address.
func (r *rig) clients(n int) []*client {
	r.t.Helper()
	s := serve(r.t, r.host, r.host.Addr4)
	out := make([]*client, n)
	for i := range out {
		out[i] = dial(r.t, r.peer, s.ln.Addr())
	}
	return out
}

// sorts fails the test unless streams reach BULKDATA and answers are unharmed.
func (r *rig) sorts() {
	r.t.Helper()
	clients := r.clients(1)
	before := r.counters()
	was := r.reading(model.BulkData)
	together(r.t, clients, func(c *client) error { return c.alternate(5) })
	now := r.counters()
	if now.Packets[model.BulkData] == before.Packets[model.BulkData] || now.Moves() == before.Moves() {
		r.t.Errorf("no stream went to BULKDATA: %v", now.Event)
	}
	if r.reading(model.BulkData).Packets == was.Packets {
		r.t.Errorf("the sorter sent %d packets to BULKDATA, and its queue saw none", now.Packets[model.BulkData]-before.Packets[model.BulkData])
	}
}

// run runs one of the system's own tools on a node and returns what it says.
func (r *rig) run(n *lab.Node, name string, args ...string) string {
	r.t.Helper()
	testenv.Tool(r.t, name)
	var out, errs bytes.Buffer
	c := n.Command(name, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		r.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// stat reads a namespace's protocol counters.
func (r *rig) stat(ns *netns.Handle) netstat.Counters {
	r.t.Helper()
	c, err := netstat.Read(ns)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// inOrder fails the test when the host received anything out of order since
// these readings, or lost anything. What the peer sent again needlessly, because
// a busy machine was late with an acknowledgement, the host reports as received
// twice (RFC 2883): that is no loss.
func (r *rig) inOrder(hostBefore, peerBefore netstat.Counters) {
	r.t.Helper()
	peerNS := openNS(r.t, r.peer.NetNSPath)
	var lost int64
	defer func() {
		if r.t.Failed() {
			r.t.Logf("segments lost: %d; frames that the far end could not deliver: %d", lost, r.farDropped())
		}
	}()
	host := r.stat(r.ns).Since(hostBefore)
	for _, name := range []string{"TcpExtTCPOFOQueue", "TcpInErrs", "TcpInCsumErrors"} {
		if host[name] != 0 {
			r.t.Errorf("%s moved by %d, want 0", name, host[name])
		}
	}
	testenv.Eventually(r.t, patience, "nothing was lost", func() bool {
		peer := r.stat(peerNS).Since(peerBefore)
		lost = peer["TcpRetransSegs"] - peer["TcpExtTCPDSACKRecvSegs"]
		return lost <= 0
	})
}

// farDropped is what the far end of a veth counts when the ring is full.
func (r *rig) farDropped() uint64 {
	r.t.Helper()
	links, err := devices.Dial(r.wire)
	if err != nil {
		r.t.Fatal(err)
	}
	defer links.Close()
	far, err := links.ByName(r.host.FarDev)
	if err != nil {
		r.t.Fatal(err)
	}
	return far.Stats.TxDropped
}

// memory is a journal for the length of a test.
type memory struct{ settings []setting.Setting }

// Record implements setting.Journal.
func (m *memory) Record(s setting.Setting) error {
	m.settings = setting.Remember(m.settings, s)
	return nil
}

// Recorded implements setting.Journal.
func (m *memory) Recorded() []setting.Setting { return slices.Clone(m.settings) }

// undo puts everything back, last first, as the daemon does.
func (m *memory) undo(namespaces ...*netns.Handle) error {
	var errs []error
	for _, s := range slices.Backward(m.settings) {
		for _, ns := range namespaces {
			if ns.ID() != s.NS {
				continue
			}
			host, err := setting.Open(ns)
			if err != nil {
				return err
			}
			errs = append(errs, host.Undo(s))
			host.Close()
		}
	}
	return errors.Join(errs...)
}
