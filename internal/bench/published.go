package bench

import "fmt"

// Published is one figure of the studies of the original (zos.md §8.2, rows 1
// to 24), and what the same comparison gives here.
type Published struct {
	Row                     int
	Workload, Metric        string
	Baseline, Value         string
	experiment, mode, other string
	metric                  Metric
	absolute                bool
	note                    string
}

const (
	mix1 = "rr30+str1-max"
	gbe  = "rr30+str1"
)

// Why some rows have no counterpart here.
const (
	noAdapter = "no adapter processor here; the server's CPU is the bottleneck"
	sameMix   = "one kind of host here: see rows 6 to 13"
)

// PublishedRows lists the rows. z/OS DYNAMIC before IWQ is one queue whose
// timers adapt: ONE DYNAMIC here.
func PublishedRows() []Published {
	change := func(row int, work, metric, base, value, exp, mode, other string, m Metric) Published {
		return Published{Row: row, Workload: work, Metric: metric, Baseline: base, Value: value, experiment: exp, mode: mode, other: other, metric: m}
	}
	level := func(row int, base, value, mode string) Published {
		return Published{Row: row, Workload: "RR30 + STR1 in, 10GbE (mix 1)", Metric: "RR/s and stream KB/s", Baseline: base, Value: value,
			experiment: mix1, mode: mode, absolute: true}
	}
	same := func(row int, metric, base, value string) Published {
		return Published{Row: row, Workload: "RR30 + STR1 in, 10GbE (mix 2)", Metric: metric, Baseline: base, Value: value, note: sameMix}
	}
	m1 := "RR30 + STR1 in, 10GbE (mix 1)"
	return []Published{
		change(1, "RR30 + STR1 in, 1GbE", "RR transactions/s", "DYNAMIC", "+55%", gbe, "iwq", "one-dynamic", RRPerS),
		change(2, "RR30 + STR1 in, 1GbE", "RR response time", "DYNAMIC", "-36%", gbe, "iwq", "one-dynamic", RRP50),
		change(3, "RR30 + STR1 in, 1GbE", "stream KB/s", "DYNAMIC", "~+4.5%", gbe, "iwq", "one-dynamic", STRMBps),
		change(4, "RR1 + STR1 in, 1GbE", "RR transactions/s", "DYNAMIC", "+84%", "rr1+str1", "iwq", "one-dynamic", RRPerS),
		change(5, "RR1 + STR1 in, 1GbE", "RR response time", "DYNAMIC", "-46%", "rr1+str1", "iwq", "one-dynamic", RRP50),
		level(6, "BALANCED", "72,543 / 283,443", "one-balanced"),
		level(7, "DYNAMIC", "76,761 / 282,624", "one-dynamic"),
		level(8, "IWQ", "85,098 / 227,123", "iwq"),
		level(9, "IWQ+OLM", "102,110 / 218,010", "iwq-olm"),
		change(10, m1, "RR/s, IWQ", "BALANCED / DYNAMIC", "+17% / +11%", mix1, "iwq", "one-balanced", RRPerS),
		change(11, m1, "RR/s, IWQ+OLM", "BALANCED / DYNAMIC", "+41% / +33%", mix1, "iwq-olm", "one-balanced", RRPerS),
		change(12, m1, "stream, IWQ", "BALANCED / DYNAMIC", "-19.9% / -19.6%", mix1, "iwq", "one-balanced", STRMBps),
		change(13, m1, "stream, IWQ+OLM", "BALANCED / DYNAMIC", "-23.1% / -22.9%", mix1, "iwq-olm", "one-balanced", STRMBps),
		{Row: 14, Workload: m1, Metric: "adapter processor busy", Baseline: "all modes", Value: "100%", note: noAdapter},
		same(15, "RR/s and stream KB/s", "BALANCED", "44,461 / 173,261"),
		same(16, "RR/s and stream KB/s", "DYNAMIC", "54,071 / 220,467"),
		same(17, "RR/s and stream KB/s", "IWQ", "74,856 / 211,866"),
		same(18, "RR/s and stream KB/s", "IWQ+OLM", "77,309 / 210,944"),
		same(19, "RR/s, IWQ", "BALANCED / DYNAMIC", "+68% / +38%"),
		same(20, "RR/s, IWQ+OLM", "BALANCED / DYNAMIC", "+73.9% / +43%"),
		same(21, "stream, IWQ; IWQ+OLM", "DYNAMIC", "-3.9%; -4.3%"),
		same(22, "stream, DYNAMIC; IWQ; IWQ+OLM", "BALANCED", "+27.2%; +22.3%; +21.8%"),
		change(23, "mixed", "RR response time, IWQ", "earlier modes", "up to ~-45%", "rr1+str1", "iwq", "one-balanced", RRP50),
		change(24, "mixed", "network CPU per transaction, IWQ", "BALANCED", "< 3% rise", gbe, "iwq", "one-balanced", UsPerTran),
	}
}

// Ours is what this bench found for the row, in its own words.
func (p Published) Ours(r *Result) string {
	if p.note != "" {
		return p.note
	}
	c := r.Cell(p.experiment, p.mode)
	if p.absolute {
		rr, ok := c.Spread(RRPerS)
		str, ok2 := c.Spread(STRMBps)
		if !ok || !ok2 {
			return string(NotMeasured)
		}
		return fmt.Sprintf("%s / %s", number(rr.Median), thousands(int64(str.Median*1000+0.5)))
	}
	text := p.against(r, c, p.other)
	if p.Baseline == "BALANCED / DYNAMIC" {
		text += " / " + p.against(r, c, "one-dynamic")
	}
	return text
}

func (p Published) against(r *Result, c *Cell, other string) string {
	s, ok := Ratio(c, p.metric, r.Cell(p.experiment, other), p.metric)
	if !ok {
		return string(NotMeasured)
	}
	return percentChange(s.Median)
}

func percentChange(ratio float64) string { return fmt.Sprintf("%+.1f%%", 100*(ratio-1)) }
