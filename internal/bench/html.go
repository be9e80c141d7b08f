package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows: words and charts, no figures to compute.
type page struct {
	Title, Lead string
	Facts       [][2]string
	Headline    []chart
	Frontiers   []chart
	Targets     []targetRow
	Loads       []loadSection
	Published   []publishedRow
	Modes       [][2]string
	Story       []string
	Failures    []string
}

type chart struct {
	Title, Note string
	SVG         template.HTML
}

type targetRow struct {
	Text, Need, Got, Outcome, Class string
}

type loadSection struct {
	Name, Title string
	Charts      []chart
	Head        []string
	Rows        [][]string
	Queues      [][]string
}

type publishedRow struct {
	Row                                    int
	Workload, Metric, Baseline, Value, Our string
}

// WriteHTML writes the result as one page that needs nothing else: no script,
// no font, no picture from elsewhere.
func (r *Result) WriteHTML(out io.Writer) error {
	p := page{
		Title: "Inbound workload queueing, measured here",
		Lead: "A request-response service (RR) and data streams (STR) arrive at one server. The modes differ only in how what arrives is " +
			"delivered: over which queues, and how long each queue holds packets back.",
		Facts: r.facts(), Story: r.StoryText(),
	}
	p.Headline, p.Frontiers = r.headline(), r.frontiers()
	for _, t := range r.Targets {
		p.Targets = append(p.Targets, targetRow{t.Text, needText(t), gotText(t), string(t.Outcome), strings.ReplaceAll(string(t.Outcome), " ", "-")})
	}
	used := map[string]bool{}
	for i := range r.Experiments {
		e := &r.Experiments[i]
		p.Loads = append(p.Loads, e.section())
		for _, c := range e.Cells {
			used[c.Mode] = true
			for _, f := range c.Failed {
				p.Failures = append(p.Failures, fmt.Sprintf("%s, %s, %s", e.Title, titleOf(c.Mode), f))
			}
		}
	}
	for _, row := range PublishedRows() {
		p.Published = append(p.Published, publishedRow{row.Row, row.Workload, row.Metric, row.Baseline, row.Value, row.Ours(r)})
	}
	for _, m := range Modes() {
		if used[m.Name] {
			p.Modes = append(p.Modes, [2]string{m.Title, m.Says})
		}
	}
	if err := pageTemplate.Execute(out, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func (r *Result) facts() [][2]string {
	m := r.Method
	facts := [][2]string{
		{"Measured", r.Taken.Format("2006-01-02 15:04 MST")},
		{"Machine", fmt.Sprintf("%s, %d CPUs", r.Machine.CPU, r.Machine.CPUs)},
		{"Kernel", r.Machine.Kernel},
		{"xlane", r.Machine.Version},
		{"Command", r.Command},
		{"Rounds", fmt.Sprintf("%d, each mode once a round, one after the other; %.1f s a run after %.1f s of warm-up", m.Rounds, m.DurationS, m.WarmupS)},
		{"CPUs", fmt.Sprintf("server on %d, wire on %d, clients on %d", m.ServerCPU, m.WireCPU, m.ClientCPU)},
	}
	if r.Machine.Idle != "" {
		facts = append(facts, [2]string{"Idle CPUs", r.Machine.Idle})
	}
	facts = append(facts, [2]string{"1 Gb/s wire", fmt.Sprintf("shaped; senders hand over up to %d frames at once", m.SendFrames)})
	if m.Short {
		facts = append(facts, [2]string{"Form", "short: fewer rounds and modes than the full bench, so wider spreads"})
	}
	return facts
}

// ours says which modes are xlane's own way.
func ours(mode string) bool {
	return strings.HasPrefix(mode, "iwq") || strings.HasPrefix(mode, "sorted")
}

// bars collects one metric of an experiment's modes.
func (e *ExperimentResult) bars(m Metric, keep func(mode string) bool) []bar {
	var out []bar
	for i := range e.Cells {
		c := &e.Cells[i]
		s, ok := c.Spread(m)
		if !ok || keep != nil && !keep(c.Mode) {
			continue
		}
		out = append(out, bar{titleOf(c.Mode), number(s.Median) + " " + m.Unit, s, ours(c.Mode)})
	}
	return out
}

func (r *Result) experiment(name string) *ExperimentResult {
	for i := range r.Experiments {
		if r.Experiments[i].Name == name {
			return &r.Experiments[i]
		}
	}
	return nil
}

// headline is the one comparison that everybody asks for.
func (r *Result) headline() []chart {
	e := r.experiment("rr1+str1")
	if e == nil {
		return nil
	}
	keep := func(mode string) bool { return !slices.Contains(frontier[1:], mode) }
	out := []chart{
		{"Transactions a second", "One request-response connection beside one stream. Higher is better. " + r.aloneNote("rr1", RRPerS), barChart("transactions a second", e.bars(RRPerS, keep))},
		{"CPU of the server", "All that ran on the server's CPU: the service, the queues' threads and xlane itself. Lower is better.", barChart("server CPU", e.bars(ServerCPU, keep))},
	}
	return slices.DeleteFunc(out, func(c chart) bool { return c.SVG == "" })
}

func (r *Result) aloneNote(experiment string, m Metric) string {
	e := r.experiment(experiment)
	if e == nil {
		return ""
	}
	for _, mode := range []string{"iwq", "rss", "one-minlatency"} {
		if s, ok := e.Cell(mode).Spread(m); ok {
			return fmt.Sprintf("Without the stream: %s %s (%s).", number(s.Median), m.Unit, titleOf(mode))
		}
	}
	return ""
}

// frontiers plot what a uniform timer buys: less CPU for fewer transactions.
func (r *Result) frontiers() []chart {
	var out []chart
	for i := range r.Experiments {
		e := &r.Experiments[i]
		var dots []dot
		joined := 0
		for _, mode := range modeNames() {
			c := e.Cell(mode)
			x, okX := c.Spread(ServerCPU)
			y, okY := c.Spread(RRPerS)
			if !okX || !okY || mode == "plain" {
				continue
			}
			d := dot{titleOf(mode), x, y, ours(mode), slices.Contains(frontier, mode)}
			if d.joined {
				joined++
			}
			dots = append(dots, d)
		}
		if joined < 3 || e.STR == "" {
			continue
		}
		out = append(out, chart{e.Title,
			"The line joins four hashed queues under one uniform timer, 0 to 500 µs: what tuning alone can reach. Up and to the left is better.",
			scatter("transactions against server CPU", "server CPU, %", "transactions a second", dots)})
	}
	return out
}

func (e *ExperimentResult) section() loadSection {
	s := loadSection{Name: e.Name, Title: e.Title}
	if e.RR != "" {
		s.Charts = append(s.Charts,
			chart{"Median latency", "", barChart("median latency", e.bars(RRP50, nil))},
			chart{"99th percentile", "", barChart("99th percentile of latency", e.bars(RRP99, nil))})
	}
	if e.STR != "" {
		s.Charts = append(s.Charts, chart{"Stream", "", barChart("stream", e.bars(STRMBps, nil))})
	}
	s.Charts = slices.DeleteFunc(s.Charts, func(c chart) bool { return c.SVG == "" })
	s.Head = []string{"mode"}
	for _, m := range e.metrics() {
		s.Head = append(s.Head, m.heading)
	}
	s.Head = append(s.Head, "lost")
	for i := range e.Cells {
		c := &e.Cells[i]
		row := []string{titleOf(c.Mode)}
		for _, m := range e.metrics() {
			row = append(row, spreadText(c, m.Metric))
		}
		s.Rows = append(s.Rows, append(row, lostText(c)))
		s.Queues = append(s.Queues, queueRows(c)...)
	}
	return s
}

// queueRows shows what each queue did in the cell's last round; queues that
// saw nothing are left out.
func queueRows(c *Cell) [][]string {
	if len(c.Runs) == 0 {
		return nil
	}
	var out [][]string
	for _, q := range c.Runs[len(c.Runs)-1].Q {
		if q.PacketsS < 1 {
			continue
		}
		perWake := "-"
		if q.WakesS >= 1 {
			perWake = number(q.PacketsS / q.WakesS)
		}
		out = append(out, []string{titleOf(c.Mode), q.Name, number(q.PacketsS), number(q.WakesS), perWake, number(100 * q.Busy), number(q.HoldUs)})
	}
	return out
}
