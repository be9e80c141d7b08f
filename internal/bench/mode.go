package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"xlane/internal/api"
	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/model"
	"xlane/internal/policy/lanidle"
	"xlane/internal/profile"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
	"xlane/internal/receive/veth"
	"xlane/internal/stack"
)

// rssQueues is how many queues flows are hashed over: a lab link's room, and
// as many as IWQ has.
const rssQueues = 4

// compSACKDefault is net.ipv4.tcp_comp_sack_nr as Linux makes it (tcp(7)).
const compSACKDefault = "44"

// engaged is a mode at work on the server's device.
type engaged interface {
	// read counts what each queue has done since the mode began.
	read(context.Context) ([]count, error)
	// decisions are the last ones, a line each.
	decisions(context.Context) ([]string, error)
	// stop puts the device back as it was made.
	stop() error
}

// count is one queue's totals.
type count struct {
	name    string
	packets uint64
	wakes   uint64
	run     time.Duration
	hold    time.Duration
}

// engage begins a mode.
func (r *rig) engage(ctx context.Context, m Mode) (engaged, error) {
	switch m.Kind {
	case KindPlain:
		return plain{}, nil
	case KindRSS:
		return r.engageRSS(ctx, m)
	}
	return r.engageDaemon(ctx, m)
}

// plain is no mode at all: the link as the lab made it.
type plain struct{}

func (plain) read(context.Context) ([]count, error)       { return nil, nil }
func (plain) decisions(context.Context) ([]string, error) { return nil, nil }
func (plain) stop() error                                 { return nil }

// notes is a journal in memory: the lab goes with this process.
type notes struct{ list []setting.Setting }

func (n *notes) Record(s setting.Setting) error {
	n.list = setting.Remember(n.list, s)
	return nil
}

func (n *notes) Recorded() []setting.Setting { return n.list }

// undo puts everything back, last first. A hold that was changed since is the
// bench's own doing, and goes with the queues.
func (n *notes) undo(spaces ...*netns.Handle) error {
	var errs []error
	for i := len(n.list) - 1; i >= 0; i-- {
		for _, ns := range spaces {
			if ns.ID() != n.list[i].NS {
				continue
			}
			host, err := setting.Open(ns)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if err := host.Undo(n.list[i]); err != nil && !errors.Is(err, setting.ErrChangedSince) {
				errs = append(errs, err)
			}
			host.Close()
		}
	}
	return errors.Join(errs...)
}

// rss is several queues with the holds that the bench gives them. All use of the adapter is on one
// goroutine while DIM runs: read asks it.
type rss struct {
	rig     *rig
	adapter *veth.Adapter
	notes   *notes
	napis   *napi.Conn
	queues  []receive.Queue
	holds   []time.Duration
	dim     bool

	ask   chan func()
	end   chan struct{}
	ended chan struct{}
	err   error
}

func (r *rig) engageRSS(ctx context.Context, m Mode) (engaged, error) {
	s := &rss{
		rig: r, notes: &notes{}, dim: m.DIM, holds: make([]time.Duration, rssQueues),
		ask: make(chan func()), end: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	s.adapter, err = veth.New(receive.Spec{
		NS: r.serverNS, Device: r.server.Dev, Sort: m.Sort, Queues: rssQueues, CPUs: cpu.Of(r.at.server), Journal: s.notes,
	})
	if err != nil {
		return nil, err
	}
	close := func(err error) error { return errors.Join(err, s.release()) }
	if err := s.adapter.Apply(ctx); err != nil {
		return nil, close(err)
	}
	if s.queues, err = s.adapter.Queues(); err != nil {
		return nil, close(err)
	}
	if s.napis, err = napi.Dial(r.serverNS); err != nil {
		return nil, close(err)
	}
	held := lanidle.Static(model.MinLatency)
	if m.Hold > 0 {
		held = lanidle.Static(model.Balanced)
		held.Timeout = m.Hold
	}
	for i, q := range s.queues {
		hold := held
		if m.Sort && q.ID != model.BulkData {
			hold = lanidle.Static(model.MinLatency)
		}
		if err := s.setHold(i, q, hold); err != nil {
			return nil, close(err)
		}
	}
	go s.loop()
	return s, nil
}

func (s *rss) setHold(i int, q receive.Queue, hold model.Hold) error {
	s.holds[i] = hold.Timeout
	return s.napis.SetHold(q.NAPI, hold)
}

// Bounds of a step of the moderation: as often as the daemon looks.
const (
	dimStepMin = 2 * time.Millisecond
	dimStepMax = 20 * time.Millisecond
)

// loop answers read and, under DIM, drives every queue.
func (s *rss) loop() {
	defer close(s.ended)
	states := make([]lanidle.State, len(s.queues))
	var last []receive.Reading
	var lastAt time.Time
	wait := time.Hour
	if s.dim {
		wait = dimStepMax
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-s.end:
			return
		case f := <-s.ask:
			f()
		case <-timer.C:
			readings, err := s.adapter.Read()
			if err != nil {
				s.err = errors.Join(s.err, err)
				return
			}
			now := time.Now()
			wait = dimStepMax
			for i := range readings {
				if last == nil {
					break
				}
				var d lanidle.Decision
				states[i], d = lanidle.DIMStep(states[i], observation(readings[i], last[i], now.Sub(lastAt)), time.Duration(now.UnixNano()))
				if d.Changed {
					s.err = errors.Join(s.err, s.setHold(i, s.queues[i], d.Hold))
				}
				if d.Next > 0 {
					wait = min(wait, d.Next)
				}
			}
			last, lastAt = readings, now
			timer.Reset(max(wait, dimStepMin))
		}
	}
}

func observation(now, was receive.Reading, interval time.Duration) lanidle.Observation {
	return lanidle.Observation{
		Role: lanidle.Single, Interval: interval,
		Packets: now.Packets - was.Packets, Bytes: now.Bytes - was.Bytes, RingDrops: now.Drops - was.Drops,
		ThreadRun: now.ThreadRun - was.ThreadRun, ThreadWakes: now.ThreadWakes - was.ThreadWakes,
	}
}

func (s *rss) read(ctx context.Context) (out []count, err error) {
	done := make(chan struct{})
	f := func() {
		defer close(done)
		var readings []receive.Reading
		readings, err = s.adapter.Read()
		for i, r := range readings {
			name := "queue " + strconv.Itoa(i)
			if s.adapter.Sorter() != nil {
				name = r.ID.String()
			}
			out = append(out, count{name, r.Packets, r.ThreadWakes, r.ThreadRun, s.holds[i]})
		}
	}
	select {
	case s.ask <- f:
		<-done
		return out, err
	case <-s.ended:
		return nil, errors.Join(errors.New("the moderation has stopped"), s.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *rss) decisions(context.Context) ([]string, error) { return nil, nil }

func (s *rss) stop() error {
	close(s.end)
	<-s.ended
	return errors.Join(s.err, s.release())
}

func (s *rss) release() error {
	if s.napis != nil {
		s.napis.Close()
	}
	err := s.adapter.Detach()
	s.adapter.Close()
	return errors.Join(err, s.notes.undo(s.rig.serverNS, s.rig.wireNS))
}

// daemon is xlane, as `xlane run` starts it.
type daemon struct {
	rig   *rig
	stack *stack.Stack
	state string
	end   context.CancelFunc
	ended chan error
}

func (r *rig) engageDaemon(ctx context.Context, m Mode) (engaged, error) {
	state, err := os.MkdirTemp("", "xlane-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a place for the record: %w", err)
	}
	log := r.cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s, err := stack.Start(ctx, stack.Config{
		Interfaces: []profile.Interface{{
			Device: r.server.Dev, Netns: r.server.NetNS, INBPERF: m.INBPERF, WorkloadQ: m.WorkloadQ, OLM: m.OLM,
			CPUs: cpu.Of(r.at.server).String(),
		}},
		Version: r.cfg.Version, StateDir: state, Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(state))
	}
	within, end := context.WithCancel(context.WithoutCancel(ctx))
	d := &daemon{rig: r, stack: s, state: state, end: end, ended: make(chan error, 1)}
	go func() { d.ended <- s.Run(within) }()
	if m.ThinSACKs {
		if err := r.setSACKs(); err != nil {
			return nil, errors.Join(err, d.stop())
		}
	}
	return d, nil
}

// setSACKs has the server thin acknowledgements out again, as Linux does.
func (r *rig) setSACKs() error {
	host, err := setting.Open(r.serverNS)
	if err != nil {
		return err
	}
	defer host.Close()
	return host.Set(&notes{}, setting.Sysctl, "", "net.ipv4.tcp_comp_sack_nr", compSACKDefault)
}

// connectionsShown bounds what a snapshot lists; nothing here needs them.
const connectionsShown = 1

func (d *daemon) view(ctx context.Context) (model.Interface, error) {
	snap, err := d.stack.Snapshot(ctx, api.Query{MaxConnections: connectionsShown})
	if err != nil {
		return model.Interface{}, err
	}
	return snap.Interfaces[0], nil
}

func (d *daemon) read(ctx context.Context) ([]count, error) {
	v, err := d.view(ctx)
	if err != nil {
		return nil, err
	}
	var out []count
	for _, q := range v.Queues {
		if q.Shares == 0 {
			out = append(out, count{q.Role, q.Counters.Packets, q.Counters.ThreadWakes.N, time.Duration(q.Counters.ThreadRun.N), q.Hold})
		}
	}
	return out, nil
}

func (d *daemon) decisions(ctx context.Context) ([]string, error) {
	v, err := d.view(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, q := range v.Queues {
		if q.Decision.Why != "" && q.Counters.Packets > 0 {
			out = append(out, q.Role+": "+q.Decision.Why) // why begins with what: "hold 40us -> 80us: ..."
		}
	}
	return out, nil
}

func (d *daemon) stop() error {
	d.end()
	err := <-d.ended
	return errors.Join(err, os.RemoveAll(d.state))
}

// found reads how soon the streams were found, from the sorter's own table.
func (d *daemon) found() (found, moved int64, err error) {
	records, err := filepath.Glob(filepath.Join(d.state, "*.json"))
	if err != nil || len(records) != 1 {
		return 0, 0, errors.Join(fmt.Errorf("find the record: %d of them", len(records)), err)
	}
	r, err := recordAt(records[0])
	if err != nil {
		return 0, 0, err
	}
	s, err := sorter.Adopt(r.PinDir)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	err = s.Flows(true, func(f sorter.Flow) bool {
		found, moved = int64(f.FoundBytes), int64(f.MovedBytes)
		return moved == 0 // one that has moved says it all
	})
	return found, moved, err
}
