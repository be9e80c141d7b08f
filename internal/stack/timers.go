package stack

import (
	"time"

	"xlane/internal/kernel/cpu"
	"xlane/internal/model"
	"xlane/internal/policy/lanidle"
	"xlane/internal/profile"
	"xlane/internal/receive"
)

const (
	// stepEvery is the longest time between two looks at the counters.
	stepEvery = 50 * time.Millisecond
	// stepLeast bounds what the loop costs when a policy asks for more.
	stepLeast = 2 * time.Millisecond
	// busyEvery is how often CPU use is read: /proc/stat counts in steps of
	// 10 ms, so that a shorter span says little.
	busyEvery = 500 * time.Millisecond
)

// timers carries the policy's state of each queue from step to step.
type timers struct {
	cfg   profile.Interface
	clock func() time.Time

	without  bool // the adapter has no timers
	states   map[model.QueueID]lanidle.State
	last     map[model.QueueID]receive.Reading
	decided  map[model.QueueID]model.Decision
	lastAt   time.Time
	next     time.Duration
	busy     map[int]float64
	busyFrom cpu.Times
}

func newTimers(cfg profile.Interface, clock func() time.Time) *timers {
	return &timers{
		cfg: cfg, clock: clock, next: stepEvery,
		states: map[model.QueueID]lanidle.State{}, last: map[model.QueueID]receive.Reading{},
		decided: map[model.QueueID]model.Decision{}, busy: map[int]float64{},
	}
}

// adaptive reports whether there is anything to decide as traffic goes on.
func (t *timers) adaptive() bool {
	return !t.without && (t.cfg.INBPERF == model.Dynamic || t.cfg.INBPERF == model.DIM)
}

// begin returns the hold that each queue starts with.
func (t *timers) begin() map[model.QueueID]lanidle.Decision {
	out := map[model.QueueID]lanidle.Decision{}
	for _, q := range model.AllQueues() {
		out[q] = lanidle.Decision{Hold: lanidle.Static(t.cfg.INBPERF), Changed: true}
	}
	return out
}

// wait is how long to the next step.
func (t *timers) wait() time.Duration {
	if !t.adaptive() {
		return time.Hour
	}
	return min(max(t.next, stepLeast), stepEvery)
}

// step shows the policy what each queue did since the last step.
func (t *timers) step(readings []receive.Reading) map[model.QueueID]lanidle.Decision {
	now := t.clock()
	interval := now.Sub(t.lastAt)
	first := t.lastAt.IsZero()
	t.lastAt = now
	t.readBusy(now)
	out := map[model.QueueID]lanidle.Decision{}
	t.next = stepEvery
	for _, r := range readings {
		was := t.last[r.ID]
		t.last[r.ID] = r
		if first {
			continue
		}
		obs := lanidle.Observation{
			Role: lanidle.RoleOf(r.ID, t.cfg.WorkloadQ), Interval: interval,
			Packets: r.Packets - was.Packets, Bytes: r.Bytes - was.Bytes, RingDrops: r.Drops - was.Drops,
			ThreadRun: r.ThreadRun - was.ThreadRun, ThreadWakes: r.ThreadWakes - was.ThreadWakes,
			CPUBusy: t.busy[r.CPU], Waits: r.Waits,
		}
		policy := lanidle.Step
		if t.cfg.INBPERF == model.DIM {
			policy = lanidle.DIMStep
		}
		state, d := policy(t.states[r.ID], obs, time.Duration(now.UnixNano()))
		t.states[r.ID] = state
		out[r.ID] = d
		if d.Changed && !d.Probe || t.decided[r.ID].What == "" {
			t.decided[r.ID] = model.Decision{What: "hold " + d.Hold.Timeout.String(), Why: d.Why, When: now}
		}
		if d.Next > 0 {
			t.next = min(t.next, d.Next)
		}
	}
	return out
}

func (t *timers) readBusy(now time.Time) {
	if now.Sub(t.busyFrom.At) < busyEvery {
		return
	}
	times, err := cpu.Read(t.clock)
	if err != nil {
		return
	}
	if !t.busyFrom.At.IsZero() {
		wall := times.At.Sub(t.busyFrom.At)
		for c, busy := range cpu.Busy(t.busyFrom, times) {
			t.busy[c] = float64(busy) / float64(wall)
		}
	}
	t.busyFrom = times
}
