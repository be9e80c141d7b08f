package bench

import (
	"math"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   Spread
	}{
		{"one value is all of it", []float64{3}, Spread{1, 3, 3, 3, 3, 3}},
		{"two values meet half way", []float64{4, 2}, Spread{2, 3, 2.5, 3.5, 2, 4}},
		{"order does not matter", []float64{5, 1, 4, 2, 3}, Spread{5, 3, 2, 4, 1, 5}},
		{"one wild round moves only the extreme", []float64{1, 2, 3, 4, 1000}, Spread{5, 3, 2, 4, 1, 1000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := SpreadOf(c.values)
			if !ok || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, ok, c.want)
			}
		})
	}
	if _, ok := SpreadOf(nil); ok {
		t.Error("an empty sample has a spread")
	}
}

func TestSpreadLeavesItsSampleAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	SpreadOf(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("the sample is now %v", values)
	}
}

func rrCell(perS ...float64) *Cell {
	c := &Cell{Mode: "iwq"}
	for i, v := range perS {
		c.Runs = append(c.Runs, Run{Round: i + 1, RR: &RRRun{PerS: v}})
	}
	return c
}

func TestRatioIsTakenRoundByRound(t *testing.T) {
	a, b := rrCell(20, 200, 2000), rrCell(10, 100, 1000)
	got, ok := Ratio(a, RRPerS, b, RRPerS)
	if !ok || got.Min != 2 || got.Max != 2 || got.N != 3 {
		t.Errorf("a drifting machine shows in the ratio: %+v, %v", got, ok)
	}
	b.Runs = b.Runs[1:] // the first round failed
	if got, ok = Ratio(a, RRPerS, b, RRPerS); !ok || got.N != 2 {
		t.Errorf("a round that one side lacks is compared: %+v, %v", got, ok)
	}
	if _, ok = Ratio(a, RRPerS, nil, RRPerS); ok {
		t.Error("there is a ratio to a cell that was not measured")
	}
	if _, ok = Ratio(a, RRPerS, rrCell(0, 0, 0), RRPerS); ok {
		t.Error("there is a ratio to nothing")
	}
	if _, ok = Ratio(a, STRMBps, b, STRMBps); ok {
		t.Error("there is a ratio of what neither has")
	}
}

func TestNumbersKeepThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1,235", 1234567: "1,234,567", -56.7: "-56.7", -12345: "-12,345",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestAxisHoldsItsGreatestValue(t *testing.T) {
	for _, most := range []float64{0.3, 1, 7, 42, 99.9, 12345, 250000} {
		a := newAxis(most, 0, 100)
		marks := a.high / a.step
		if a.high < most || a.high > 2*most || marks > 10 || math.IsNaN(a.at(most)) || a.at(most) > 100 {
			t.Errorf("axis of %v: up to %v in steps of %v", most, a.high, a.step)
		}
	}
}

func TestLabelsDoNotCoverEachOther(t *testing.T) {
	at := func(label string, x, y float64) dot {
		return dot{label: label, x: Spread{Median: x}, y: Spread{Median: y}}
	}
	dots := []dot{at("RSS", 80, 7000), at("RSS+DIM", 80, 7010), at("IWQ", 79.5, 7000), at("ONE BALANCED", 81, 6990), at("IWQ+OLM", 80.5, 7005)}
	x, y := newAxis(100, 66, 630), newAxis(8000, 300, 16)
	var boxes []box
	for i, l := range newLabels(dots, x, y) {
		b := box{l.x, l.y - lineHeight + 3, l.x + letterWidth*float64(len(dots[i].label)), l.y + 3}
		if b.hits(boxes) {
			t.Errorf("the label %q covers another", dots[i].label)
		}
		boxes = append(boxes, b)
	}
}
