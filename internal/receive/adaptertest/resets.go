package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xlink "github.com/cilium/ebpf/link"

	"xlane/internal/kernel/napi"
	"xlane/internal/lab"
	"xlane/internal/model"
	"xlane/internal/receive"
	"xlane/internal/testenv"
)

// disturbance is one way to upset an adapter.
type disturbance struct {
	what Disturbance
	// reported: the kernel says so, and Watch must call back where Check minds.
	reported bool
	// down: between its two halves Check must say ErrDown.
	down bool
	do   func(*rig)
	// then is the second half, where there is one.
	then func(*rig)
}

var disturbances = []disturbance{
	{what: DeviceDownUp, reported: true, down: true,
		do:   func(r *rig) { r.run(&r.host.Node, "ip", "link", "set", r.host.Dev, "down") },
		then: func(r *rig) { r.run(&r.host.Node, "ip", "link", "set", r.host.Dev, "up") }},
	{what: FarDownUp, reported: true, down: true,
		do:   func(r *rig) { r.run(&r.lab.Wire.Node, "ip", "link", "set", r.host.FarDev, "down") },
		then: func(r *rig) { r.run(&r.lab.Wire.Node, "ip", "link", "set", r.host.FarDev, "up") }},
	{what: GROToggled, reported: true,
		do: func(r *rig) {
			r.run(&r.host.Node, "ethtool", "-K", r.host.Dev, "gro", "off")
			r.run(&r.host.Node, "ethtool", "-K", r.host.Dev, "gro", "on")
		}},
	{what: ChannelsChanged, reported: true,
		do: func(r *rig) {
			r.run(&r.lab.Wire.Node, "ethtool", "-L", r.host.FarDev, "tx", "1")
			r.run(&r.host.Node, "ethtool", "-L", r.host.Dev, "rx", "1")
		}},
	{what: FarTSOOn, reported: true,
		do: func(r *rig) {
			// XDP in the driver forbids it, which is as good.
			r.run(&r.lab.Wire.Node, "sh", "-c", "ethtool -K "+r.host.FarDev+" tso on || true")
		}},
	{what: FarChecksumOn, reported: true,
		do: func(r *rig) { r.run(&r.lab.Wire.Node, "ethtool", "-K", r.host.FarDev, "tx", "on") }},
	{what: FarXPSSet,
		do: func(r *rig) {
			r.run(&r.lab.Wire.Node, "sh", "-c", fmt.Sprintf("echo 3 > /sys/class/net/%s/queues/tx-0/xps_cpus", r.host.FarDev))
		}},
	{what: TimersReset, do: resetTimers},
	{what: ProgramDetached, do: detachEach},
	{what: FarMoved, reported: true, do: moveFar, then: joinFar},
}

// detachEach takes each program off by force, as another program may, except
// the last, which the caller finds missing.
func detachEach(r *rig) {
	r.t.Helper()
	pins, err := filepath.Glob(filepath.Join(r.spec.PinDir, "link_*"))
	if err != nil || len(pins) < 3 {
		r.t.Fatalf("%d programs are pinned, want three or more: %v", len(pins), err)
	}
	for i, path := range pins {
		if i > 0 {
			r.good()
		}
		l, err := xlink.LoadPinnedLink(path, nil)
		if err != nil {
			r.t.Fatalf("open %s: %v", filepath.Base(path), err)
		}
		if err := l.Detach(); err != nil {
			r.t.Fatalf("detach %s: %v", filepath.Base(path), err)
		}
		l.Close()
		r.noticed(filepath.Base(path) + " was detached")
	}
}

func resetTimers(r *rig) {
	r.t.Helper()
	c, err := napi.Dial(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	for _, q := range r.queues() {
		if q.ID == model.BulkData && q.NAPI != 0 {
			if err := c.SetHold(q.NAPI, model.Hold{}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// moveFar moves the far end to a namespace of its own, joined to the wire's
// bridge by nothing: joinFar brings it back there.
func moveFar(r *rig) {
	r.t.Helper()
	h, err := r.lab.AddHost("elsewhere", lab.LinkSpec{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.run(&r.lab.Wire.Node, "ip", "link", "set", r.host.FarDev, "netns", h.NetNSPath)
	r.run(&h.Node, "ip", "link", "set", r.host.FarDev, "up")
}

// joinFar bridges the moved far end to the wire, so that frames flow again.
func joinFar(r *rig) {
	r.t.Helper()
	h := r.lab.Hosts()[len(r.lab.Hosts())-1]
	r.run(&h.Node, "ip", "link", "add", "join", "type", "bridge")
	r.run(&h.Node, "ip", "link", "set", r.host.FarDev, "master", "join")
	r.run(&h.Node, "ip", "link", "set", h.Dev, "master", "join")
	r.run(&h.Node, "ip", "link", "set", "join", "up")
}

// noticed waits until Check says that something is amiss.
func (r *rig) noticed(what string) {
	r.t.Helper()
	testenv.Eventually(r.t, patience, "Check notices: "+what, func() bool {
		drift, err := r.a.Check()
		return err != nil || len(drift) > 0
	})
}

func (r *rig) queues() []receive.Queue {
	r.t.Helper()
	q, err := r.a.Queues()
	if err != nil {
		r.t.Fatal(err)
	}
	return q
}

// subjectHolds holds bulk, where the adapter can.
func (r *rig) subjectHolds() error {
	if !r.subject.Can.Hold {
		return nil
	}
	return r.a.SetHold(model.BulkData, model.Hold{Timeout: 100 * time.Microsecond, DeferCount: 2})
}

func testDisturbance(t *testing.T, s Subject, d disturbance) {
	if d.what == TimersReset && !s.Can.Hold {
		t.Logf("%s has no timers", s.Name)
		return
	}
	r := newRig(t, s, Link{})
	if d.what == ProgramDetached {
		r.pin()
	}
	r.apply()
	if err := r.subjectHolds(); err != nil {
		t.Fatal(err)
	}
	told := r.watch()
	r.silent("before anything happens")
	d.do(r)
	if d.down {
		testenv.Eventually(t, patience, "Check says that the device is down", func() bool {
			_, err := r.a.Check()
			return errors.Is(err, receive.ErrDown)
		})
	} else if s.minds(d.what) {
		r.noticed(string(d.what))
	}
	if d.then != nil {
		d.then(r)
	}
	if d.reported && (d.down || s.minds(d.what)) {
		testenv.Eventually(t, patience, "Watch calls back", func() bool { return told.Load() > 0 })
	}
	r.good()
	if s.Can.Hold {
		for _, q := range r.queues() {
			if q.ID == model.BulkData && q.Hold.Timeout != 100*time.Microsecond {
				t.Errorf("BULKDATA is held %v after Apply, want 100µs", q.Hold.Timeout)
			}
		}
	}
	r.sorts()
}

// watch follows the device until the test ends. It returns once the
// subscription stands: an address change of the test's own is seen, or the
// device is touched until one is.
func (r *rig) watch() *atomic.Int64 {
	r.t.Helper()
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.a.Watch(ctx, func(string) { calls.Add(1) }) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("watch: %v", err)
		}
	})
	// Toggling an alias is a change that harms nobody.
	n := 0
	testenv.Eventually(r.t, patience, "the watch begins", func() bool {
		n++
		r.run(&r.host.Node, "ip", "link", "set", r.host.Dev, "alias", fmt.Sprintf("watched-%d", n))
		return calls.Load() > 0
	})
	r.run(&r.host.Node, "ip", "link", "set", r.host.Dev, "alias", "")
	calls.Store(0)
	return &calls
}

func testDownAtStart(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.run(&r.host.Node, "ip", "link", "set", r.host.Dev, "down")
	before := r.both()
	_, err := s.New(r.spec)
	if !errors.Is(err, receive.ErrDown) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a device that is down: %v, want one sentence that wraps ErrDown", err)
	}
	if d := difference(before, r.both()); d != "" {
		t.Errorf("something was changed:\n%s", d)
	}
}

func testDeleted(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.apply()
	r.run(&r.host.Node, "ip", "link", "delete", r.host.Dev)
	r.gone()
}

// gone fails the test unless the adapter says that it cannot come back, and
// lets itself be taken away.
func (r *rig) gone() {
	r.t.Helper()
	if _, err := r.a.Check(); !errors.Is(err, receive.ErrGone) {
		r.t.Errorf("Check: %v, want ErrGone", err)
	}
	if err := r.a.Apply(context.Background()); !errors.Is(err, receive.ErrGone) {
		r.t.Errorf("Apply: %v, want ErrGone", err)
	}
	if _, err := r.a.Read(); !errors.Is(err, receive.ErrGone) {
		r.t.Errorf("Read: %v, want ErrGone", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.a.Drain(ctx); err != nil {
		r.t.Errorf("Drain: %v", err)
	}
	if err := r.a.Detach(); err != nil {
		r.t.Errorf("Detach: %v", err)
	}
	r.a.Close()
	if err := r.journal.undo(r.ns, r.wire); err != nil {
		r.t.Errorf("undo: %v", err)
	}
}

// testNamespaceVanishes removes the host with all that holds its namespace but
// the adapter: the lab deletes the link, which is all that is left to see.
func testNamespaceVanishes(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.apply()
	if err := r.lab.Close(); err != nil {
		t.Fatal(err)
	}
	r.gone()
}

// testFarVanishes has the far end in a namespace that goes away, and takes the
// link with it: at once, or when the adapter lets go of the namespace.
func testFarVanishes(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	brief, err := lab.New(context.Background(), lab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { brief.Close() })
	r.run(&r.lab.Wire.Node, "ip", "link", "set", r.host.FarDev, "netns", brief.Wire.NetNSPath)
	r.run(&brief.Wire.Node, "ip", "link", "set", r.host.FarDev, "up")
	testenv.Eventually(t, patience, "the link carries", func() bool {
		return strings.Contains(r.run(&r.host.Node, "ip", "link", "show", r.host.Dev), "LOWER_UP")
	})
	r.apply()
	if err := brief.Close(); err != nil {
		t.Fatal(err)
	}
	if drift, err := r.a.Check(); err != nil && !errors.Is(err, receive.ErrGone) {
		t.Errorf("Check: %q, %v, want nothing or ErrGone", drift, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := errors.Join(r.a.Drain(ctx), r.a.Detach()); err != nil {
		t.Errorf("drain and detach: %v", err)
	}
	r.a.Close()
	if err := r.journal.undo(r.ns, r.wire); err != nil {
		t.Errorf("undo: %v", err)
	}
	testenv.Eventually(t, patience, "the device went with its far end's namespace", func() bool {
		return !strings.Contains(r.run(&r.host.Node, "ip", "-o", "link"), r.host.Dev+"@")
	})
}

func testNoDevice(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.spec.Device = "nosuch0"
	_, err := s.New(r.spec)
	if !errors.Is(err, receive.ErrGone) || !strings.Contains(err.Error(), `"nosuch0"`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("no such device: %v, want one sentence with its name that wraps ErrGone", err)
	}
}
