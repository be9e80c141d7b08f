package lanidle

import (
	"strconv"
	"time"

	"xlane/internal/model"
)

// dimProfile holds the kernel's receive settings for moderation whose period
// starts at an event (lib/dim/net_dim.c, EQE); dimDefault is where
// a queue begins.
var dimProfile = [...]time.Duration{
	1 * time.Microsecond,
	8 * time.Microsecond,
	64 * time.Microsecond,
	128 * time.Microsecond,
	256 * time.Microsecond,
}

const (
	dimDefault = 1
	// dimEvents is how many deliveries make a sample (NET_DIM_NEVENTS,
	// include/linux/dim.h).
	dimEvents = 64
	// dimPercent is the largest difference, in whole percent, that counts as
	// none (IS_SIGNIFICANT_DIFF).
	dimPercent = 10
	// dimTired is after how many steps in a row the search rests.
	dimTired = 2 * len(dimProfile)
)

// dimPhase is what the search is doing.
type dimPhase uint8

const (
	dimParkedTop dimPhase = iota // at the best setting found, until the traffic changes
	dimParkedTired
	dimRight // toward longer holds
	dimLeft
)

// dimRates is one sample: bytes, packets and deliveries per millisecond, rounded up.
type dimRates struct{ bytes, packets, events uint64 }

// dimState is what DIMStep remembers.
type dimState struct {
	started               bool
	phase                 dimPhase
	index                 int
	left, right, tired    int
	prev                  dimRates
	interval              time.Duration
	packets, bytes, wakes uint64
	why                   string
}

// DIMStep decides the hold as the kernel's dynamic interrupt moderation
// (net_dim) does: it climbs while bytes, else packets, grow by more than 10%,
// else while deliveries fall by more than 10%; it turns back when they do not,
// and parks where both sides were worse. It looks neither at the role nor at the
// ring. Observations are added up until they hold 64 deliveries (ThreadWakes).
// now is not used: the algorithm counts samples, not time.
func DIMStep(state State, obs Observation, _ time.Duration) (State, Decision) {
	s := state
	d := &s.dim
	first := !d.started
	if first {
		*d = dimState{started: true, index: dimDefault}
		d.why = "dim profile " + strconv.Itoa(d.index) + ": where it begins"
	}
	before := d.index
	if obs.Interval > 0 {
		d.sample(obs)
	}
	hold := dimProfile[d.index]
	return s, Decision{
		Hold:    model.Hold{Timeout: hold, DeferCount: 1},
		Why:     d.why,
		Changed: first || d.index != before,
		Next:    windowMin,
	}
}

// sample adds an observation up and decides when there are enough deliveries.
func (d *dimState) sample(o Observation) {
	d.interval = saturate(d.interval, o.Interval)
	d.packets = saturate(d.packets, o.Packets)
	d.bytes = saturate(d.bytes, o.Bytes)
	d.wakes = saturate(d.wakes, o.ThreadWakes)
	if d.wakes < dimEvents {
		return
	}
	curr := dimRates{
		bytes:   perMilli(d.bytes, d.interval),
		packets: perMilli(d.packets, d.interval),
		events:  perMilli(d.wakes, d.interval),
	}
	d.interval, d.packets, d.bytes, d.wakes = 0, 0, 0, 0
	was := d.index
	d.decide(curr)
	if d.index != was {
		d.why = "dim profile " + strconv.Itoa(was) + " -> " + strconv.Itoa(d.index) + ": " +
			strconv.FormatUint(curr.packets, 10) + " packets and " +
			strconv.FormatUint(curr.events, 10) + " deliveries per ms"
	}
}

// saturate adds without overflow.
func saturate[T uint64 | time.Duration](a, b T) T {
	const room = 1 << 62
	return min(a, room-1) + min(b, room-1)
}

// perMilli divides by milliseconds, rounding up.
func perMilli(n uint64, over time.Duration) uint64 {
	rate := float64(n) * float64(time.Millisecond) / float64(over)
	whole := uint64(min(rate, 1<<62))
	if float64(whole) < rate {
		whole++
	}
	return whole
}

// decide is one turn of the search.
func (d *dimState) decide(curr dimRates) {
	was := d.phase
	switch d.phase {
	case dimParkedTop:
		if d.compare(curr) != 0 {
			d.leavePark()
		}
	case dimParkedTired:
		if d.tired--; d.tired <= 0 {
			d.tired = 0
			d.leavePark()
		}
	case dimRight, dimLeft:
		if d.compare(curr) <= 0 {
			d.turn()
		}
		switch {
		case d.onTop():
			d.park(dimParkedTop)
		default:
			d.walk()
		}
	}
	// While it stays parked the reference stays too, so that a slow drift is
	// noticed in the end.
	if was != dimParkedTop || d.phase != dimParkedTop {
		d.prev = curr
	}
}

// compare says whether curr is better than the sample before (1), worse (-1),
// or no different.
func (d *dimState) compare(curr dimRates) int {
	for _, pair := range [...][2]uint64{{curr.bytes, d.prev.bytes}, {curr.packets, d.prev.packets}} {
		now, prev := pair[0], pair[1]
		switch {
		case prev == 0 && now == 0:
			return 0
		case prev == 0:
			return 1
		case !differs(now, prev):
		case now > prev:
			return 1
		default:
			return -1
		}
	}
	switch {
	case d.prev.events == 0 || !differs(curr.events, d.prev.events):
		return 0
	case curr.events < d.prev.events:
		return 1
	}
	return -1
}

// differs says whether now is more than 10% away from prev, which is not zero.
func differs(now, prev uint64) bool {
	gap := float64(max(now, prev) - min(now, prev))
	return uint64(min(100*gap/float64(prev), 1<<32)) > dimPercent
}

// turn reverses the search.
func (d *dimState) turn() {
	if d.phase == dimRight {
		d.phase, d.left = dimLeft, 0
		return
	}
	d.phase, d.right = dimRight, 0
}

// onTop says that the search has just come back one step from beyond the best.
func (d *dimState) onTop() bool {
	if d.phase == dimRight {
		return d.left > 1 && d.right == 1
	}
	return d.right > 1 && d.left == 1
}

// park rests the search. A tired one counts its steps down before it goes on.
func (d *dimState) park(how dimPhase) {
	d.left, d.right, d.phase = 0, 0, how
	if how == dimParkedTop {
		d.tired = 0
	}
}

// leavePark sets out to the left, or to the right from the left end.
func (d *dimState) leavePark() {
	d.phase = dimLeft
	if d.index == 0 {
		d.phase = dimRight
	}
	d.walk()
}

// walk takes one step, or parks at an end or when tired.
func (d *dimState) walk() {
	switch {
	case d.tired >= dimTired:
		d.park(dimParkedTired)
		return
	case d.phase == dimRight && d.index == len(dimProfile)-1, d.phase == dimLeft && d.index == 0:
		d.park(dimParkedTop)
		return
	case d.phase == dimRight:
		d.index++
		d.right++
	default:
		d.index--
		d.left++
	}
	d.tired++
}
