package lanidle

import "time"

const (
	// busyMin is how busy the CPU must be (fraction) before a hold on
	// interactive traffic is tried, busyLeave where one ends at once: holding
	// delays every request, which only pays when there is no CPU to serve it.
	// Between the two lies what a hold saves: RR30 beside a stream took 97% of
	// the CPU without one, 93% with 100 µs and 38% more transactions.
	busyMin   = 0.90
	busyLeave = 0.75
	// loadedMin is how long it must be saturated: moderation that follows
	// momentary spikes cost others 25–40% of throughput (linux-receive.md §1.1).
	loadedMin = 500 * time.Millisecond
	// primaryRate is the least rate (packets/s) at which a hold can gather
	// packets of several connections: one connection that waits for each
	// answer has not been seen above 75,000/s with a CPU of its own, and below
	// 25,000/s where it shares one.
	primaryRate = 25000
	// primaryBatch is how many packets a hold on interactive traffic is to
	// gather. At RR30 beside a stream, 72,000/s with no hold, 20 µs gathered
	// 1.4 and gained nothing, 50 µs 15%, 100 to 120 µs 38%, 200 µs less
	// (docs/measurements/inbound.md).
	primaryBatch = 10
	// primaryLeave is the part of the rate at adoption below which the load
	// counts as fallen.
	primaryLeave = 0.7
	// streamEnter and streamLeave (bytes per packet) tell a single queue that
	// carries mostly streams. A stream's frames are full, requests mostly
	// under 300 bytes; the gap keeps a mix near the middle from changing sides.
	streamEnter = 700
	streamLeave = 400
)

// primary rules a queue of interactive traffic.
func (s *State) primary(o Observation, limit, now time.Duration) {
	if o.CPUBusy > busyMin && s.traffic.rate >= primaryRate {
		s.loaded = min(s.loaded+o.Interval, loadedMin)
	} else {
		s.loaded = 0
	}
	if s.level > 0 || s.trial.on {
		fallen := s.level > 0 && s.traffic.rate < primaryLeave*s.refRate
		if !(o.CPUBusy >= busyLeave) || fallen {
			s.unload(now)
			return
		}
	}
	switch {
	case s.trial.on:
		s.comparePrimary(o, now)
	case now < s.lost.blockedUntil:
	case s.level > 0 && now >= s.probeAt:
		s.trial = begin(s.level, 0)
	case s.level == 0 && s.loaded >= loadedMin && now >= s.raiseAt:
		if alt := min(s.gather(), limit); alt >= HoldMin {
			s.trial = begin(0, alt)
		}
	}
}

// gather is the longest rung in which no more than primaryBatch packets come.
func (s *State) gather() time.Duration {
	return max(floor(fits(primaryBatch, s.traffic.rate)), HoldMin)
}

// unload ends hold and trial because the load fell.
func (s *State) unload(now time.Duration) {
	s.trial = trial{}
	if s.level > 0 {
		s.set(0, "the load fell to "+perSecond(s.traffic.rate))
	}
	s.loaded = 0
	s.later(now)
}

// comparePrimary runs a trial on and acts on its verdict.
func (s *State) comparePrimary(o Observation, now time.Duration) {
	switch s.trial.observe(o) {
	case slotRuns:
		return
	case loadChanged:
		s.abandon(now)
		return
	}
	t := s.trial
	judge := t.judgeFaster
	if t.alt == 0 {
		judge = t.judgeStay
	}
	switch v := judge(); {
	case v == undecided:
	case v == adopt && t.alt > 0:
		s.set(t.alt, "throughput "+percent(t.speed.mean())+" with it on a busy CPU")
		s.raiseWait, s.probeWait = retryFirst, retryFirst
		s.probeAt = now + s.probeWait
	case v == adopt:
		s.set(0, "throughput "+percent(t.speed.mean())+" without it")
		s.later(now)
	case t.alt > 0:
		s.trial = trial{}
		s.later(now)
	default:
		s.trial = trial{}
		s.probeWait = min(2*s.probeWait, retryMax)
		s.probeAt = now + s.probeWait
	}
}

// single rules the one queue of an interface that does not sort.
func (s *State) single(o Observation, limit, now time.Duration) {
	if s.traffic.silent > 0 {
		s.trial = trial{}
		return
	}
	bytes := s.traffic.meanBytes
	enough := s.traffic.rate >= rateMin || s.streaming && s.traffic.rate >= rateMin/2
	s.streaming = enough && (bytes >= streamEnter || s.streaming && bytes >= streamLeave)
	if s.streaming {
		s.bulk(o, limit, now)
		return
	}
	s.trial = trial{}
	if s.level > 0 {
		s.set(0, "mostly small packets, "+perSecond(s.traffic.rate))
		s.later(now)
	}
}
