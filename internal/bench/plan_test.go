package bench

import (
	"slices"
	"strings"
	"testing"

	"xlane/internal/awm"
	"xlane/internal/kernel/cpu"
)

func TestPlanHasWhatItsReportsNeed(t *testing.T) {
	has := func(experiment, mode string) bool {
		for _, e := range Experiments() {
			if e.Name == experiment {
				return slices.Contains(e.Modes, mode)
			}
		}
		return false
	}
	for _, g := range goals {
		other := g.againstExperiment
		if other == "" {
			other = g.experiment
		}
		if !has(g.experiment, g.mode) || !has(other, g.against) {
			t.Errorf("target %q is never measured", g.text)
		}
	}
	for _, p := range PublishedRows() {
		if p.note == "" && (!has(p.experiment, p.mode) || !p.absolute && !has(p.experiment, p.other)) {
			t.Errorf("published row %d is never measured", p.Row)
		}
	}
	for i, p := range PublishedRows() {
		if p.Row != i+1 {
			t.Errorf("row %d of the published figures is missing", i+1)
		}
	}
	for _, d := range demoRuns {
		if !has(d.experiment, d.mode) {
			t.Errorf("line %q of the demo is never measured", d.label)
		}
	}
}

func TestPlanIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Experiments() {
		if seen[e.Name] {
			t.Errorf("two experiments are called %q", e.Name)
		}
		seen[e.Name] = true
		for _, spec := range []string{e.RR, e.STR} {
			if spec == "" {
				continue
			}
			if _, err := awm.ParseSpec(spec); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
		for _, m := range e.Modes {
			if _, err := ModeByName(m); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
	}
	if Runs(DemoPlan()) != len(demoRuns) {
		t.Errorf("the demo measures %d runs a round and shows %d lines", Runs(DemoPlan()), len(demoRuns))
	}
}

func TestSelect(t *testing.T) {
	got, err := Select(Experiments(), []string{"rr1+str1"}, []string{"iwq", "plain"})
	if err != nil || len(got) != 1 || !slices.Equal(got[0].Modes, []string{"plain", "iwq"}) {
		t.Errorf("named experiments and modes: %+v, %v", got, err)
	}
	if got, err = Select(Experiments(), nil, nil); err != nil || Runs(got) != Runs(Experiments()) {
		t.Errorf("no names leave %d runs of %d, %v", Runs(got), Runs(Experiments()), err)
	}
	if got, err = Select(Experiments(), []string{"rr1"}, []string{"rss-500"}); err != nil || Runs(got) != 1 {
		t.Errorf("a mode that the plan leaves out for an experiment is not added: %+v, %v", got, err)
	}
	for _, c := range [][2][]string{{{"rr9"}, nil}, {nil, {"fast"}}} {
		if _, err := Select(Experiments(), c[0], c[1]); err == nil || !strings.Contains(err.Error(), "use ") {
			t.Errorf("unknown names %v: %v", c, err)
		}
	}
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		name   string
		online cpu.Set
		want   places
	}{
		{"two CPUs: the clients share the wire's", cpu.Of(0, 1), places{0, 1, 1}},
		{"four CPUs: everybody has one", cpu.Of(0, 1, 2, 3), places{0, 1, 2}},
		{"gaps in the numbers", cpu.Of(2, 5), places{2, 5, 5}},
	} {
		if got, err := placesOf(c.online); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := placesOf(cpu.Of(0)); err == nil {
		t.Error("one CPU is enough")
	}
}
