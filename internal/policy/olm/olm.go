// Package olm decides when busy polling of the primary queue is worth its CPU
// time (optimized latency mode): it starts when packets come often enough,
// and compares now and then how the queues fare without it, so that it never
// stays where it does harm. All of it is pure: the caller brings the counters
// and the clock. Who polls, and how that is switched, is left to
// receive/busypoll and the stack loop.
package olm

import (
	"fmt"
	"time"
)

const (
	// RateMin is the primary queue's packets per second from which polling
	// starts. A poll of 50 µs after each packet costs 10% of a CPU there, and
	// below it the next packet mostly comes after the poll has ended.
	RateMin = 2000.0
	// rateKeep is where it ends again, half of RateMin, so that a rate near the
	// border does not switch it at every look.
	rateKeep = 1000.0
	// settle is how many looks in a row must agree before polling starts or
	// ends for its rate: one look may see a burst or a gap.
	settle = 2
	// pairs is how many looks with polling are compared with as many without.
	// They alternate, so that a trend in the traffic falls on both alike.
	pairs = 4
	// harmPrimary and harmBulk are how much more must have been carried without
	// polling for it to be called harmful (docs/design/0003-olm.md). One
	// service of 30 busy connections lost 10% with it, because it then takes
	// packets one by one that would have come together; one of 8 lost nothing
	// and one of 1 gained 62%. A stream beside it lost 1%, within its spread.
	harmPrimary = 1.05
	harmBulk    = 1.03
	// bulkLeast is the bulk traffic, in bytes per second, below which it says
	// nothing about harm.
	bulkLeast = 1e6
	// firstCheck, and from there four times as long each up to checkMax, is the
	// time between two comparisons: one costs pairs looks without polling.
	firstCheck = 2 * time.Second
	checkMax   = 5 * time.Minute
	// firstRest, and from there doubling up to restMax, is how long polling
	// stays off after it did harm.
	firstRest = 30 * time.Second
	restMax   = 10 * time.Minute
)

// Observation is what was seen since the last look.
type Observation struct {
	// Interval is the time since the last look; zero at the first.
	Interval time.Duration
	// Packets were delivered by the primary queue, and BulkBytes by BULKDATA.
	Packets, BulkBytes uint64
	// Engaged says that an application polled in this interval. It is false
	// while none is found that may.
	Engaged bool
}

// Want is what polling should be until the next look.
type Want uint8

// Paused is Off for one look, for comparison: who polls stays the same.
const (
	Off Want = iota
	On
	Paused
)

// String returns the word for logs.
func (w Want) String() string { return [...]string{"off", "on", "paused"}[w] }

// Decision is the answer to one look.
type Decision struct {
	Want Want
	// Why is set when polling starts or ends, not for the looks of a comparison.
	Why string
}

// State is what is remembered from look to look. The zero value is the start.
type State struct {
	want     Want
	agree    int           // looks in a row that spoke for the other state
	next     time.Duration // when the next comparison, or the end of a rest, is due
	every    time.Duration // between comparisons
	rest     time.Duration // the last rest
	compared int           // looks of a running comparison; 0 = none runs
	on, off  carried
}

// carried sums the looks of one arm of a comparison.
type carried struct{ packets, bulk, seconds float64 }

func (c *carried) add(o Observation) {
	c.packets += float64(o.Packets)
	c.bulk += float64(o.BulkBytes)
	c.seconds += o.Interval.Seconds()
}

func (c carried) rates() (packets, bulk float64) { return c.packets / c.seconds, c.bulk / c.seconds }

// Step takes one observation. now is any clock that does not jump.
func Step(s State, o Observation, now time.Duration) (State, Decision) {
	if o.Interval <= 0 {
		return s, Decision{Want: s.want}
	}
	rate := float64(o.Packets) / o.Interval.Seconds()
	if s.want == Off {
		return s.start(rate, now)
	}
	s, d, ended := s.tooSlow(rate)
	if ended {
		return s, d
	}
	if s.compared > 0 {
		return s.compare(o, now)
	}
	if !o.Engaged {
		s.next = now + s.every // nothing to compare yet
		return s, Decision{Want: On}
	}
	if now >= s.next {
		s.compared, s.on, s.off = 1, carried{}, carried{}
		s.on.add(o)
		s.want = Paused
		return s, Decision{Want: Paused}
	}
	return s, Decision{Want: On}
}

func (s State) start(rate float64, now time.Duration) (State, Decision) {
	if rate < RateMin || now < s.next {
		s.agree = 0
		return s, Decision{Want: Off}
	}
	if s.agree++; s.agree < settle {
		return s, Decision{Want: Off}
	}
	s = State{want: On, every: firstCheck, next: now + firstCheck, rest: s.rest}
	return s, Decision{Want: On, Why: fmt.Sprintf("the primary queue has %.0f packets/s", rate)}
}

func (s State) tooSlow(rate float64) (State, Decision, bool) {
	if rate >= rateKeep {
		s.agree = 0
		return s, Decision{}, false
	}
	if s.agree++; s.agree < settle {
		return s, Decision{}, false
	}
	return State{rest: s.rest}, Decision{Want: Off, Why: fmt.Sprintf("the primary queue has only %.0f packets/s", rate)}, true
}

// compare takes the looks of a comparison, which alternate: with, without.
func (s State) compare(o Observation, now time.Duration) (State, Decision) {
	if s.want == Paused {
		s.off.add(o)
	} else {
		s.on.add(o)
	}
	s.compared++
	if s.compared < 2*pairs {
		s.want = On
		if s.compared%2 == 1 {
			s.want = Paused
		}
		return s, Decision{Want: s.want}
	}
	s.compared = 0
	if why, harm := harmful(s.on, s.off); harm {
		rest := min(max(2*s.rest, firstRest), restMax)
		return State{rest: rest, next: now + rest}, Decision{Want: Off, Why: fmt.Sprintf("%s; trying again in %v", why, rest)}
	}
	s.want, s.rest = On, 0
	s.every = min(4*s.every, checkMax)
	s.next = now + s.every
	return s, Decision{Want: On}
}

func harmful(on, off carried) (string, bool) {
	onPackets, onBulk := on.rates()
	offPackets, offBulk := off.rates()
	if offPackets > harmPrimary*onPackets {
		return fmt.Sprintf("the primary queue carries %.0f packets/s without it and %.0f with it", offPackets, onPackets), true
	}
	if offBulk > bulkLeast && offBulk > harmBulk*onBulk {
		return fmt.Sprintf("bulk gets %.1f MB/s without it and %.1f with it", offBulk/1e6, onBulk/1e6), true
	}
	return "", false
}
