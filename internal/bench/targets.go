package bench

// Outcome is how a target came out.
type Outcome string

// The outcomes. Nothing is left out of a report: what was not measured says so.
const (
	Met         Outcome = "met"
	Short       Outcome = "short"
	NotMeasured Outcome = "not measured"
)

// Target is a number that was to be reached: a ratio of two cells of one bench,
// taken round by round.
type Target struct {
	Text string `json:"text"`
	// Need is the bound on the ratio, at most it when AtMost is set, else at least.
	Need   float64 `json:"need"`
	AtMost bool    `json:"at_most"`
	// Got is missing when one of the two cells is.
	Got     *Spread `json:"got,omitempty"`
	Outcome Outcome `json:"outcome"`
}

type goal struct {
	text   string
	need   float64
	atMost bool

	experiment, mode string
	metric           Metric
	// against, in againstExperiment or, when that is "", in the same one.
	againstExperiment, against string
}

// goals are the numbers of the inbound queues' plan. Latency and stream are
// compared with the same mode without the other load.
var goals = []goal{
	{"RR1 + STR1: transactions, IWQ / ONE BALANCED", 1.60, false, "rr1+str1", "iwq", RRPerS, "", "one-balanced"},
	{"RR1 + STR1: transactions, IWQ / ONE DIM", 1.84, false, "rr1+str1", "iwq", RRPerS, "", "one-dim"},
	{"RR1 + STR1: transactions, IWQ / ONE MINCPU", 4, false, "rr1+str1", "iwq", RRPerS, "", "one-mincpu"},
	{"RR1 + STR4: transactions, IWQ / RSS+DIM", 2, false, "rr1+str4", "iwq", RRPerS, "", "rss-dim"},
	{"RR1 + STR4: transactions, IWQ / RSS", 0.97, false, "rr1+str4", "iwq", RRPerS, "", "rss"},
	{"RR1 + STR4: server CPU, IWQ / RSS", 0.85, true, "rr1+str4", "iwq", ServerCPU, "", "rss"},
	{"RR1 + STR1: median latency, IWQ / RR1 alone", 1.10, true, "rr1+str1", "iwq", RRP50, "rr1", "iwq"},
	{"RR1 + STR1: stream, IWQ / STR1 alone", 0.99, false, "rr1+str1", "iwq", STRMBps, "str1", "iwq"},
	{"STR1 alone: server CPU per MB, IWQ / ONE MINCPU", 1.10, true, "str1", "iwq", UsPerMB, "", "one-mincpu"},
	{"RR1 + STR1 unlimited: transactions, IWQ / RSS", 0.97, false, "rr1+str1-max", "iwq", RRPerS, "", "rss"},
	{"RR1 + STR1 unlimited: stream, IWQ / RSS", 0.97, false, "rr1+str1-max", "iwq", STRMBps, "", "rss"},
	{"RR1 + STR4 unlimited: transactions, IWQ / RSS", 0.97, false, "rr1+str4-max", "iwq", RRPerS, "", "rss"},
	{"RR1 + STR4 unlimited: stream, IWQ / RSS", 0.97, false, "rr1+str4-max", "iwq", STRMBps, "", "rss"},
	{"RR1 + STR1: transactions, IWQ+OLM / IWQ", 1.10, false, "rr1+str1", "iwq-olm", RRPerS, "", "iwq"},
	{"RR30 + STR1: transactions, IWQ / ONE BALANCED", 1.15, false, "rr30+str1", "iwq", RRPerS, "", "one-balanced"},
}

// unlimitedDrops are the cells in which a hold could outlast the ring.
var unlimitedDrops = []string{"rr1+str1-max", "rr1+str4-max"}

// Judge compares a result with the targets.
func Judge(r *Result) []Target {
	var out []Target
	for _, g := range goals {
		t := Target{Text: g.text, Need: g.need, AtMost: g.atMost, Outcome: NotMeasured}
		other := g.againstExperiment
		if other == "" {
			other = g.experiment
		}
		got, ok := Ratio(r.Cell(g.experiment, g.mode), g.metric, r.Cell(other, g.against), g.metric)
		if ok {
			t.Got, t.Outcome = &got, Short
			if g.atMost && got.Median <= g.need || !g.atMost && got.Median >= g.need {
				t.Outcome = Met
			}
		}
		out = append(out, t)
	}
	for _, name := range unlimitedDrops {
		out = append(out, judgeDrops(r, name))
	}
	return out
}

// judgeDrops: with no limit the ring overflows at times whatever the hold,
// so the measure is what no hold at all loses in the same rounds.
func judgeDrops(r *Result, experiment string) Target {
	iwq, rss := r.Cell(experiment, "iwq"), r.Cell(experiment, "rss")
	title := experiment
	for _, e := range r.Experiments {
		if e.Name == experiment {
			title = e.Title
		}
	}
	t := Target{Text: title + ": packets lost at a full ring, IWQ - RSS", AtMost: true, Outcome: NotMeasured}
	if iwq == nil || rss == nil {
		return t
	}
	base := map[int]float64{}
	for _, run := range rss.Runs {
		base[run.Round] = float64(run.RingDrops)
	}
	var more []float64
	for _, run := range iwq.Runs {
		if b, ok := base[run.Round]; ok {
			more = append(more, float64(run.RingDrops)-b)
		}
	}
	if got, ok := SpreadOf(more); ok {
		t.Got, t.Outcome = &got, Short
		if got.Median <= 0 {
			t.Outcome = Met
		}
	}
	return t
}
