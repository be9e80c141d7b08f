package cli

import (
	"bytes"
	"strings"
	"testing"

	"xlane/internal/bench"
)

func TestBenchListsItsPlan(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := Run([]string{"bench", "inbound", "--list"}, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	for _, e := range bench.Experiments() {
		if !strings.Contains(stdout.String(), e.Title) {
			t.Errorf("%q is not listed", e.Title)
		}
	}
	for _, m := range bench.Modes() {
		if !strings.Contains(stdout.String(), m.Says) {
			t.Errorf("mode %q is not explained", m.Name)
		}
	}
}

func TestBenchAndDemoRefuseWhatTheyDoNotKnow(t *testing.T) {
	for _, c := range []struct{ name, line, says string }{
		{"no experiments named", "bench", "inbound"},
		{"experiments of another kind", "bench sideways", "inbound"},
		{"an experiment that does not exist", "bench inbound --only rr9", "rr1+str1"},
		{"a mode that does not exist", "bench inbound --modes fast", "iwq"},
		{"a mode that the short form can have, and an experiment that it has not", "bench inbound --short --only rr30", "rr1+str1"},
		{"an argument", "bench inbound now", "takes no arguments"},
		{"rounds that are no number", "bench inbound --rounds many", "many"},
		{"an argument of the demo", "lab demo now", "takes no arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Run(strings.Fields(c.line), &stdout, &stderr); code != exitUsage {
				t.Errorf("exit %d, want %d", code, exitUsage)
			}
			if !strings.Contains(stderr.String(), c.says) {
				t.Errorf("it says %q, and not %q", stderr.String(), c.says)
			}
		})
	}
}
