package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"xlane/internal/testenv"
)

// recorded is what one bench of this machine's kind found. Its figures are
// not to be believed; that the same figures give the same reports is.
func recorded(t *testing.T) *Result {
	t.Helper()
	text, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	r.Targets = Judge(&r)
	return &r
}

func TestReportsOfARecordedResult(t *testing.T) {
	r := recorded(t)
	for name, write := range map[string]func(io.Writer) error{
		"report.txt": r.WriteText, "demo.txt": r.WriteDemo, "report.html": r.WriteHTML,
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		testenv.Golden(t, name, out.Bytes())
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Golden(t, "recorded.json", append(text, '\n'))
}

func TestEveryTargetIsShown(t *testing.T) {
	for name, r := range map[string]*Result{"a recorded result": recorded(t), "nothing at all": {}} {
		r.Targets = Judge(r)
		if want := len(goals) + len(unlimitedDrops); len(r.Targets) != want {
			t.Errorf("%s: %d targets of %d", name, len(r.Targets), want)
		}
		for _, g := range r.Targets {
			if (g.Got == nil) != (g.Outcome == NotMeasured) {
				t.Errorf("%s: %q is %s with %v", name, g.Text, g.Outcome, g.Got)
			}
		}
	}
}

func TestJudgeTakesTheMedian(t *testing.T) {
	cell := func(mode string, perS ...float64) Cell {
		c := rrCell(perS...)
		c.Mode = mode
		return *c
	}
	for _, c := range []struct {
		name string
		iwq  []float64
		want Outcome
	}{
		{"just enough", []float64{160, 160, 160}, Met},
		{"one round short", []float64{150, 160, 170}, Met},
		{"two rounds short", []float64{150, 159, 300}, Short},
	} {
		r := &Result{Experiments: []ExperimentResult{{Name: "rr1+str1", Cells: []Cell{cell("iwq", c.iwq...), cell("one-balanced", 100, 100, 100)}}}}
		if got := Judge(r)[0].Outcome; got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestReportsOfNothing(t *testing.T) {
	r := &Result{Experiments: []ExperimentResult{{Name: "rr1+str1", Title: "RR1 beside STR1", RR: "RR1(100/800)", STR: "STR1(in)",
		Cells: []Cell{{Mode: "iwq", Failed: []string{"round 1: <the device> is \"gone\" & away"}}}}}}
	for _, write := range []func(io.Writer) error{r.WriteText, r.WriteDemo, r.WriteHTML} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "round 1:") {
			t.Errorf("a failed run is hidden:\n%s", out.String())
		}
	}
}

// TestPageIsWholeAndNeedsNothing reads the page as a browser would, tag by tag,
// and refuses whatever would make a browser fetch something.
func TestPageIsWholeAndNeedsNothing(t *testing.T) {
	var page bytes.Buffer
	if err := recorded(t).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"http:", "https:", "url(", "@import", "//cdn"} {
		if bytes.Contains(page.Bytes(), []byte(word)) {
			t.Errorf("the page holds %q", word)
		}
	}
	dec := xml.NewDecoder(bytes.NewReader(page.Bytes()))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	seen := map[string]int{}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is broken: %v", err)
		}
		start, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		seen[start.Name.Local]++
		for _, a := range start.Attr {
			if a.Name.Local == "src" || a.Name.Local == "href" || a.Name.Local == "srcset" || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("<%s> has %s=%q", start.Name.Local, a.Name.Local, a.Value)
			}
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("<%s> has %s=%q", start.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
	for _, tag := range []string{"script", "link", "iframe", "object", "img"} {
		if seen[tag] > 0 {
			t.Errorf("the page has <%s>", tag)
		}
	}
	for _, tag := range []string{"svg", "table", "h2", "style"} {
		if seen[tag] == 0 {
			t.Errorf("the page has no <%s>", tag)
		}
	}
}
