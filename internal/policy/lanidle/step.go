package lanidle

import (
	"time"

	"xlane/internal/model"
)

const (
	// nextSteady is how long an observation takes while nothing is compared:
	// short enough to shorten a hold before many bursts of a stream that
	// speeds up have met it.
	nextSteady = 50 * time.Millisecond
	// idleAfter is how long a queue must be silent before it is idle; an idle
	// queue's hold moves one rung per idleRung toward its start.
	idleAfter = time.Second
	idleRung  = time.Second
	// rateMin is the rate (packets/s) below which nothing is compared: 50
	// packets in a slot say too little, and there is little CPU to save.
	rateMin = 5000
	// raiseSoon separates the rises of a stream that is doing well; after one
	// that failed the next waits retryFirst, doubled each time up to retryMax.
	// The same pair bounds how often a hold that stands is checked: 40–120 ms
	// without the hold, first every 2 s, then ever more rarely.
	raiseSoon  = 100 * time.Millisecond
	retryFirst = 2 * time.Second
	retryMax   = 64 * time.Second
	// recheck follows a lowering, to see whether it was enough, and a new
	// stream's first packets, because most streams are short.
	recheck = 500 * time.Millisecond
	// jump is by what factor the rate must change to be judged anew, at most
	// once per jumpFirst, doubled while the rate keeps jumping, up to
	// retryMax; jumpCalm without a jump forgives.
	jump      = 1.5
	jumpFirst = time.Second
	jumpCalm  = 10 * time.Second
	// headroom keeps a rise away from the ring's bound, which would take it
	// back at the next swing of the rate.
	headroom = 0.8
)

// State is what the controller of one queue remembers. The zero value is
// a queue that has not been seen; a State is a value and may be copied.
type State struct {
	// Max limits the hold; 0, and anything above HoldMax, mean HoldMax.
	Max time.Duration

	started bool
	role    Role
	// level is the hold that is decided; applied is what the last decision
	// asked for, another arm while a trial runs.
	level, applied time.Duration
	why            string

	traffic traffic
	lost    overflow
	trial   trial
	lowers  int
	// reach is the longest hold that was tried in vain because it saved no
	// CPU: the next trial goes beyond it, because a hold shorter than the gap
	// between bursts saves nothing while a longer one may.
	reach time.Duration

	raiseAt, probeAt     time.Duration
	raiseWait, probeWait time.Duration
	idleAt               time.Duration
	// refRate is the rate at the last verdict; evidence is what checks of
	// evidenceFor against no hold have shown since the rate last jumped.
	refRate     float64
	jumpAt      time.Duration
	jumpWait    time.Duration
	evidence    spread
	evidenceFor time.Duration

	// loaded is how long the CPU has been saturated (primary); streaming is
	// whether a single queue carries mostly streams.
	loaded    time.Duration
	streaming bool

	dim dimState
}

// Step decides the hold of a queue whose mode is DYNAMIC. now is monotonic and
// must not go back between calls.
//
// Bulk is held as long as that saves CPU (at least 2% per packet for each
// rise) without costing throughput, and never longer than a quarter of the
// ring takes at the peak rate; when that is under HoldMin there is no hold.
// Both are found out by comparing adjacent slots of milliseconds, because
// neither follows from the rate: on veth (kernel 6.18) UDP frames sent one by one,
// 73,000/s, took 9,900 wake-ups/s with no hold, and 83,000/s took 1,900 at
// 200 µs; but TCP paced at 1 Gb/s comes in bursts of 45 that need one wake-up each (1,900/s), and two
// under any hold. A ring overflow ends the hold at once.
//
// Primary is not held, unless its CPU is saturated and a comparison shows that
// holding for as long as a few packets take to come raises its throughput by
// over 5%.
//
// Single is ruled as bulk while it carries mostly streams (large packets at
// a high rate), and otherwise not held: it drifts to saving CPU in a mixed
// load, at the cost of the interactive part. Throughput is bytes there, and the
// interactive part has few.
//
// The hold decided is 0 or from HoldMin to Max, one of a few values.
func Step(state State, obs Observation, now time.Duration) (State, Decision) {
	s := state
	if !s.started || s.role != obs.Role {
		s = fresh(s, obs.Role, now)
	}
	if obs.Interval > 0 {
		s.traffic.observe(obs)
	}
	s.lost.age(now, s.traffic.peak)
	before := s.level
	limit := s.limit(obs)
	switch {
	case obs.RingDrops > 0:
		s.overflowed(obs, now)
	case s.level > limit:
		s.bounded(obs, limit, now)
	case s.trial.on && s.trial.alt > limit:
		s.abandon(now)
	}
	if s.level == before && obs.RingDrops == 0 && obs.Interval > 0 {
		switch {
		case s.traffic.silent >= idleAfter:
			s.idle(limit, now)
		case s.role == Bulk:
			s.bulk(obs, limit, now)
		case s.role == Single:
			s.single(obs, limit, now)
		default:
			s.primary(obs, limit, now)
		}
	}
	return s.decide(state.started)
}

// fresh is the state of a queue in a new role. What the ring has shown stays.
func fresh(old State, role Role, now time.Duration) State {
	s := State{Max: old.Max, started: true, role: role, applied: old.applied, lost: old.lost}
	s.level = min(s.start(), s.ceiling())
	s.why = "hold " + us(s.level) + ": default until the traffic is known"
	s.patient(now)
	return s
}

// patient resets the waits to what a stream not known yet gets.
func (s *State) patient(now time.Duration) {
	s.raiseWait, s.probeWait = retryFirst, retryFirst
	s.raiseAt, s.probeAt = now+raiseSoon, now+recheck
	s.evidence, s.evidenceFor, s.lowers, s.reach = spread{}, 0, 0, 0
}

// start is the hold of a queue whose traffic is not known.
func (s *State) start() time.Duration {
	if s.role == Bulk {
		return bulkStart
	}
	return 0
}

// ceiling is the longest rung that State.Max allows.
func (s *State) ceiling() time.Duration {
	if s.Max <= 0 || s.Max > HoldMax {
		return HoldMax
	}
	return floor(s.Max)
}

// room is how long a quarter of the ring lasts at the peak rate.
func (s *State) room(o Observation) time.Duration {
	if o.Waits {
		return fits(o.ring()/ringShare, s.lost.burst)
	}
	return fits(o.ring()/ringShare, max(s.traffic.peak, s.lost.burst))
}

// limit is the longest hold allowed now.
func (s *State) limit(o Observation) time.Duration {
	return min(floor(s.room(o)), s.ceiling())
}

// set changes the decided hold and says why; a trial under way ends.
func (s *State) set(level time.Duration, reason string) {
	s.why = "hold " + us(s.level) + " -> " + us(level) + ": " + reason
	s.level = level
	s.trial = trial{}
	s.refRate = s.traffic.rate
}

// reading says what the ring has to hold, for reasons.
func (s *State) reading(o Observation) string {
	rate := max(s.traffic.peak, s.lost.burst)
	return perSecond(rate) + " at peak, ring holds " + span(fits(o.ring(), rate))
}

// overflowed ends every hold, and experiments for a while. While a trial runs
// the longer of its arms is blamed: the packets may have come just before the
// arm changed.
func (s *State) overflowed(o Observation, now time.Duration) {
	held := max(s.level, s.applied)
	if s.trial.on {
		held = max(held, s.trial.alt)
	}
	if held == 0 {
		s.lost.without(now)
		return
	}
	s.level = held
	s.lost.under(held, o.ring(), now)
	s.set(0, "ring overflowed, "+perSecond(s.lost.burst)+" in bursts; no hold for "+s.lost.block.String())
	s.raiseWait = retryFirst
	s.raiseAt = s.lost.blockedUntil
	s.lowers = 0
}

// bounded takes the hold back to what the ring can take.
func (s *State) bounded(o Observation, limit, now time.Duration) {
	s.set(limit, s.reading(o))
	s.later(now)
}

// later puts the next rise off, twice as long as the last time.
func (s *State) later(now time.Duration) {
	s.raiseAt = now + s.raiseWait
	s.raiseWait = min(2*s.raiseWait, retryMax)
}

// abandon ends a trial without a verdict. The next one waits as after a jump.
func (s *State) abandon(now time.Duration) {
	s.trial = trial{}
	s.raiseAt = max(s.raiseAt, now+jumpFirst)
	s.probeAt = max(s.probeAt, now+jumpFirst)
}

// idle moves the hold of a silent queue to its start, one rung at a time.
func (s *State) idle(limit, now time.Duration) {
	s.trial = trial{}
	s.patient(now)
	s.refRate = 0
	target := min(s.start(), limit)
	blocked := target > s.level && now < s.lost.blockedUntil
	if s.level == target || blocked || now < s.idleAt {
		return
	}
	s.idleAt = now + idleRung
	s.set(toward(s.level, target), "idle")
}

// bulk rules a queue of streams.
func (s *State) bulk(o Observation, limit, now time.Duration) {
	if s.trial.on {
		s.compare(o, now)
		return
	}
	if s.traffic.rate < rateMin || !s.traffic.known || now < s.lost.blockedUntil {
		return
	}
	s.noticeJump(now)
	if s.level > 0 && now >= s.probeAt {
		s.trial = begin(s.level, 0)
		if s.evidenceFor == s.level {
			s.trial.speed = s.evidence.halved()
		}
		return
	}
	if now < s.raiseAt {
		return
	}
	room := time.Duration(headroom * float64(s.room(o)))
	reach := min(floor(room), limit)
	if s.reach > 0 && s.reach >= reach {
		s.reach = 0
		s.later(now)
		return
	}
	if target := min(longer(max(s.level, s.reach)), reach); target > s.level {
		s.trial = begin(s.level, target)
	}
}

// noticeJump judges anew when the rate is far from that of the last verdict.
func (s *State) noticeJump(now time.Duration) {
	if s.refRate == 0 {
		s.refRate = s.traffic.rate
	}
	if r := s.traffic.rate / s.refRate; r < jump && r > 1/jump {
		return
	}
	if now < s.jumpAt {
		return
	}
	if s.jumpWait == 0 || now-s.jumpAt > jumpCalm {
		s.jumpWait = jumpFirst
	} else {
		s.jumpWait = min(2*s.jumpWait, retryMax)
	}
	s.jumpAt = now + s.jumpWait
	s.refRate = s.traffic.rate
	s.patient(now)
	s.probeAt = now
}

// compare runs a trial on and acts on its verdict.
func (s *State) compare(o Observation, now time.Duration) {
	switch s.trial.observe(o) {
	case slotRuns:
		return
	case loadChanged:
		s.abandon(now)
		return
	}
	if s.trial.alt > s.trial.base {
		s.judgeRise(now)
		return
	}
	s.judgeCheck(now)
}

// judgeRise acts on a trial of a longer hold.
func (s *State) judgeRise(now time.Duration) {
	t := s.trial
	switch t.judgeLonger() {
	case adopt:
		reason := perSecond(s.traffic.rate) + ", throughput " + percent(t.speed.mean())
		if t.cost.n > 0 {
			reason += ", CPU per packet " + percent(t.cost.mean())
		}
		s.set(t.alt, reason)
		s.reach = 0
		s.raiseAt = now + raiseSoon
		s.probeWait = retryFirst
		s.probeAt = now + s.probeWait
	case reject:
		s.trial = trial{}
		s.refRate = s.traffic.rate
		if t.speed.mean() > -speedDrift {
			s.reach, s.raiseAt = t.alt, now+recheck
			return
		}
		s.reach = 0
		s.later(now)
	}
}

// judgeCheck acts on a trial of no hold beside the one that stands: it is
// halved the first time it costs throughput or saves nothing, and ended when
// half was no better.
func (s *State) judgeCheck(now time.Duration) {
	t := s.trial
	switch t.judgeShorter() {
	case adopt:
		level := time.Duration(0)
		if s.lowers == 0 {
			level = floor(t.base / 2)
		}
		reason := "saves no CPU"
		if t.speed.mean() > speedDrift {
			reason = "throughput " + percent(t.speed.mean()) + " without it"
		}
		s.set(level, reason)
		s.lowers++
		s.later(now)
		s.probeAt = now + recheck
	case reject:
		s.evidence, s.evidenceFor = t.speed, t.base
		s.trial = trial{}
		s.refRate = s.traffic.rate
		s.lowers = 0
		s.probeWait = min(2*s.probeWait, retryMax)
		s.probeAt = now + s.probeWait
	}
}

// decide puts the state into words.
func (s State) decide(known bool) (State, Decision) {
	hold, next, why := s.level, nextSteady, s.why
	if s.trial.on {
		hold, next = s.trial.hold(), max(time.Millisecond, s.trial.next())
		why = "comparing " + us(s.trial.base) + " with " + us(s.trial.alt)
	}
	d := Decision{
		Hold:    holdOf(hold),
		Why:     why,
		Changed: !known || hold != s.applied,
		Probe:   s.trial.on,
		Next:    next,
	}
	s.applied = hold
	return s, d
}

// Level returns the hold that stands, also while a comparison has another in
// force for a moment.
func (s State) Level() model.Hold { return holdOf(s.level) }
