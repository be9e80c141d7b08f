package lanidle

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

const gigabit = 82000 // packets/s of a 1 Gb/s stream of 1514-byte frames

func TestStatic(t *testing.T) {
	for mode, want := range map[model.INBPERF]time.Duration{
		model.MinLatency: 0,
		model.Balanced:   50 * time.Microsecond,
		model.MinCPU:     200 * time.Microsecond,
		model.Dynamic:    0,
		model.DIM:        0,
	} {
		got := Static(mode)
		if got.Timeout != want {
			t.Errorf("%v holds %v, want %v", mode, got.Timeout, want)
		}
		if (got.DeferCount > 0) != (want > 0) {
			t.Errorf("%v: hold %v with defer count %d; one without the other does nothing", mode, want, got.DeferCount)
		}
	}
}

func TestRoleOf(t *testing.T) {
	for _, q := range model.AllQueues() {
		want := Primary
		if q == model.BulkData {
			want = Bulk
		}
		if got := RoleOf(q, true); got != want {
			t.Errorf("%v is %v, want %v", q, got, want)
		}
		if got := RoleOf(q, false); got != Single {
			t.Errorf("%v without sorting is %v, want %v", q, got, Single)
		}
	}
}

// TestStepTable pins where the controller ends up for steady traffic, so that
// a change of tuning is seen as changed numbers.
func TestStepTable(t *testing.T) {
	rates := []float64{500, 10000, gigabit, 300000, 820000, 2000000, 4000000, 15000000}
	rings := []int{64, 256, 1024, 4096}
	var b strings.Builder
	for _, c := range []struct {
		role  Role
		name  string
		bytes float64
	}{
		{Bulk, "bulk", 1514},
		{Single, "single, large packets", 1514},
		{Single, "single, small packets", 170},
		{Primary, "primary", 170},
	} {
		fmt.Fprintf(&b, "%s\n%12s", c.name, "packets/s")
		for _, ring := range rings {
			fmt.Fprintf(&b, "  ring %4d", ring)
		}
		b.WriteByte('\n')
		for _, rate := range rates {
			fmt.Fprintf(&b, "%12.0f", rate)
			for _, ring := range rings {
				p := newPlant(c.role, rateLimited(rate), nil)
				p.ring, p.noise, p.source.bytes, p.busy = ring, 0, c.bytes, 0.5
				p.run(20 * time.Second)
				fmt.Fprintf(&b, "  %7dus", p.state.level.Microseconds())
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	testenv.Golden(t, "steady.golden", []byte(b.String()))
}

func TestBulkStreamAtOneGigabitIsHeldLong(t *testing.T) {
	p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
	p.run(15 * time.Second)
	if p.state.level < 150*time.Microsecond {
		t.Errorf("held %v after 15 s, want at least 150us\n%s", p.state.level, strings.Join(p.whys, "\n"))
	}
	p.forget()
	p.run(10 * time.Minute)
	if share := p.probing.Seconds() / 600; share > 0.02 {
		t.Errorf("spent %.1f%% of the time comparing, want at most 2%%", 100*share)
	}
	if p.changes > 60 {
		t.Errorf("%d changes in 10 minutes, want at most 6 per minute\n%s", p.changes, strings.Join(p.whys, "\n"))
	}
}

func TestBulkStreamLimitedByItsWindowKeepsItsRate(t *testing.T) {
	for _, rtt := range []time.Duration{50, 100, 200, 400, 1000} {
		rtt *= time.Microsecond
		t.Run(rtt.String(), func(t *testing.T) {
			p := newPlant(Bulk, windowLimited(44, rtt), seeded(t))
			p.noise = 0.02
			p.run(30 * time.Second)
			p.forget()
			p.run(2 * time.Minute)
			if loss := 1 - p.delivered/p.offered; loss > 0.01 {
				t.Errorf("lost %.2f%% of its rate, want at most 1%%; held %v\n%s",
					100*loss, p.state.level, strings.Join(p.whys, "\n"))
			}
			if p.changes > 12 {
				t.Errorf("%d changes in 2 minutes\n%s", p.changes, strings.Join(p.whys, "\n"))
			}
		})
	}
}

func TestUnlimitedBulkStreamOverflowsTheRingOnce(t *testing.T) {
	p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
	p.run(15 * time.Second)
	p.source = rateLimited(4e6)
	p.run(10 * time.Minute)
	if len(p.drops) != 1 {
		t.Errorf("the ring overflowed %d times, want once, when the rate rose", len(p.drops))
	}
	if p.state.level != 0 || p.hold != 0 {
		t.Errorf("held %v at full rate, want none", p.state.level)
	}
}

// TestBurstySourceOverflowsRarely has bursts at wire speed that no rate over
// an interval shows: only the overflows do, and they must become rare.
func TestBurstySourceOverflowsRarely(t *testing.T) {
	p := newPlant(Bulk, bursty(gigabit, 3e6), seeded(t))
	p.run(10 * time.Minute)
	if n := len(p.drops); n == 0 || n > 8 {
		t.Errorf("the ring overflowed %d times in 10 minutes, want 1 to 8: %v", n, p.drops)
	}
	p.forget()
	p.run(20 * time.Minute)
	if n := len(p.drops); n > 4 {
		t.Errorf("the ring overflowed %d more times in 20 minutes, want at most 4", n)
	}
}

func TestHoldComesBackAfterOneStrayOverflow(t *testing.T) {
	p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
	p.run(15 * time.Second)
	p.source.burst = func(time.Duration) float64 { return 1e8 }
	for len(p.drops) == 0 {
		p.run(time.Millisecond)
	}
	p.source = rateLimited(gigabit)
	p.run(time.Millisecond)
	if p.state.level != 0 {
		t.Errorf("held %v right after an overflow, want none", p.state.level)
	}
	p.run(2 * time.Minute)
	if p.state.level < 150*time.Microsecond {
		t.Errorf("held %v two minutes later, want at least 150us\n%s", p.state.level, strings.Join(p.whys, "\n"))
	}
}

func TestHoldThatSavesNothingStaysShort(t *testing.T) {
	p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
	p.noise, p.wakeRun = 0.01, 0
	// A thread that is woken for every hold anyway: the cost per packet is flat.
	p.step = func(s State, o Observation, now time.Duration) (State, Decision) {
		o.ThreadWakes = o.Packets / 8
		o.ThreadRun = time.Duration(o.Packets * 500)
		return Step(s, o, now)
	}
	p.run(time.Minute)
	if p.state.level > 0 {
		t.Errorf("held %v, want none, since it saves nothing\n%s", p.state.level, strings.Join(p.whys, "\n"))
	}
}

func TestHoldFollowsTheRate(t *testing.T) {
	p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
	p.run(15 * time.Second)
	p.source = rateLimited(800000)
	p.run(100 * time.Millisecond)
	if p.state.level > 80*time.Microsecond {
		t.Errorf("held %v at 800,000 packets/s, a quarter of the ring takes 80us", p.state.level)
	}
	p.source = rateLimited(gigabit)
	p.run(time.Minute)
	if p.state.level < 150*time.Microsecond {
		t.Errorf("held %v a minute after the rate fell back, want at least 150us\n%s", p.state.level, strings.Join(p.whys, "\n"))
	}
}

func TestIdleQueueGoesBackToItsStart(t *testing.T) {
	for _, c := range []struct {
		role Role
		want time.Duration
	}{{Bulk, bulkStart}, {Single, 0}} {
		p := newPlant(c.role, rateLimited(gigabit), seeded(t))
		p.run(15 * time.Second)
		held := p.state.level
		p.source = rateLimited(0)
		p.run(500 * time.Millisecond)
		if p.state.level != held {
			t.Errorf("%v: held %v after half a second of silence, want %v still", c.role, p.state.level, held)
		}
		p.run(20 * time.Second)
		if p.state.level != c.want {
			t.Errorf("%v: held %v when idle, want %v", c.role, p.state.level, c.want)
		}
	}
}

func TestLoopThatIgnoresNextConvergesToo(t *testing.T) {
	for _, every := range []time.Duration{2 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
		p.fixed = every
		p.run(5 * time.Minute)
		if p.state.level < 150*time.Microsecond {
			t.Errorf("held %v with a loop of %v, want at least 150us", p.state.level, every)
		}
	}
}

func TestSourceWhoseRateSwingsDoesNotMakeTheHoldFlap(t *testing.T) {
	p := newPlant(Bulk, rateLimited(gigabit), seeded(t))
	p.run(15 * time.Second)
	p.forget()
	for range 300 {
		p.source = rateLimited(40000 + 400000*p.rng.Float64())
		p.run(time.Second)
	}
	if perMinute := float64(p.changes) / 5; perMinute > 20 {
		t.Errorf("%.0f changes per minute, want at most 20", perMinute)
	}
	if share := p.probing.Seconds() / 300; share > 0.1 {
		t.Errorf("spent %.0f%% of the time comparing, want at most 10%%", 100*share)
	}
}

func TestPrimary(t *testing.T) {
	light := requests(1, 33*time.Microsecond, 10*time.Microsecond, 0.3)
	heavy := requests(30, 33*time.Microsecond, 15*time.Microsecond, 0.12)
	useless := requests(30, 33*time.Microsecond, 15*time.Microsecond, 0.02)
	for _, c := range []struct {
		name string
		src  source
		busy float64
		want time.Duration
	}{
		{"one request at a time is never held", light, 0.75, 0},
		{"one request at a time on a CPU that others keep busy is not held, it would only wait", light, 1, 0},
		{"many requests on a busy CPU are held when that serves 12% more", heavy, 1, 120 * time.Microsecond},
		{"many requests on a busy CPU are not held for a gain of 2%", useless, 1, 0},
		{"many requests on a CPU with time to spare are not held", heavy, 0.85, 0},
		{"an unknown CPU is taken for an idle one", heavy, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlant(Primary, c.src, seeded(t))
			p.busy, p.noise = c.busy, 0.02
			p.run(2 * time.Minute)
			if p.state.level != c.want {
				t.Errorf("held %v, want %v\n%s", p.state.level, c.want, strings.Join(p.whys, "\n"))
			}
			if p.changes > 6 {
				t.Errorf("%d changes in 2 minutes\n%s", p.changes, strings.Join(p.whys, "\n"))
			}
		})
	}
}

func TestPrimaryIsReleasedAtOnceWhenTheLoadFalls(t *testing.T) {
	start := func(t *testing.T) *plant {
		p := newPlant(Primary, requests(30, 33*time.Microsecond, 15*time.Microsecond, 0.15), seeded(t))
		p.busy, p.noise = 1, 0.02
		p.run(time.Minute)
		if p.state.level != 120*time.Microsecond {
			t.Fatalf("held %v, want 120µs to begin with", p.state.level)
		}
		return p
	}
	t.Run("the CPU has time again", func(t *testing.T) {
		p := start(t)
		p.busy = 0.7
		p.run(p.next)
		if p.state.level != 0 || p.hold != 0 {
			t.Errorf("held %v, want none", p.state.level)
		}
	})
	t.Run("the requests go away while the CPU stays busy", func(t *testing.T) {
		p := start(t)
		p.source = requests(1, 100*time.Microsecond, 15*time.Microsecond, 0)
		p.run(time.Second)
		if p.state.level != 0 || p.hold != 0 {
			t.Errorf("held %v, want none", p.state.level)
		}
	})
}

func TestSingleQueue(t *testing.T) {
	mixed := rateLimited(gigabit + 25000)
	mixed.bytes = (gigabit*1514 + 25000*170) / (gigabit + 25000)
	for _, c := range []struct {
		name string
		src  source
		held bool
	}{
		{"a stream alone is held", rateLimited(gigabit), true},
		{"a mixed load drifts to saving CPU", mixed, true},
		{"requests alone are delivered at once", requests(8, 50*time.Microsecond, 12*time.Microsecond, 0), false},
		{"a trickle of large packets is delivered at once", rateLimited(900), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlant(Single, c.src, seeded(t))
			p.noise = 0.02
			p.run(30 * time.Second)
			if held := p.state.level >= 150*time.Microsecond; held != c.held || !c.held && p.state.level != 0 {
				t.Errorf("held %v\n%s", p.state.level, strings.Join(p.whys, "\n"))
			}
		})
	}
}

func TestWhyNamesTheChangeAndItsReason(t *testing.T) {
	p := newPlant(Bulk, rateLimited(83000), nil)
	p.noise = 0
	p.run(3 * time.Second)
	p.source = rateLimited(820000)
	p.run(200 * time.Millisecond)
	p.source = rateLimited(1e7)
	p.run(200 * time.Millisecond)
	testenv.Golden(t, "why.golden", []byte(strings.Join(p.whys, "\n")+"\n"))
}

func TestFirstDecisionIsAChange(t *testing.T) {
	for _, role := range []Role{Primary, Bulk, Single} {
		s, d := Step(State{}, Observation{Role: role, Interval: time.Millisecond}, 0)
		if !d.Changed {
			t.Errorf("%v: the first decision is not marked as a change", role)
		}
		if _, d = Step(s, Observation{Role: role, Interval: time.Millisecond}, time.Millisecond); d.Changed {
			t.Errorf("%v: the second decision is marked as a change: %s", role, d.Why)
		}
	}
}

// randomObservation is anything a counter could say, sane or not.
func randomObservation(rng *rand.Rand, role Role) Observation {
	exp := func(maxBits int) uint64 { return rng.Uint64() >> (64 - 1 - rng.Intn(maxBits)) }
	o := Observation{
		Role:        role,
		Interval:    time.Duration(exp(34)),
		Packets:     exp(24),
		ThreadRun:   time.Duration(exp(30)),
		ThreadWakes: exp(20),
		RingEntries: int(exp(14)),
		CPUBusy:     rng.Float64() * 1.1,
	}
	o.Bytes = o.Packets * uint64(60+rng.Intn(1455))
	switch rng.Intn(40) {
	case 0:
		o.RingDrops = exp(20)
	case 1:
		o.Interval = -o.Interval
	case 2:
		o.Packets, o.Bytes = 0, 0
	}
	return o
}

func TestHoldStaysWithinItsBoundsWhateverIsSeen(t *testing.T) {
	rng := testenv.Rand(t)
	for range 200 {
		state := State{Max: time.Duration(rng.Intn(300)) * time.Microsecond}
		ceiling := state.ceiling()
		role := Role(rng.Intn(3))
		var now time.Duration
		for range 300 {
			o := randomObservation(rng, role)
			now += max(0, o.Interval)
			s, d := Step(state, o, now)
			checkBounds(t, ceiling, o, d)
			state = s
		}
	}
}

// checkBounds says what holds after every step.
func checkBounds(t *testing.T, ceiling time.Duration, o Observation, d Decision) {
	t.Helper()
	hold := d.Hold.Timeout
	if hold < 0 || hold > ceiling || hold > 0 && hold < HoldMin || hold != floor(hold) {
		t.Fatalf("hold %v is not a rung up to %v, after %+v", hold, ceiling, o)
	}
	if o.RingDrops > 0 && hold > 0 {
		t.Fatalf("hold %v after an overflow: %+v", hold, o)
	}
	if o.Interval >= peakMin {
		if arriving := float64(o.Packets) * hold.Seconds() / o.Interval.Seconds(); arriving > o.ring()/ringShare*1.0001 {
			t.Fatalf("hold %v lets %.0f packets gather in a ring of %.0f: %+v", hold, arriving, o.ring(), o)
		}
	}
	if d.Why == "" || d.Next <= 0 || d.Next > nextSteady {
		t.Fatalf("why %q, next %v, after %+v", d.Why, d.Next, o)
	}
}

func FuzzStep(f *testing.F) {
	f.Add(int64(1), int64(10e6), uint64(820), uint64(1241480), uint64(0), int64(1e6), uint64(50), 256, 0.5, uint8(1))
	f.Add(int64(2), int64(-1), ^uint64(0), ^uint64(0), ^uint64(0), int64(-1), ^uint64(0), -1, -1.0, uint8(9))
	f.Fuzz(func(t *testing.T, seed, interval int64, packets, bytes, drops uint64, run int64, wakes uint64, ring int, busy float64, role uint8) {
		given := Observation{
			Role: Role(role), Interval: time.Duration(interval), Packets: packets, Bytes: bytes, RingDrops: drops,
			ThreadRun: time.Duration(run), ThreadWakes: wakes, RingEntries: ring, CPUBusy: busy,
		}
		rng := rand.New(rand.NewSource(seed))
		var state, dim State
		var now time.Duration
		for i := range 60 {
			o := given
			if i%3 == 1 {
				o = randomObservation(rng, Role(role))
			}
			var d Decision
			state, d = Step(state, o, now)
			checkBounds(t, HoldMax, o, d)
			if dim, d = DIMStep(dim, o, now); d.Hold.Timeout < dimProfile[0] || d.Hold.Timeout > dimProfile[len(dimProfile)-1] {
				t.Fatalf("dim holds %v", d.Hold.Timeout)
			}
			now += min(max(0, o.Interval), time.Hour)
		}
	})
}
