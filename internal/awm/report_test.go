package awm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"xlane/internal/testenv"
)

// newFTPTalk logs on and returns a function that says a line and returns the
// answer.
func newFTPTalk(t *testing.T, at string) func(line string) string {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	answer := func() string {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("read an answer: %v", err)
		}
		return strings.TrimRight(line, "\r\n")
	}
	if got := answer(); !strings.HasPrefix(got, "220 ") {
		t.Fatalf("the greeting is %q", got)
	}
	return func(line string) string {
		if _, err := fmt.Fprintf(c, "%s\r\n", line); err != nil {
			t.Fatal(err)
		}
		return answer()
	}
}

// sampleReport is made from the parts that a run would have gathered.
func sampleReport(t *testing.T) Report {
	h := hdrhistogram.New(1, latencyMax, latencyDigits)
	for i := int64(1); i <= 1000; i++ {
		if err := h.RecordValue(i * 1000); err != nil {
			t.Fatal(err)
		}
	}
	rr := classParts{
		spec: specs(t, "RR8(100/800):rate=25")[0], threads: 1, latency: latencyOf(h, 1_000_400), backlog: 3,
		client: side{WindowNs: 5e9, CPU: cpuTime{100, 3900}, Counts: tally{Transactions: 1000, Sent: 100_000, Received: 800_000},
			Total: tally{Sent: 100_000, Received: 800_000}},
		server: side{WindowNs: 5e9, CPU: cpuTime{100, 4900}, Counts: tally{Transactions: 1000, Sent: 800_000, Received: 100_000, Retransmits: 2}},
		totals: side{Total: tally{Sent: 800_000, Received: 100_000}},
	}
	bulk := classParts{
		spec: specs(t, "STR1(in):name=the-long-name-of-a-bulk-stream,pace=1G")[0], threads: 1, interval: 100 * time.Millisecond,
		client: side{WindowNs: 5e9, CPU: cpuTime{1000, 99_000}, Counts: tally{Sent: 625_000_000, ConnErrors: 0},
			Total: tally{Sent: 700_000_000}, Samples: []sample{{0, 12_500_000, 0}, {0, 12_000_000, 0}}},
		server: side{WindowNs: 5e9, CPU: cpuTime{2000, 198_000}, Counts: tally{Received: 625_000_000, OutOfOrder: 7},
			Samples: []sample{{0, 0, 12_400_000}}},
		totals: side{Total: tally{Received: 699_999_999}, Refused: 1},
	}
	r := Report{Version: reportVersion, Server: "10.0.0.2:5201", DurationS: 5, WarmupS: 0.5, Checked: true, Interrupted: true,
		ClientHost: HostReport{WallUs: 5_000_000, ProcessUserUs: 10_000, ProcessSystemUs: 110_000, CPUs: []CPUReport{{1, 500_000}}},
		ServerHost: HostReport{WallUs: 5_000_000, ProcessUserUs: 10_000, ProcessSystemUs: 210_000, CPUs: []CPUReport{{0, 2_500_000}}},
	}
	for _, p := range []classParts{rr, bulk} {
		c, problems := p.report()
		r.Classes = append(r.Classes, c)
		r.Problems = append(r.Problems, problems...)
	}
	return r
}

func TestReportReadsAsIntended(t *testing.T) {
	r := sampleReport(t)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(text.String(), "\n") {
		if len(line) > 80 && !strings.HasPrefix(line, "payload error: ") {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	testenv.Golden(t, "report.txt", text.Bytes())
	js, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Golden(t, "report.json", append(js, '\n'))
	var back Report
	if err := json.Unmarshal(js, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, back); d != "" {
		t.Errorf("the JSON does not read back (-want +got)\n%s", d)
	}
	if r.PayloadErrors() != 1 {
		t.Errorf("a stream that lost a byte has %d payload errors", r.PayloadErrors())
	}
}

func TestIdleTimesComeFromTheNamedCPUs(t *testing.T) {
	const stat = "cpu  10 0 10 1000 20 0 0 0 0 0\ncpu0 5 0 5 400 10 0 0 0 0 0\ncpu1 5 0 5 600 10 0 0 0 0 0\nintr 5\n"
	got, err := readIdle(stat, []int{1})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]cpuIdle{{CPU: 1, Idle: 6_100_000}}, got); d != "" {
		t.Error(d)
	}
	a, b := hostMark{at: 0, idle: got}, hostMark{at: 3e9, idle: []cpuIdle{{CPU: 1, Idle: 8_100_000}}}
	if h := hostBetween(a, b); h.CPUs[0].BusyUs != 1_000_000 {
		t.Errorf("one second of three was busy, not %d us", h.CPUs[0].BusyUs)
	}
}

func TestParseCPUsReadsLists(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "3,0-1,1": {0, 1, 3}, "": nil, "a": nil, "2-1": nil, "1-": nil, "5000": nil} {
		got, err := ParseCPUs(text)
		if d := cmp.Diff(want, got); d != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %s", text, err, d)
		}
	}
}
