package stack

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"xlane/internal/kernel/netns"
	"xlane/internal/model"
	policy "xlane/internal/policy/olm"
	"xlane/internal/receive"
	"xlane/internal/receive/busypoll"
	"xlane/internal/receive/sorter"
)

// olm engages busy polling on the primary queue.
type olm interface {
	// look finds what came and went.
	look(receive.Adapter) error
	// close disengages it everywhere.
	close() error
}

// olmDir is where it is recorded who polls: one for the host, wherever a daemon
// keeps its own record, because an application belongs to no daemon.
var olmDir = filepath.Join(StateDir, "olm")

// olmLookLeast is the shortest time between two looks: the policy compares what
// the queues carried, and less time carries too little to say anything.
const olmLookLeast = 400 * time.Millisecond

// poller drives busy polling on one device's primary queue: its counters go to
// policy/olm, and what that says goes to receive/busypoll.
type poller struct {
	engager *busypoll.Engager
	log     *slog.Logger
	clock   func() time.Time

	state    policy.State
	last     map[model.QueueID]receive.Reading
	lastAt   time.Time
	engaged  bool
	troubled string
}

// newOLM returns nil, having said why, when busy polling is not possible here:
// the queues are sorted and held as well without it.
func newOLM(ns *netns.Handle, log *slog.Logger) olm {
	engager, err := busypoll.Open(busypoll.Config{NS: ns, RecordDir: olmDir})
	if err != nil {
		log.Warn("optimized latency mode is off", "error", err)
		return nil
	}
	return &poller{engager: engager, log: log, clock: time.Now}
}

// look never fails: an application that cannot be engaged is no trouble of the
// device's. It is said once.
func (p *poller) look(a receive.Adapter) error {
	err := p.step(a)
	what := ""
	if err != nil {
		what = err.Error()
	}
	if what != p.troubled && what != "" {
		p.log.Warn("nobody polls the primary queue", "error", err)
	}
	p.troubled = what
	return nil
}

func (p *poller) step(a receive.Adapter) error {
	now := p.clock()
	if !p.lastAt.IsZero() && now.Sub(p.lastAt) < olmLookLeast {
		return nil
	}
	o, err := p.observe(a, now)
	if err != nil {
		return err
	}
	napi, err := primaryNAPI(a)
	if err != nil {
		return err
	}
	var d policy.Decision
	p.state, d = policy.Step(p.state, o, time.Duration(now.UnixNano()))
	if d.Why != "" {
		p.log.Info("optimized latency mode", "polling", d.Want.String(), "why", d.Why)
	}
	view := busypoll.View{NAPI: napi, Bulk: bulkOf(a.Sorter())}
	switch {
	case napi == 0: // the adapter has no polling instance of its own now
	case d.Want == policy.On:
		view.Mode = busypoll.On
	case d.Want == policy.Paused:
		view.Mode = busypoll.Paused
	}
	r, err := p.engager.Look(view)
	for _, e := range r.Events {
		p.log.Info("optimized latency mode", "application", e)
	}
	p.engaged = r.Engaged
	return err
}

// observe says what the queues carried since the last look.
func (p *poller) observe(a receive.Adapter, now time.Time) (policy.Observation, error) {
	readings, err := a.Read()
	if err != nil {
		return policy.Observation{}, err
	}
	o := policy.Observation{Engaged: p.engaged}
	if !p.lastAt.IsZero() {
		o.Interval = now.Sub(p.lastAt)
	}
	next := make(map[model.QueueID]receive.Reading, len(readings))
	for _, r := range readings {
		next[r.ID] = r
		switch r.ID {
		case model.Primary:
			o.Packets = r.Packets - p.last[r.ID].Packets
		case model.BulkData:
			o.BulkBytes = r.Bytes - p.last[r.ID].Bytes
		}
	}
	p.last, p.lastAt = next, now
	return o, nil
}

// primaryNAPI returns zero when the primary queue has none.
func primaryNAPI(a receive.Adapter) (uint32, error) {
	queues, err := a.Queues()
	if err != nil {
		return 0, err
	}
	for _, q := range queues {
		if q.ID == model.Primary {
			return q.NAPI, nil
		}
	}
	return 0, nil
}

// bulkOf lists the connections that are on BULKDATA, or on their way there.
func bulkOf(s *sorter.Sorter) func(func(local, remote netip.AddrPort) bool) error {
	if s == nil {
		return nil
	}
	return func(yield func(local, remote netip.AddrPort) bool) error {
		return s.Flows(true, func(f sorter.Flow) bool { return yield(f.Local, f.Remote) })
	}
}

// counts is for displays.
func (p *poller) counts() busypoll.Counts { return p.engager.Counts() }

// close puts every application's own setting back.
func (p *poller) close() error { return p.engager.Close() }

// undoOLM puts back what daemons set that are no longer running. It returns
// how many applications that were.
func undoOLM() (int, error) { return busypoll.Undo(olmDir) }
