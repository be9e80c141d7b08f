// Package lanidle decides how long each inbound queue may hold packets back:
// the LAN-idle timers. Static gives the fixed modes, Step drives a queue whose
// mode is DYNAMIC, and DIMStep drives one as the kernel's own interrupt
// moderation would, for comparison. All of it is pure: the caller brings the
// counters and the clock. Reading counters, applying a hold through netlink
// and putting it back are left to the adapters and the stack loop.
package lanidle

import (
	"fmt"
	"strconv"
	"time"

	"xlane/internal/model"
)

// Role is what a queue carries, which decides what its hold is weighed against.
type Role uint8

// The roles. A queue that carries interactive or unknown traffic is
// primary-like (PRIMARY, SYSDIST, EE); Single is the one queue of an interface
// that does not sort.
const (
	Primary Role = iota
	Bulk
	Single
)

// RoleOf returns the role of a queue. sorted says whether the interface sorts
// its inbound traffic (WORKLOADQ); without it every queue is Single.
func RoleOf(q model.QueueID, sorted bool) Role {
	switch {
	case !sorted:
		return Single
	case q == model.BulkData:
		return Bulk
	}
	return Primary
}

// String returns the role as it is written in logs.
func (r Role) String() string {
	switch r {
	case Primary:
		return "primary"
	case Bulk:
		return "bulk"
	case Single:
		return "single"
	}
	return "role " + strconv.Itoa(int(r))
}

// The static modes. MINLATENCY has no hold. One RR1 128/1024 beside a 1 Gb/s
// stream through one queue was measured (design.md §7): 25,000 transactions/s
// and 76% of a CPU with no hold, 13,800/s and 54% at 50 µs, 4,600/s and 27%
// at 200 µs.
const (
	// BalancedHold is the knee of the published irqsuspend data (v8,
	// 600K queries/s): p99 57% lower and 11% less CPU than with no timer;
	// shorter timers cost CPU, longer ones cost latency (linux-receive.md §1.3 d).
	BalancedHold = 50 * time.Microsecond
	// MinCPUHold saved 24–28% of the CPU in the same data (§1.3 b). Longer
	// saves little more, and a veth ring of 256 entries overflows in 310 µs at
	// 10 Gb/s (§1.2).
	MinCPUHold = 200 * time.Microsecond
)

// Static returns the hold of a mode that never adapts: none for MINLATENCY,
// BalancedHold for BALANCED, MinCPUHold for MINCPU. DYNAMIC and DIM have no
// fixed hold; Static gives none for them, the hold that can do no harm until
// Step or DIMStep has spoken.
func Static(mode model.INBPERF) model.Hold {
	switch mode {
	case model.Balanced:
		return holdOf(BalancedHold)
	case model.MinCPU:
		return holdOf(MinCPUHold)
	}
	return model.Hold{}
}

const (
	// HoldMax is the longest hold Step chooses unless State.Max is shorter:
	// that of MINCPU, for the same reason.
	HoldMax = MinCPUHold
	// HoldMin is the shortest hold worth setting. A 10 µs timer near
	// saturation made p99 2.6 times longer and throughput 13% lower than no
	// timer at all; 20 µs did not (linux-receive.md §1.3 c).
	HoldMin = 20 * time.Microsecond
	// bulkStart is the hold of a bulk queue whose rate is not known yet: the
	// longest, because most streams are short and comparing costs seconds.
	// Beside RR1, streams of 1 Gb/s that began at 40 µs had not arrived at the
	// longest after 3 s, and RR1 had 8,300 transactions/s at 40 µs, 19,800 at
	// 200 µs (docs/measurements/inbound.md).
	bulkStart = HoldMax
	// ringDefault is veth's ring (VETH_RING_SIZE), used when an observation
	// does not say.
	ringDefault = 256
	// ringShare is the part of the ring that a hold may fill at the peak
	// rate: bursts come at wire speed, several times the rate of an interval.
	ringShare = 4
)

// ladder holds the only values that Step chooses. Steps of a quarter or more
// keep noise in the rate from changing the hold.
var ladder = [...]time.Duration{
	0,
	20 * time.Microsecond,
	30 * time.Microsecond,
	40 * time.Microsecond,
	60 * time.Microsecond,
	80 * time.Microsecond,
	120 * time.Microsecond,
	160 * time.Microsecond,
	200 * time.Microsecond,
}

// floor returns the longest rung that is not above d.
func floor(d time.Duration) time.Duration {
	best := ladder[0]
	for _, rung := range ladder {
		if rung <= d {
			best = rung
		}
	}
	return best
}

// toward returns the rung next to from in the direction of to.
func toward(from, to time.Duration) time.Duration {
	next := from
	for _, rung := range ladder {
		switch {
		case from < to && rung > from:
			return rung
		case from > to && rung < from:
			next = rung
		}
	}
	return next
}

// longer returns the next hold worth trying above from: about twice, so that
// the whole ladder takes five trials.
func longer(from time.Duration) time.Duration {
	return max(HoldMin, floor(2*from))
}

// holdOf adds to a timeout the empty polls that it survives. One is enough for
// the timer to be armed again after every poll that found work; every further
// one only adds polls that find nothing once the sender pauses, and holds the
// first packet after the pause. Seen on veth (kernel 6.18) with TCP paced at
// 1 Gb/s, which sends 45 frames at a time, held 50 µs: 3,800 wake-ups/s and 13% of
// a CPU with one, 5,700 and 20% with two, 11,200 and 40% with twenty.
func holdOf(d time.Duration) model.Hold {
	if d <= 0 {
		return model.Hold{}
	}
	return model.Hold{Timeout: d, DeferCount: 1}
}

// Observation is what one queue did over one interval. All counters are
// differences over that interval.
type Observation struct {
	// Role is what the queue carries. A change of role starts the controller anew.
	Role Role
	// Interval is how long the counters were collected. Zero or less: only
	// RingDrops is looked at.
	Interval time.Duration
	// Packets and Bytes arrived on the queue, as frames on the wire, not as
	// merged by GRO.
	Packets, Bytes uint64
	// RingDrops were lost because the ring was full.
	RingDrops uint64
	// ThreadRun is how long the queue's NAPI thread ran, and ThreadWakes how
	// often it was put on a CPU (timeslices). Both zero: not known.
	ThreadRun   time.Duration
	ThreadWakes uint64
	// RingEntries is the size of the queue's ring; 0 means veth's 256.
	RingEntries int
	// Waits says that a packet which finds the ring full waits at the sender
	// and is not lost. The ring then sets the hold no limit; drops still do.
	Waits bool
	// CPUBusy is the busy fraction, 0 to 1, of the CPU that serves the queue;
	// 0 when it is not known, and then no experiment is made that needs it.
	CPUBusy float64
}

// ring returns the number of ring entries, never zero.
func (o Observation) ring() float64 {
	if o.RingEntries <= 0 {
		return ringDefault
	}
	return float64(o.RingEntries)
}

// Decision is the hold that a queue should have from now on.
type Decision struct {
	Hold model.Hold
	// Why is one short sentence for the log and for displays: what changed
	// last and the reason.
	Why string
	// Changed says that Hold differs from the decision before, or is the first.
	Changed bool
	// Probe says that Hold is one arm of a comparison that is under way, and
	// lasts for milliseconds; displays show it, logs need not.
	Probe bool
	// Next is how long to wait before the next observation. A caller with
	// a slower loop may take longer; comparisons then take longer as well.
	Next time.Duration
}

// us writes a duration as whole microseconds.
func us(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) + "us" }

// span writes a duration as milliseconds with one decimal, as microseconds
// below one.
func span(d time.Duration) string {
	if d < time.Millisecond {
		return us(d)
	}
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
}

// perSecond writes a rate with thousands separated, to three digits so that
// two readings of one steady stream look alike.
func perSecond(rate float64) string {
	unit := 1.0
	for rate/unit >= 1000 {
		unit *= 10
	}
	digits := strconv.FormatFloat(float64(int64(rate/unit))*unit, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " packets/s"
}

// percent writes a fraction with its sign.
func percent(f float64) string { return fmt.Sprintf("%+.1f%%", 100*f) }
