package bench

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// bar is one line of a bar chart: a median, and from where to where the runs
// went.
type bar struct {
	label, value string
	spread       Spread
	ours         bool // one of xlane's own
}

// Sizes of the charts, in the SVG's own units; the page scales them.
const (
	chartWidth  = 720
	barHeight   = 20
	barStep     = 28
	labelWidth  = 150
	valueWidth  = 150
	plotHeight  = 360
	plotMargin  = 56
	whiskerHalf = 4
)

// barChart draws horizontal bars with whiskers from the least to the most.
func barChart(title string, bars []bar) template.HTML {
	most := 0.0
	for _, b := range bars {
		most = math.Max(most, b.spread.Max)
	}
	if most == 0 {
		return ""
	}
	scale := float64(chartWidth-labelWidth-valueWidth) / most
	var s strings.Builder
	fmt.Fprintf(&s, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, len(bars)*barStep+6, html.EscapeString(title))
	for i, b := range bars {
		y := i*barStep + 4
		mid := y + barHeight/2
		class := "bar"
		if b.ours {
			class = "bar ours"
		}
		fmt.Fprintf(&s, `<text class="label" x="%d" y="%d">%s</text>`, labelWidth-8, mid+4, html.EscapeString(b.label))
		fmt.Fprintf(&s, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="3"><title>%s: %s</title></rect>`,
			class, labelWidth, y, math.Max(b.spread.Median*scale, 1), barHeight, html.EscapeString(b.label), html.EscapeString(b.value))
		low, high := labelWidth+b.spread.Min*scale, labelWidth+b.spread.Max*scale
		fmt.Fprintf(&s, `<path class="whisker" d="M%.1f %dH%.1fM%.1f %dv%dM%.1f %dv%d"/>`,
			low, mid, high, low, mid-whiskerHalf, 2*whiskerHalf, high, mid-whiskerHalf, 2*whiskerHalf)
		fmt.Fprintf(&s, `<text class="value" x="%.1f" y="%d">%s</text>`, math.Max(high, labelWidth+b.spread.Median*scale)+8, mid+4, html.EscapeString(b.value))
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()) // every text in it was escaped above
}

// dot is one mode in the plane of cost and gain.
type dot struct {
	label  string
	x, y   Spread
	ours   bool
	joined bool // part of the line of uniform timers
}

// axis maps values to positions, with round numbers as marks.
type axis struct {
	low, high, step float64
	from, to        float64
}

func newAxis(most, from, to float64) axis {
	step := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, f := range []float64{1, 2, 5, 10} {
		if most/(step*f) <= 6 {
			step *= f
			break
		}
	}
	return axis{high: math.Ceil(most/step) * step, step: step, from: from, to: to}
}

func (a axis) at(v float64) float64 { return a.from + (v-a.low)/(a.high-a.low)*(a.to-a.from) }

// scatter draws modes as dots, with the quartiles as a cross, and joins those
// of the uniform timers.
func scatter(title, xTitle, yTitle string, dots []dot) template.HTML {
	mostX, mostY := 0.0, 0.0
	for _, d := range dots {
		mostX, mostY = math.Max(mostX, d.x.Q3), math.Max(mostY, d.y.Q3)
	}
	if mostX == 0 || mostY == 0 {
		return ""
	}
	x := newAxis(mostX, plotMargin+10, chartWidth-plotMargin*1.6)
	y := newAxis(mostY, plotHeight-plotMargin, 16)
	var s strings.Builder
	fmt.Fprintf(&s, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, plotHeight, html.EscapeString(title))
	for v := 0.0; v <= y.high+y.step/2; v += y.step {
		fmt.Fprintf(&s, `<path class="grid" d="M%.1f %.1fH%.1f"/><text class="tick end" x="%.1f" y="%.1f">%s</text>`,
			x.from, y.at(v), x.to, x.from-8, y.at(v)+4, thousands(int64(v)))
	}
	for v := 0.0; v <= x.high+x.step/2; v += x.step {
		fmt.Fprintf(&s, `<path class="grid" d="M%.1f %.1fV%.1f"/><text class="tick mid" x="%.1f" y="%.1f">%s</text>`,
			x.at(v), y.from, y.to, x.at(v), y.from+18, thousands(int64(v)))
	}
	fmt.Fprintf(&s, `<text class="axis mid" x="%.1f" y="%d">%s</text>`, (x.from+x.to)/2, plotHeight-14, html.EscapeString(xTitle))
	fmt.Fprintf(&s, `<text class="axis mid" transform="translate(14 %.1f) rotate(-90)">%s</text>`, (y.from+y.to)/2, html.EscapeString(yTitle))
	line := ""
	for _, d := range dots {
		if d.joined {
			verb := "L"
			if line == "" {
				verb = "M"
			}
			line += fmt.Sprintf("%s%.1f %.1f", verb, x.at(d.x.Median), y.at(d.y.Median))
		}
	}
	fmt.Fprintf(&s, `<path class="line" d="%s"/>`, line)
	labels := newLabels(dots, x, y)
	for i, d := range dots {
		class := "dot"
		if d.ours {
			class = "dot ours"
		}
		cx, cy := x.at(d.x.Median), y.at(d.y.Median)
		fmt.Fprintf(&s, `<path class="whisker" d="M%.1f %.1fH%.1fM%.1f %.1fV%.1f"/>`, x.at(d.x.Q1), cy, x.at(d.x.Q3), cx, y.at(d.y.Q1), y.at(d.y.Q3))
		fmt.Fprintf(&s, `<circle class="%s" cx="%.1f" cy="%.1f" r="5"/><text class="point" x="%.1f" y="%.1f">%s</text>`,
			class, cx, cy, labels[i].x, labels[i].y, html.EscapeString(d.label))
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()) // every text in it was escaped above
}

// spot is where a label begins: its left end, on its base line.
type spot struct{ x, y float64 }

// Sizes of a label in 12 px type, a little generous.
const (
	letterWidth = 6.8
	lineHeight  = 14
)

// newLabels finds a place for each label near its dot where it covers neither
// another label nor a dot: right of it, left of it, and then further up and
// down. One that finds none stays right of its dot.
func newLabels(dots []dot, x, y axis) []spot {
	var taken []box
	for _, d := range dots {
		cx, cy := x.at(d.x.Median), y.at(d.y.Median)
		taken = append(taken, box{cx - 5, cy - 5, cx + 5, cy + 5})
	}
	out := make([]spot, len(dots))
	for i, d := range dots {
		cx, cy := x.at(d.x.Median), y.at(d.y.Median)
		width := letterWidth * float64(len([]rune(d.label)))
		out[i] = spot{cx + 9, cy + 4}
		for _, try := range tries(cx, cy, width) {
			b := box{try.x, try.y - lineHeight + 3, try.x + width, try.y + 3}
			if b.left > 0 && b.right < chartWidth && b.top > 0 && !b.hits(taken) {
				out[i], taken = try, append(taken, b)
				break
			}
		}
	}
	return out
}

func tries(cx, cy, width float64) []spot {
	var out []spot
	for _, dy := range []float64{4, -6, 14, -18, 26, -30, 38, -42} {
		out = append(out, spot{cx + 9, cy + dy}, spot{cx - 9 - width, cy + dy})
	}
	return out
}

type box struct{ left, top, right, bottom float64 }

func (b box) hits(others []box) bool {
	for _, o := range others {
		if b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom {
			return true
		}
	}
	return false
}
