package lanidle

import (
	"math"
	"time"
)

const (
	// windowMin is the shortest time over which a rate is trusted: a paced
	// sender at 1 Gb/s sends 44 frames at a time, 10 ms hold twenty such bursts.
	windowMin = 10 * time.Millisecond
	// peakMin is the shortest interval whose rate counts as a peak. The kernel
	// paces a stream in bursts of at most 1 ms (sk_pacing_shift 10), so
	// shorter ones would see the inside of a burst.
	peakMin = time.Millisecond
	// rateMemory smooths the rate, peakHalfLife forgets a peak. The first is
	// long enough to even out windows, the second for a stream that pauses to
	// come back before its peak is forgotten.
	rateMemory   = 100 * time.Millisecond
	peakHalfLife = 2 * time.Second
	// wakeCost is charged for each timeslice on top of the thread's own run
	// time: 1.5 µs is half of what perf bench sched pipe takes for two
	// wake-ups between threads on one CPU (2.95 µs, kernel 6.18, 2-CPU VM).
	wakeCost = 1500 * time.Nanosecond
)

// tally adds observations up.
type tally struct {
	interval       time.Duration
	packets, bytes float64
	cost           time.Duration
}

// add counts one observation in.
func (t *tally) add(o Observation) {
	t.interval += o.Interval
	t.packets += float64(o.Packets)
	t.bytes += float64(o.Bytes)
	// Wakes are bounded by what an interval can hold at one per nanosecond,
	// so that a wrapped counter cannot turn the sum around.
	wakes := min(o.ThreadWakes, uint64(o.Interval))
	t.cost += max(0, o.ThreadRun) + time.Duration(float64(wakes)*float64(wakeCost))
}

// goodput is bytes/s, or packets/s when bytes are not counted.
func (t tally) goodput() float64 {
	if t.bytes > 0 {
		return t.bytes / t.interval.Seconds()
	}
	return t.rate()
}

// rate is packets/s.
func (t tally) rate() float64 { return t.packets / t.interval.Seconds() }

// traffic is what a queue has been carrying.
type traffic struct {
	window tally
	// rate (packets/s) and meanBytes (per packet) are smoothed.
	rate, meanBytes float64
	known           bool
	// peak is the highest rate of recent intervals, packets/s.
	peak float64
	// silent is how long nothing has arrived.
	silent time.Duration
}

// observe counts an observation with a positive interval in.
func (f *traffic) observe(o Observation) {
	if o.Packets == 0 {
		f.silent += min(o.Interval, time.Hour)
		f.silent = min(f.silent, time.Hour)
	} else {
		f.silent = 0
	}
	f.peak *= math.Exp2(-o.Interval.Seconds() / peakHalfLife.Seconds())
	if o.Interval >= peakMin {
		f.peak = max(f.peak, float64(o.Packets)/o.Interval.Seconds())
	}
	f.window.add(o)
	if f.window.interval < windowMin {
		return
	}
	f.peak = max(f.peak, f.window.rate())
	weight := 1 - math.Exp(-f.window.interval.Seconds()/rateMemory.Seconds())
	if !f.known {
		weight, f.known = 1, f.window.packets > 0
	}
	f.rate += weight * (f.window.rate() - f.rate)
	if f.window.packets > 0 {
		f.meanBytes += weight * (f.window.bytes/f.window.packets - f.meanBytes)
	}
	f.window = tally{}
}

const (
	// blockFirst and blockMax bound the time without any hold after the ring
	// overflowed under one: doubled at each overflow, so that a bursty sender
	// loses packets to experiments at most every few minutes.
	blockFirst = time.Second
	blockMax   = 64 * time.Second
	// burstMemory is how long, in multiples of the block, the burst rate that
	// an overflow has shown stays in force before it is halved. The hold
	// that overflowed was too long by less than ringShare, so it takes two
	// halvings until it is tried again.
	burstMemory = 8
	// blockReset forgives earlier overflows. It is longer than the longest
	// time between two of a sender that never changes: two halvings at blockMax.
	blockReset = time.Hour
)

// overflow remembers the times a ring overflowed while its queue was held.
type overflow struct {
	// burst is the arrival rate (packets/s) that fills the ring within the
	// hold it overflowed under; 0 when nothing is remembered.
	burst        float64
	block        time.Duration
	blockedUntil time.Duration
	halveAt      time.Duration
	lastAt       time.Duration
}

// under records an overflow at a hold.
func (v *overflow) under(hold time.Duration, ring float64, now time.Duration) {
	if v.block == 0 || now-v.lastAt >= blockReset {
		v.block = blockFirst
	} else {
		v.block = min(2*v.block, blockMax)
	}
	v.burst = max(v.burst, ring/hold.Seconds())
	v.lastAt = now
	v.blockedUntil = now + v.block
	v.halveAt = now + burstMemory*v.block
}

// without records an overflow while nothing was held. The hold did not cause
// it, but a queue in that state must not be held either.
func (v *overflow) without(now time.Duration) {
	v.blockedUntil = max(v.blockedUntil, now+blockFirst)
}

// age forgets a burst rate little by little, down to the measured peak.
func (v *overflow) age(now time.Duration, peak float64) {
	if v.burst == 0 || now < v.halveAt {
		return
	}
	v.burst /= 2
	v.halveAt = now + burstMemory*v.block
	if v.burst <= peak {
		v.burst = 0
	}
}

// fits returns how long the ring takes arrivals at the given rate, at most an
// hour.
func fits(ring, rate float64) time.Duration {
	if rate <= 0 {
		return time.Hour
	}
	return time.Duration(min(ring/rate, time.Hour.Seconds()) * float64(time.Second))
}
