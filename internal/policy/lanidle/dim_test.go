package lanidle

import (
	"testing"
	"time"
)

// newDIMPlant is a queue driven by the kernel's algorithm.
func newDIMPlant(t *testing.T, src source) *plant {
	p := newPlant(Single, src, seeded(t))
	p.step = DIMStep
	p.noise = 0.01
	return p
}

func TestDIMClimbsToItsLongestHoldForAStream(t *testing.T) {
	p := newDIMPlant(t, rateLimited(5*gigabit))
	p.run(5 * time.Second)
	if p.hold != 256*time.Microsecond {
		t.Errorf("dim holds %v, want 256us", p.hold)
	}
}

// TestDIMDoesNotSeeBeyondItsNextProfile pins a weakness that the comparison
// must know: packets further apart than 8 µs give the same deliveries at 1 and
// 8 µs, and the search never gets to 64.
func TestDIMDoesNotSeeBeyondItsNextProfile(t *testing.T) {
	p := newDIMPlant(t, rateLimited(gigabit))
	p.noise = 0
	p.run(5 * time.Second)
	if p.hold > 8*time.Microsecond {
		t.Errorf("dim holds %v, want at most 8us", p.hold)
	}
}

func TestDIMStaysLowForSlowRequests(t *testing.T) {
	for _, src := range []source{
		requests(1, 35*time.Microsecond, 10*time.Microsecond, 0),
		requests(1, time.Millisecond, 10*time.Microsecond, 0),
	} {
		p := newDIMPlant(t, src)
		p.run(5 * time.Second)
		var longest time.Duration
		for range 1000 {
			p.run(p.next)
			longest = max(longest, p.hold)
		}
		if longest > 8*time.Microsecond {
			t.Errorf("dim holds up to %v at %.0f requests/s, want at most 8us", longest, src.rate(0))
		}
	}
}

func TestDIMStartsAtItsSecondProfile(t *testing.T) {
	_, d := DIMStep(State{}, Observation{Interval: time.Millisecond}, 0)
	if d.Hold.Timeout != 8*time.Microsecond || !d.Changed {
		t.Errorf("dim begins with %v, changed %v; want 8us, true", d.Hold.Timeout, d.Changed)
	}
}

func TestDIMDecidesOnlyWithSixtyFourDeliveries(t *testing.T) {
	var s State
	var d Decision
	o := Observation{Interval: time.Millisecond, Packets: 100, Bytes: 100000, ThreadWakes: 7}
	for i := range 10 {
		if s, d = DIMStep(s, o, 0); (d.Hold.Timeout != 8*time.Microsecond) != (i == 9) {
			t.Fatalf("after %d deliveries dim holds %v", 7*(i+1), d.Hold.Timeout)
		}
	}
}

func TestDIMCompare(t *testing.T) {
	base := dimRates{bytes: 1000, packets: 100, events: 50}
	for _, c := range []struct {
		name string
		prev dimRates
		curr dimRates
		want int
	}{
		{"the same is no better", base, base, 0},
		{"ten percent more bytes is no difference", base, dimRates{1100, 100, 50}, 0},
		{"eleven percent more bytes is better", base, dimRates{1110, 100, 50}, 1},
		{"fewer bytes is worse even with fewer deliveries", base, dimRates{800, 100, 10}, -1},
		{"more packets is better when bytes are even", base, dimRates{1000, 120, 90}, 1},
		{"fewer packets is worse when bytes are even", base, dimRates{1000, 80, 10}, -1},
		{"fewer deliveries is better when the rest is even", base, dimRates{1000, 100, 40}, 1},
		{"more deliveries is worse when the rest is even", base, dimRates{1000, 100, 60}, -1},
		{"traffic after silence is better", dimRates{}, base, 1},
		{"silence after silence is the same", dimRates{}, dimRates{events: 5}, 0},
	} {
		d := dimState{prev: c.prev}
		if got := d.compare(c.curr); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestDIMRestsWhenItFindsNothing walks between settings that are all alike:
// after ten steps it must rest for ten samples before it goes on.
func TestDIMRestsWhenItFindsNothing(t *testing.T) {
	d := dimState{started: true, index: 2, phase: dimRight, prev: dimRates{1000, 100, 50}}
	steps := 0
	for d.phase != dimParkedTired && steps < 100 {
		d.decide(dimRates{1000, 100, 50})
		steps++
	}
	if steps != dimTired+1 {
		t.Errorf("tired after %d decisions, want %d", steps, dimTired+1)
	}
	rest := 0
	for d.phase == dimParkedTired && rest < 100 {
		d.decide(dimRates{1000, 100, 50})
		rest++
	}
	if rest != dimTired {
		t.Errorf("rested for %d samples, want %d", rest, dimTired)
	}
}
