package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"xlane/internal/testenv"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       uint64
		ok         bool
	}{
		{"nothing is no limit", "", 0, true},
		{"bits per second", "1500000", 1_500_000, true},
		{"thousands", "64k", 64_000, true},
		{"millions, with a fraction", "2.5M", 2_500_000, true},
		{"billions", "10g", 10_000_000_000, true},
		{"a suffix alone", "M", 0, false},
		{"negative", "-1M", 0, false},
		{"not a number", "NaN", 0, false},
		{"more than any link", "1e9G", 0, false},
		{"a unit that is none", "10Mbit", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseRate(c.text)
			if got != c.want || (err == nil) != c.ok {
				t.Errorf("%q is %d (%v), want %d", c.text, got, err, c.want)
			}
		})
	}
}

func TestLabRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args string
	}{
		{"no verb", "lab"},
		{"a loss above all", "lab up --loss 101"},
		{"a rate that is none", "lab up --rate fast"},
		{"jitter without a delay", "lab up --jitter 1ms"},
		{"a plain veth with queues", "lab up --plain-veth --queues 4"},
		{"no hosts", "lab up --hosts="},
		{"an argument", "lab up now"},
		{"two labs", "lab down one two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Run(strings.Fields(c.args), &stdout, &stderr); code != exitUsage || stdout.Len() > 0 || stderr.Len() == 0 {
				t.Errorf("%q exits with %d and says %q %q", c.args, code, &stdout, &stderr)
			}
		})
	}
}

// TestLabUpStaysUntilDown runs the real program, because `lab up` starts
// itself once more.
func TestLabUpStaysUntilDown(t *testing.T) {
	testenv.Lab(t)
	xlane := filepath.Join(t.TempDir(), "xlane")
	if out, err := exec.Command(testenv.Tool(t, "go"), "build", "-o", xlane, "xlane/cmd/xlane").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := fmt.Sprintf("cli-%d", os.Getpid())
	up := func() (labReport, error) {
		var report labReport
		out, err := exec.Command(xlane, "lab", "up", "--name", name, "--hosts", "left,right", "--queues", "2",
			"--rate", "1G", "--loss", "0.1", "--delay", "1ms", "--json").Output()
		if err == nil {
			err = json.Unmarshal(out, &report)
		}
		return report, err
	}
	report, err := up()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = exec.Command(xlane, "lab", "down", name).Run() }()
	if len(report.Hosts) != 2 || report.Hosts[1].Name != "right" || report.Hosts[1].Queues != 2 {
		t.Errorf("the report is %+v", report)
	}
	for _, ns := range []string{report.WireNetNS, report.Hosts[0].NetNS, report.Hosts[1].NetNS} {
		if _, err := os.Stat(filepath.Join("/run/netns", ns)); err != nil {
			t.Errorf("after `lab up` has returned: %v", err)
		}
	}
	if _, err := up(); err == nil {
		t.Error("the same lab was made twice")
	}
	out, err := exec.Command(xlane, "lab", "down", name).Output()
	if err != nil || string(out) != "removed "+report.Name+"\n" {
		t.Errorf("`lab down` says %q, %v", out, err)
	}
	if left, _ := filepath.Glob("/run/netns/" + report.Name + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := exec.Command(xlane, "lab", "down", name).Run(); err == nil {
		t.Error("a lab that is not there was removed")
	}
}
