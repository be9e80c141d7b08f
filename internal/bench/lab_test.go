package bench_test

import (
	"context"
	"os"
	"testing"
	"time"

	"xlane/internal/bench"
	"xlane/internal/cli"
	"xlane/internal/lab"
	"xlane/internal/testenv"
)

// asXlane makes the test binary run xlane's commands, so that the bench has a
// program for its loads.
const asXlane = "XLANE_BENCH_TEST_AS_XLANE"

func TestMain(m *testing.M) {
	if os.Getenv(asXlane) != "" {
		os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func shortConfig(t *testing.T, experiments, modes []string) bench.Config {
	t.Helper()
	plan, err := bench.Select(bench.Experiments(), experiments, modes)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asXlane, "1")
	return bench.Config{
		Plan: plan, Rounds: 1, Duration: 300 * time.Millisecond, Warmup: 200 * time.Millisecond,
		Program: []string{self}, Version: "test", Command: "go test", Progress: func(line string) { t.Log(line) },
	}
}

// TestInboundInTheLab runs a bench that is too short to say anything about
// speed: what it must have is every figure, and nothing wrong on the way.
func TestInboundInTheLab(t *testing.T) {
	testenv.Lab(t)
	testenv.BPF(t)
	modes := []string{"one-balanced", "rss-dim", "iwq"}
	res, err := bench.Inbound(context.Background(), shortConfig(t, []string{"rr1+str1"}, modes))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		c := res.Cell("rr1+str1", mode)
		if c == nil {
			t.Errorf("%s was not measured: %+v", mode, res.Experiments)
			continue
		}
		r := c.Runs[0]
		switch {
		case r.RR == nil || r.RR.PerS <= 0 || r.RR.P50 <= 0 || r.RR.Max < r.RR.P99 || r.RR.P99 < r.RR.P50:
			t.Errorf("%s: the interactive figures are %+v", mode, r.RR)
		case r.STR == nil || r.STR.MBPerS <= 0:
			t.Errorf("%s: the stream's figures are %+v", mode, r.STR)
		case r.ServerBusy <= 0 || r.ServerBusy > 1 || r.WireBusy <= 0 || r.WireBusy > 1:
			t.Errorf("%s: CPUs are busy %v and %v", mode, r.ServerBusy, r.WireBusy)
		case r.PayloadErrors != 0:
			t.Errorf("%s: %d payload errors", mode, r.PayloadErrors)
		}
		packets := 0.0
		for _, q := range r.Q {
			packets += q.PacketsS
		}
		if packets <= 0 {
			t.Errorf("%s: no packets in %+v", mode, r.Q)
		}
	}
	if c := res.Cell("rr1+str1", "iwq"); c != nil && c.Runs[0].RingDrops == 0 && c.Runs[0].OutOfOrder != 0 {
		t.Errorf("IWQ: %d segments out of order with none lost", c.Runs[0].OutOfOrder)
	}
	if len(res.Targets) == 0 || res.Machine.Kernel == "" || res.Machine.CPUs < 2 {
		t.Errorf("the result lacks its frame: %+v, %d targets", res.Machine, len(res.Targets))
	}
	if left, err := lab.Down(context.Background()); err != nil || len(left) > 0 {
		t.Errorf("the bench left %v, %v", left, err)
	}
}

func TestInboundThatIsInterrupted(t *testing.T) {
	testenv.Lab(t)
	testenv.BPF(t)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := shortConfig(t, []string{"rr1"}, []string{"rss", "iwq"})
	begun := 0
	cfg.Progress = func(string) {
		if begun++; begun == 2 {
			cancel()
		}
	}
	res, err := bench.Inbound(ctx, cfg)
	if err == nil || res == nil {
		t.Fatalf("got %v, %v; want what there was, and why it ended", res, err)
	}
	if res.Cell("rr1", "rss") == nil {
		t.Error("the run before the interruption is lost")
	}
}

func TestInboundRefuses(t *testing.T) {
	plan, err := bench.Select(bench.Experiments(), []string{"rr1"}, []string{"iwq"})
	if err != nil {
		t.Fatal(err)
	}
	good := bench.Config{Plan: plan, Rounds: 1, Duration: time.Second, Program: []string{"xlane"}}
	for name, spoil := range map[string]func(*bench.Config){
		"no program": func(c *bench.Config) { c.Program = nil }, "no rounds": func(c *bench.Config) { c.Rounds = 0 },
		"too many rounds": func(c *bench.Config) { c.Rounds = bench.RoundsMax + 1 }, "no window": func(c *bench.Config) { c.Duration = 0 },
		"a warm-up before the beginning": func(c *bench.Config) { c.Warmup = -1 }, "an empty plan": func(c *bench.Config) { c.Plan = nil },
	} {
		cfg := good
		spoil(&cfg)
		if res, err := bench.Inbound(context.Background(), cfg); err == nil || res != nil {
			t.Errorf("%s: got %v, %v", name, res, err)
		}
	}
}
