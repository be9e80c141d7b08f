package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"xlane/internal/model"
	"xlane/internal/policy/lanidle"
)

// Kind is what drives the server's receive queues.
type Kind string

// The kinds of mode.
const (
	// KindPlain is the link as it was made: no NAPI, no thread, no queue of its own.
	KindPlain Kind = "plain"
	// KindRSS is four queues over which the kernel hashes flows, or the sorter
	// sorts them (Sort), with holds that no policy changes.
	KindRSS Kind = "rss"
	// KindDaemon is xlane itself, in this process.
	KindDaemon Kind = "daemon"
)

// Mode is one way of delivering what the server receives.
type Mode struct {
	Name string
	// Title is what it is called in reports, Says one line for a newcomer.
	Title, Says string
	Kind        Kind

	// Hold of every queue, for KindRSS; with Sort, of BULKDATA alone.
	Hold time.Duration
	Sort bool
	// DIM drives each queue of KindRSS by the kernel's moderation algorithm.
	DIM bool

	// INBPERF, WorkloadQ and OLM are the daemon's, for KindDaemon.
	INBPERF        model.INBPERF
	WorkloadQ, OLM bool
	// ThinSACKs puts the kernel's thinning-out of acknowledgements back, which
	// WORKLOADQ takes away.
	ThinSACKs bool
}

// frontierHolds are the uniform timers of the frontier; 0 is mode "rss".
var frontierHolds = []time.Duration{
	20 * time.Microsecond, lanidle.BalancedHold, 100 * time.Microsecond, lanidle.MinCPUHold, 500 * time.Microsecond,
}

// Modes lists every mode, in the order of reports.
func Modes() []Mode {
	modes := []Mode{
		{Name: "plain", Title: "PLAIN", Kind: KindPlain, Says: "a veth as Linux makes it; its receive work runs on the sender's CPU, so count both"},
		{Name: "one-minlatency", Title: "ONE MINLATENCY", Kind: KindDaemon, INBPERF: model.MinLatency, Says: "one queue, every packet delivered at once"},
		{Name: "one-balanced", Title: "ONE BALANCED", Kind: KindDaemon, INBPERF: model.Balanced, Says: "one queue, held 50 µs"},
		{Name: "one-mincpu", Title: "ONE MINCPU", Kind: KindDaemon, INBPERF: model.MinCPU, Says: "one queue, held 200 µs"},
		{Name: "one-dynamic", Title: "ONE DYNAMIC", Kind: KindDaemon, INBPERF: model.Dynamic, Says: "one queue, its hold chosen by xlane"},
		{Name: "one-dim", Title: "ONE DIM", Kind: KindDaemon, INBPERF: model.DIM, Says: "one queue, its hold chosen by the kernel's own algorithm"},
		{Name: "rss", Title: "RSS", Kind: KindRSS, Says: "four queues, connections spread by hash, delivered at once"},
		{Name: "rss-dim", Title: "RSS+DIM", Kind: KindRSS, DIM: true, Says: "four queues, each held as the kernel's own algorithm says: a good NIC today"},
	}
	for _, h := range frontierHolds {
		us := h.Microseconds()
		modes = append(modes, Mode{
			Name: fmt.Sprintf("rss-%d", us), Title: fmt.Sprintf("RSS %d µs", us), Kind: KindRSS, Hold: h,
			Says: fmt.Sprintf("four queues, connections spread by hash, all held %d µs", us),
		})
	}
	return append(modes,
		Mode{Name: "sorted-200", Title: "SORTED 200 µs", Kind: KindRSS, Sort: true, Hold: lanidle.MinCPUHold, Says: "the sorter alone, bulk held 200 µs whatever it brings: what IWQ's policy is to reach"},
		Mode{Name: "iwq", Title: "IWQ", Kind: KindDaemon, INBPERF: model.Dynamic, WorkloadQ: true, Says: "xlane: bulk on a queue of its own, held for as long as that saves CPU"},
		Mode{Name: "iwq-thin", Title: "IWQ, SACKs thinned", Kind: KindDaemon, INBPERF: model.Dynamic, WorkloadQ: true, ThinSACKs: true, Says: "IWQ with the kernel's compression of acknowledgements left on"},
		Mode{Name: "iwq-olm", Title: "IWQ+OLM", Kind: KindDaemon, INBPERF: model.Dynamic, WorkloadQ: true, OLM: true, Says: "IWQ, and busy polling on the primary queue"},
	)
}

// ModeByName finds a mode.
func ModeByName(name string) (Mode, error) {
	for _, m := range Modes() {
		if m.Name == name {
			return m, nil
		}
	}
	return Mode{}, fmt.Errorf("no mode is called %q; use %s", name, strings.Join(modeNames(), ", "))
}

func modeNames() []string {
	var names []string
	for _, m := range Modes() {
		names = append(names, m.Name)
	}
	return names
}

// Wire is what the streams' way to the server is like.
type Wire string

// The wires.
const (
	// WireGigabit sends the streams' frames one by one at 1 Gb/s in all.
	WireGigabit Wire = "1 Gb/s"
	// WireUnlimited has no limit but the CPUs.
	WireUnlimited Wire = "unlimited"
)

// SendFramesDefault is how many frames a sender on WireGigabit hands over at
// once. See docs/measurements/inbound.md, "The wire".
const SendFramesDefault = 8

// gigabit is the rate of WireGigabit in bits per second.
const gigabit = 1_000_000_000

// Experiment is one load, tried in several modes.
type Experiment struct {
	Name, Title string
	// RR and STR are awm specs of the two parts of the load; "" leaves one out.
	RR, STR string
	Wire    Wire
	// Loss is the share of the streams' frames that the wire drops.
	Loss  float64
	Modes []string
}

var (
	frontier   = []string{"rss", "rss-20", "rss-50", "rss-100", "rss-200", "rss-500"}
	everything = append([]string{
		"plain", "one-minlatency", "one-balanced", "one-mincpu", "one-dynamic", "one-dim", "rss-dim", "sorted-200", "iwq", "iwq-olm",
	}, frontier...)
	comparison = []string{"one-balanced", "one-dynamic", "one-dim", "rss", "rss-dim", "sorted-200", "iwq", "iwq-olm"}
	lossy      = []string{"one-balanced", "one-dynamic", "iwq-thin", "iwq"}
)

// rrSizes are the published requests and replies.
const rrSizes = "(100/800)"

// Experiments lists the inbound experiments, in the order of reports. Those of
// RR or STR alone are what the mixed ones are compared with.
func Experiments() []Experiment {
	var list []Experiment
	for _, n := range []int{1, 8, 30} {
		list = append(list, Experiment{
			Name: fmt.Sprintf("rr%d", n), Title: fmt.Sprintf("RR%d alone", n), RR: fmt.Sprintf("RR%d", n) + rrSizes,
			Wire: WireUnlimited, Modes: []string{"one-minlatency", "one-balanced", "rss", "iwq", "iwq-olm"},
		})
	}
	alone := []string{"plain", "one-minlatency", "one-balanced", "one-mincpu", "one-dynamic", "rss", "iwq"}
	list = append(list,
		Experiment{Name: "str1", Title: "STR1 in alone at 1 Gb/s", STR: "STR1(in)", Wire: WireGigabit, Modes: alone},
		Experiment{Name: "str1-max", Title: "STR1 in alone, unlimited", STR: "STR1(in)", Wire: WireUnlimited, Modes: alone},
		Experiment{Name: "str1-out", Title: "STR1 out alone at 1 Gb/s", STR: "STR1(out):pace=1G", Wire: WireUnlimited, Modes: alone},
	)
	for _, wire := range []Wire{WireGigabit, WireUnlimited} {
		for _, rr := range []int{1, 8, 30} {
			for _, str := range []int{1, 4} {
				list = append(list, mixed(rr, str, wire))
			}
		}
	}
	for _, loss := range []float64{0.001, 0.005, 0.01} {
		list = append(list, Experiment{
			Name:  fmt.Sprintf("str1-loss-%g", loss*100),
			Title: fmt.Sprintf("STR1 in at 1 Gb/s, %g%% of frames lost", loss*100),
			STR:   "STR1(in)", Wire: WireGigabit, Loss: loss, Modes: lossy,
		})
	}
	return list
}

func mixed(rr, str int, wire Wire) Experiment {
	e := Experiment{
		Name:  fmt.Sprintf("rr%d+str%d", rr, str),
		Title: fmt.Sprintf("RR%d beside STR%d in at 1 Gb/s in all", rr, str),
		RR:    fmt.Sprintf("RR%d", rr) + rrSizes, STR: fmt.Sprintf("STR%d(in)", str), Wire: wire, Modes: comparison,
	}
	if wire == WireUnlimited {
		e.Name += "-max"
		e.Title = fmt.Sprintf("RR%d beside STR%d in, unlimited", rr, str)
	} else if rr == 1 {
		e.Modes = everything
	}
	return e
}

// DemoPlan is the short form: what a newcomer should see.
func DemoPlan() []Experiment {
	var out []Experiment
	for _, e := range Experiments() {
		switch e.Name {
		case "rr1", "str1":
			e.Modes = []string{"iwq"}
		case "rr1+str1":
			e.Modes = []string{"one-balanced", "one-dim", "rss", "iwq"}
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

// Select narrows a plan down to the experiments and modes that are named; no
// names leave all. Modes keep the order of reports.
func Select(plan []Experiment, experiments, modes []string) ([]Experiment, error) {
	for _, m := range modes {
		if _, err := ModeByName(m); err != nil {
			return nil, err
		}
	}
	for _, name := range experiments {
		if !slices.ContainsFunc(plan, func(e Experiment) bool { return e.Name == name }) {
			return nil, fmt.Errorf("no experiment is called %q; use %s", name, strings.Join(experimentNames(plan), ", "))
		}
	}
	var out []Experiment
	for _, e := range plan {
		if len(experiments) > 0 && !slices.Contains(experiments, e.Name) {
			continue
		}
		var kept []string
		for _, m := range modeNames() {
			asked := slices.Contains(modes, m)
			if asked || len(modes) == 0 && slices.Contains(e.Modes, m) {
				kept = append(kept, m)
			}
		}
		e.Modes = kept
		out = append(out, e)
	}
	return out, nil
}

func experimentNames(plan []Experiment) []string {
	var names []string
	for _, e := range plan {
		names = append(names, e.Name)
	}
	return names
}

// Runs is how many runs one round of a plan has.
func Runs(plan []Experiment) int {
	n := 0
	for _, e := range plan {
		n += len(e.Modes)
	}
	return n
}
