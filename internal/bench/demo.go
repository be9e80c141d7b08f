package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// demoRuns are the lines of the demo's table, in its order.
var demoRuns = []struct{ experiment, mode, label, says string }{
	{"rr1", "iwq", "service alone", "nothing else on the wire: what the service can do"},
	{"rr1+str1", "one-balanced", "one queue, 50 µs", "everything waits in line, 50 µs at a time (BALANCED)"},
	{"rr1+str1", "one-dim", "one queue, DIM", "the same, the time chosen by the kernel's own algorithm"},
	{"rr1+str1", "rss", "hashed queues", "four queues, no waiting: quick, and dear in CPU"},
	{"rr1+str1", "iwq", "xlane", "the stream on a queue of its own, held; the service not"},
	{"str1", "iwq", "transfer alone", "the file transfer with nothing beside it"},
}

// WriteDemo tells somebody who has never seen xlane what was measured.
func (r *Result) WriteDemo(out io.Writer) error {
	w := &errWriter{w: out}
	w.printf("\nA service answers small requests (100 bytes in, 800 out) while a file transfer fills a\n" +
		"1 Gb/s wire. What differs from line to line is how the host is given its packets.\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tanswers/s\tmedian µs\tp99 µs\ttransfer MB/s\tserver CPU\t")
	for _, d := range demoRuns {
		c := r.Cell(d.experiment, d.mode)
		if c == nil {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t-\tfailed; see below\n", d.label)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s%%\t%s\n", d.label,
			median(c, RRPerS), median(c, RRP50), median(c, RRP99), median(c, STRMBps), median(c, ServerCPU), d.says)
	}
	w.err = firstError(w.err, t.Flush())
	r.writeVerdict(w)
	if story := r.StoryText(); len(story) > 0 {
		w.printf("\nWhat xlane did:\n")
		for _, s := range story {
			w.printf("  %s\n", s)
		}
	}
	for _, e := range r.Experiments {
		for _, c := range e.Cells {
			for _, f := range c.Failed {
				w.printf("\n%s, %s failed in %s\n", e.Title, titleOf(c.Mode), f)
			}
		}
	}
	return w.err
}

func median(c *Cell, m Metric) string {
	s, ok := c.Spread(m)
	if !ok {
		return "-"
	}
	return number(s.Median)
}

// writeVerdict compares xlane with the others, whichever way it came out.
func (r *Result) writeVerdict(w *errWriter) {
	ours := r.Cell("rr1+str1", "iwq")
	if ours == nil {
		return
	}
	w.printf("\nxlane against the others, medians of %d interleaved rounds:\n", r.Method.Rounds)
	for _, d := range demoRuns {
		if d.experiment != "rr1+str1" || d.mode == "iwq" {
			continue
		}
		other := r.Cell("rr1+str1", d.mode)
		rr, ok := Ratio(ours, RRPerS, other, RRPerS)
		cpu, ok2 := Ratio(ours, ServerCPU, other, ServerCPU)
		if !ok || !ok2 {
			continue
		}
		w.printf("  %-18s %s answers, %s server CPU\n", d.label+":", percentChange(rr.Median), percentChange(cpu.Median))
	}
	var drops, wrong, order int64
	for _, d := range demoRuns {
		if c := r.Cell(d.experiment, d.mode); c != nil {
			wrong += c.Sum(func(r Run) int64 { return r.PayloadErrors })
			if c.Mode == "iwq" {
				drops += c.Sum(func(r Run) int64 { return r.RingDrops })
				order += c.Sum(func(r Run) int64 { return r.OutOfOrder })
			}
		}
	}
	w.printf("  every byte compared: %s wrong; under xlane %s segments out of order, %s packets lost\n", thousands(wrong), thousands(order), thousands(drops))
}
