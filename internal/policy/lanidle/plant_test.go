package lanidle

import (
	"math"
	"math/rand"
	"os"
	"testing"
	"time"

	"xlane/internal/testenv"
)

// source says how fast packets arrive (packets/s) when their queue is held,
// and how fast they come within a burst.
type source struct {
	rate  func(hold time.Duration) float64
	burst func(hold time.Duration) float64
	bytes float64
}

// rateLimited is a paced stream, indifferent to the hold.
func rateLimited(rate float64) source {
	r := func(time.Duration) float64 { return rate }
	return source{rate: r, burst: r, bytes: 1514}
}

// windowLimited is a stream whose window empties once per round trip, and the
// hold lengthens the round trip by half of itself on average.
func windowLimited(window float64, rtt time.Duration) source {
	r := func(hold time.Duration) float64 { return window / (rtt + hold/2).Seconds() }
	return source{rate: r, burst: r, bytes: 1514}
}

// bursty is a paced stream whose packets come in bursts at a much higher rate.
func bursty(rate, burst float64) source {
	s := rateLimited(rate)
	s.burst = func(time.Duration) float64 { return burst }
	return s
}

// requests is n connections in a closed loop over a CPU that serves one
// request in cost, and in less when requests come together.
func requests(n float64, rtt, cost time.Duration, gain float64) source {
	r := func(hold time.Duration) float64 {
		capacity := 1 / cost.Seconds()
		if hold > 0 {
			capacity *= 1 + gain
		}
		return min(n/(rtt+hold).Seconds(), capacity)
	}
	return source{rate: r, burst: r, bytes: 170}
}

// plant is one queue: a ring, the thread that empties it, and a source. The
// noise is the standard deviation of the rate over 10 ms.
type plant struct {
	role    Role
	ring    int
	source  source
	noise   float64
	busy    float64
	wakeRun time.Duration // what a delivery costs besides its packets
	rng     *rand.Rand

	step  func(State, Observation, time.Duration) (State, Decision)
	state State
	now   time.Duration
	hold  time.Duration
	next  time.Duration
	fixed time.Duration // the loop's interval, when it does not follow Next

	// delivered and offered (packets) compare the stream with itself unheld.
	delivered, offered float64
	drops              []time.Duration
	changes            int
	probing            time.Duration
	whys               []string
}

// newPlant is a veth queue with 3% noise.
func newPlant(role Role, src source, rng *rand.Rand) *plant {
	return &plant{
		role: role, ring: 256, source: src, noise: 0.03, wakeRun: 2 * time.Microsecond,
		rng: rng, step: Step, next: nextSteady,
	}
}

// normal draws one normally distributed number; a plant without noise has no
// random source.
func (p *plant) normal() float64 {
	if p.rng == nil {
		return 0
	}
	return p.rng.NormFloat64()
}

// seeded returns a fixed random source: what a controller concludes from noise
// is right with a probability, so a test of it must see the same noise always.
// XLANE_SEED chooses another.
func seeded(t testing.TB) *rand.Rand {
	if os.Getenv("XLANE_SEED") != "" {
		return testenv.Rand(t)
	}
	return rand.New(rand.NewSource(1))
}

// observe lives through one interval under the current hold.
func (p *plant) observe() Observation {
	dt := p.next
	if p.fixed > 0 {
		dt = p.fixed
	}
	noise := max(0.2, 1+p.noise*p.normal()*math.Sqrt(float64(10*time.Millisecond)/float64(dt)))
	rate := p.source.rate(p.hold) * noise
	p.offered += p.source.rate(0) * noise * dt.Seconds()
	o := Observation{Role: p.role, Interval: dt, RingEntries: p.ring, CPUBusy: p.busy}
	if arriving := p.source.burst(p.hold) * p.hold.Seconds(); arriving > float64(p.ring) {
		o.RingDrops = uint64(arriving) - uint64(p.ring) + 1
		rate *= float64(p.ring) / arriving
		p.drops = append(p.drops, p.now)
	}
	packets := rate * dt.Seconds()
	wakes := packets / 2
	if p.hold > 0 {
		wakes = min(wakes, dt.Seconds()/p.hold.Seconds())
	}
	o.Packets = uint64(packets)
	o.Bytes = uint64(packets * p.source.bytes)
	o.ThreadWakes = uint64(math.Ceil(wakes))
	o.ThreadRun = time.Duration((packets*500 + wakes*float64(p.wakeRun)) * (1 + p.noise*p.normal()))
	p.delivered += packets
	p.now += dt
	return o
}

// run steps the controller for a while.
func (p *plant) run(d time.Duration) {
	for end := p.now + d; p.now < end; {
		o := p.observe()
		level := p.state.level
		s, dec := p.step(p.state, o, p.now)
		if s.level != level {
			p.changes++
			p.whys = append(p.whys, dec.Why)
		}
		if dec.Probe {
			p.probing += dec.Next
		}
		if dec.Changed {
			p.hold = dec.Hold.Timeout
		}
		p.state, p.next = s, dec.Next
	}
}

// forget starts the counters of the plant anew, not the controller.
func (p *plant) forget() {
	p.delivered, p.offered, p.drops, p.changes, p.probing, p.whys = 0, 0, nil, 0, 0, nil
}
