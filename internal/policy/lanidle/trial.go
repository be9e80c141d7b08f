package lanidle

import (
	"math"
	"time"
)

const (
	// settle is left out after every change of hold: what the old hold kept
	// back is delivered, and a sender adapts, which takes a LAN round trip.
	settle = 2 * time.Millisecond
	// settledInterval is so long that 200 µs kept back at its start are 1% of
	// it, less than the differences looked for: no settling is needed.
	settledInterval = 20 * time.Millisecond
	// slot is how long each arm runs in turn.
	slot = windowMin
	// pairsMin and pairsMax bound a comparison. Four pairs are 40 ms with
	// each arm; twelve bring noise of 5% per slot down to 2%.
	pairsMin = 4
	pairsMax = 12
	// noiseMin is the least spread of one pair that is believed, so that
	// a few lucky pairs do not look exact.
	noiseMin = 0.01
	// pairsPrimary is the least for interactive traffic, where the burden of
	// proof is on the hold.
	pairsPrimary = 8
	// clearMany is by how many standard errors a mean of many pairs must stand
	// out, and clearFew how much more it takes when there are few:
	// 2.5 (1 + 4/n) stays near Student's t for one error in 150 looks.
	clearMany = 2.5
	clearFew  = 4.0
)

// spread is the mean of relative differences and how sure it is.
type spread struct {
	n         int
	sum, sum2 float64
}

// add counts one relative difference in. Ratios beyond tenfold say no more
// than tenfold.
func (v *spread) add(d float64) {
	d = min(max(d, -1), 10)
	v.n++
	v.sum += d
	v.sum2 += d * d
}

// mean is 0 without samples.
func (v spread) mean() float64 {
	if v.n == 0 {
		return 0
	}
	return v.sum / float64(v.n)
}

// err is the standard error of the mean.
func (v spread) err() float64 {
	if v.n < 2 {
		return math.Inf(1)
	}
	n := float64(v.n)
	variance := max(0, v.sum2-v.sum*v.sum/n) / (n - 1)
	return max(math.Sqrt(variance), noiseMin) / math.Sqrt(n)
}

// doubt is how far the true mean may be from the one seen.
func (v spread) doubt() float64 {
	return clearMany * (1 + clearFew/float64(max(1, v.n))) * v.err()
}

// above says that the mean is above limit beyond doubt, below the opposite.
func (v spread) above(limit float64) bool { return v.mean()-v.doubt() > limit }
func (v spread) below(limit float64) bool { return v.mean()+v.doubt() < limit }

// trial compares two holds in adjacent slots, in the order base alt, alt base,
// base alt …, so that a steady drift of the load favours neither.
type trial struct {
	on        bool
	base, alt time.Duration
	// altNow says which arm is applied; settling, for how long it has been.
	altNow   bool
	settling time.Duration
	running  tally
	first    tally
	pairs    int
	// speed and cost hold the relative differences of alt against base: of
	// goodput, and of CPU time per packet (n is 0 when that is not known).
	speed, cost spread
	// baseRate is the base arm's first rate: when it doubles or halves, the
	// load has changed and the comparison is void.
	baseRate float64
}

// hold returns the arm that is applied now.
func (t *trial) hold() time.Duration {
	if t.altNow {
		return t.alt
	}
	return t.base
}

// halved keeps half of the evidence once there is much of it, so that what a
// queue did long ago counts less and less.
func (v spread) halved() spread {
	if v.n < 4*pairsMax {
		return v
	}
	return spread{n: v.n / 2, sum: v.sum / 2, sum2: v.sum2 / 2}
}

// begin starts a comparison. The base arm is the hold that is already applied.
func begin(base, alt time.Duration) trial {
	return trial{on: true, base: base, alt: alt, settling: settle}
}

// progress is what an observation did to a comparison.
type progress uint8

const (
	slotRuns progress = iota
	pairDone
	loadChanged
)

// observe counts an observation in and moves on to the next slot when the
// current one is full.
func (t *trial) observe(o Observation) progress {
	if t.settling < settle && o.Interval < settledInterval {
		t.settling += o.Interval
		return slotRuns
	}
	t.settling = settle
	t.running.add(o)
	if t.running.interval < slot {
		return slotRuns
	}
	done := t.running
	t.running = tally{}
	if done.packets == 0 {
		return loadChanged
	}
	if !t.altNow {
		if t.baseRate == 0 {
			t.baseRate = done.rate()
		}
		if r := done.rate() / t.baseRate; r > 2 || r < 0.5 {
			return loadChanged
		}
	}
	if t.first.interval == 0 {
		t.first = done
		t.altNow = !t.altNow
		t.settling = 0
		return slotRuns
	}
	base, alt := t.first, done
	if !t.altNow {
		base, alt = done, t.first
	}
	t.first = tally{}
	t.pairs++
	t.speed.add(alt.goodput()/base.goodput() - 1)
	if base.cost > 0 && alt.cost > 0 {
		t.cost.add(float64(alt.cost)/alt.packets/(float64(base.cost)/base.packets) - 1)
	}
	return pairDone
}

// next is how long the next observation of the trial should take.
func (t *trial) next() time.Duration {
	if t.settling < settle {
		return settle - t.settling
	}
	return slot - t.running.interval
}

// verdict is what a comparison has shown so far.
type verdict uint8

const (
	undecided verdict = iota
	adopt             // the alternative is better
	reject            // it is not
)

const (
	// speedLoss is what a hold may cost in throughput before it is lowered,
	// and speedDrift what it may cost when the longest comparison still sees
	// it: a stream is to keep 99% of what it has alone (issue "Numbers to reach").
	speedLoss  = 0.03
	speedDrift = 0.01
	// costGain is the least saving of CPU per packet that justifies a longer hold.
	costGain = 0.02
	// primaryGain is the least rise of throughput that justifies a hold on
	// interactive traffic, and primaryKeep what a later check must still find.
	primaryGain = 0.05
	primaryKeep = 0.035
)

// judgeShorter decides whether a bulk queue is better off with the shorter
// hold alt: the stream runs faster, or the longer one saves nothing.
func (t *trial) judgeShorter() verdict {
	last := t.pairs >= pairsMax
	switch {
	case t.pairs < pairsMin:
		return undecided
	case t.speed.mean() > speedLoss && t.speed.above(0):
		return adopt
	case last && t.speed.mean() > speedDrift && t.speed.above(0):
		return adopt
	case !last && !t.speed.below(speedDrift):
		return undecided
	case t.cost.n == 0 || t.cost.above(costGain):
		return reject
	case t.cost.below(costGain):
		return adopt
	case !last:
		return undecided
	case t.cost.mean() < costGain:
		return adopt
	}
	return reject
}

// judgeLonger decides whether a bulk queue is better off with the longer hold
// alt: it must save CPU and cost no throughput. When noise hides a loss of
// about speedDrift the rise goes ahead: the checks against no hold that follow
// add their evidence up, and find it.
func (t *trial) judgeLonger() verdict {
	last := t.pairs >= pairsMax
	saves := t.cost.n == 0 || t.cost.mean() < -costGain
	switch {
	case t.pairs < pairsMin:
		return undecided
	case t.speed.below(0) && (last || t.speed.mean() < -speedDrift):
		return reject
	case t.speed.above(-speedDrift) && saves:
		return adopt
	case !last:
		return undecided
	case t.speed.mean()+t.speed.err() > -speedDrift && saves:
		return adopt
	}
	return reject
}

// judgeFaster decides whether interactive traffic gains by the hold alt over
// none: only if it does beyond doubt.
func (t *trial) judgeFaster() verdict {
	switch {
	case t.pairs < pairsPrimary:
		return undecided
	case t.speed.mean()-t.speed.err() > primaryGain && t.speed.above(0):
		return adopt
	case t.pairs >= pairsMax || t.speed.below(primaryGain):
		return reject
	}
	return undecided
}

// judgeStay decides whether interactive traffic that is held should go back to
// no hold, alt: unless the hold still pays.
func (t *trial) judgeStay() verdict {
	switch {
	case t.pairs < pairsPrimary:
		return undecided
	case t.speed.below(-primaryKeep):
		return reject
	case t.pairs >= pairsMax && t.speed.mean() < -primaryKeep:
		return reject
	case t.pairs >= pairsMax || t.speed.above(-primaryKeep):
		return adopt
	}
	return undecided
}
