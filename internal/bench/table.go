package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// WriteText writes the whole result as tables.
func (r *Result) WriteText(out io.Writer) error {
	w := &errWriter{w: out}
	w.printf("bench %s on %s, %s, %d CPUs\n", r.Bench, r.Machine.Kernel, r.Machine.CPU, r.Machine.CPUs)
	w.printf("%d rounds of %.1f s, modes interleaved; medians, with the quartiles in brackets\n", r.Method.Rounds, r.Method.DurationS)
	w.printf("server on CPU %d, wire on CPU %d, clients on CPU %d; CPU is wall time less idle time\n", r.Method.ServerCPU, r.Method.WireCPU, r.Method.ClientCPU)
	w.printf("1 Gb/s wire: shaped, up to %d frames at once; idle CPUs: %s\n", r.Method.SendFrames, r.Machine.Idle)
	for i := range r.Experiments {
		r.Experiments[i].writeText(w)
	}
	r.writeTargets(w)
	return w.err
}

type errWriter struct {
	w   io.Writer
	err error
}

func (w *errWriter) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}

// Write implements io.Writer, for tabwriter.
func (w *errWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.w.Write(b)
	w.err = err
	return n, err
}

func (e *ExperimentResult) writeText(w *errWriter) {
	w.printf("\n%s\n", e.Title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var head []string
	metrics := e.metrics()
	for _, m := range metrics {
		head = append(head, m.heading)
	}
	fmt.Fprintf(t, "\t%s\tlost\t\n", strings.Join(head, "\t"))
	for i := range e.Cells {
		c := &e.Cells[i]
		row := []string{titleOf(c.Mode)}
		for _, m := range metrics {
			row = append(row, spreadText(c, m.Metric))
		}
		fmt.Fprintf(t, "%s\t%s\t\n", strings.Join(row, "\t"), lostText(c))
	}
	w.err = firstError(w.err, t.Flush())
	for _, c := range e.Cells {
		for _, f := range c.Failed {
			w.printf("  %s failed in %s\n", titleOf(c.Mode), f)
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// column is a metric with its heading in a table.
type column struct {
	Metric
	heading string
}

// metrics are the columns that an experiment has figures for.
func (e *ExperimentResult) metrics() []column {
	var out []column
	if e.RR != "" {
		out = append(out, column{RRPerS, "RR/s"}, column{RRP50, "p50 µs"}, column{RRP99, "p99 µs"})
	}
	if e.STR != "" {
		out = append(out, column{STRMBps, "MB/s"})
	}
	out = append(out, column{ServerCPU, "server %"}, column{WireCPU, "wire+clients %"}, column{ThreadCPU, "threads %"})
	if e.STR != "" && e.RR == "" {
		out = append(out, column{UsPerMB, "µs/MB"})
	}
	if e.RR != "" && e.STR == "" {
		out = append(out, column{UsPerTran, "µs/RR"})
	}
	return out
}

func titleOf(mode string) string {
	if m, err := ModeByName(mode); err == nil {
		return m.Title
	}
	return mode
}

func spreadText(c *Cell, m Metric) string {
	s, ok := c.Spread(m)
	if !ok {
		return "-"
	}
	if s.N == 1 {
		return number(s.Median)
	}
	return fmt.Sprintf("%s [%s..%s]", number(s.Median), number(s.Q1), number(s.Q3))
}

// number writes three digits or more, with thousands kept apart.
func number(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		return thousands(int64(math.Round(v)))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// lostText is what went wrong on the way, over all rounds.
func lostText(c *Cell) string {
	var parts []string
	for _, f := range []struct {
		word string
		of   func(Run) int64
	}{
		{"ring", func(r Run) int64 { return r.RingDrops }},
		{"ooo", func(r Run) int64 { return r.OutOfOrder }},
		{"rexmit", func(r Run) int64 { return r.Retransmits }},
		{"PAYLOAD", func(r Run) int64 { return r.PayloadErrors }},
	} {
		if n := c.Sum(f.of); n != 0 {
			parts = append(parts, f.word+" "+thousands(n))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// writeTargets shows every target, reached or not.
func (r *Result) writeTargets(w *errWriter) {
	w.printf("\nTargets: ratios within a round, median [quartiles]\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	missing := 0
	for _, g := range r.Targets {
		if g.Outcome == NotMeasured {
			missing++
			continue
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", g.Text, needText(g), gotText(g), g.Outcome)
	}
	w.err = firstError(w.err, t.Flush())
	if missing > 0 {
		w.printf("  %d more need experiments or modes that were not run\n", missing)
	}
}

func needText(g Target) string {
	if g.AtMost {
		return "<= " + number(g.Need)
	}
	return ">= " + number(g.Need)
}

func gotText(g Target) string {
	if g.Got == nil {
		return "-"
	}
	return fmt.Sprintf("%s [%s..%s]", number(g.Got.Median), number(g.Got.Q1), number(g.Got.Q3))
}
