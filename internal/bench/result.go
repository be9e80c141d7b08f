package bench

import (
	"time"
)

// ResultFormat is the version of the JSON; fields are only ever added.
const ResultFormat = 1

// Result is one whole bench: the JSON of `xlane bench inbound --json`.
type Result struct {
	Format  int       `json:"format"`
	Bench   string    `json:"bench"` // "inbound"
	Taken   time.Time `json:"taken"`
	Command string    `json:"command"`
	Machine Machine   `json:"machine"`
	Method  Method    `json:"method"`
	// Experiments hold what was measured, Targets what it was meant to reach.
	Experiments []ExperimentResult `json:"experiments"`
	Targets     []Target           `json:"targets"`
	// Story is what xlane did in the last IWQ run of RR beside a stream.
	Story *Story `json:"story,omitempty"`
}

// Machine is where it was measured.
type Machine struct {
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	Version string `json:"version"` // of xlane
	// Idle is how its CPUs wait for work; "" unknown.
	Idle string `json:"idle,omitempty"`
}

// Method is how it was measured.
type Method struct {
	Rounds    int     `json:"rounds"`
	DurationS float64 `json:"duration_s"`
	WarmupS   float64 `json:"warmup_s"`
	ServerCPU int     `json:"server_cpu"`
	WireCPU   int     `json:"wire_cpu"`
	ClientCPU int     `json:"client_cpu"`
	Short     bool    `json:"short"`
	// SendFrames is how many frames a sender hands to the 1 Gb/s wire at once.
	SendFrames int `json:"send_frames"`
}

// ExperimentResult is one load in several modes.
type ExperimentResult struct {
	Name  string  `json:"name"`
	Title string  `json:"title"`
	RR    string  `json:"rr,omitempty"`
	STR   string  `json:"str,omitempty"`
	Wire  Wire    `json:"wire"`
	Loss  float64 `json:"loss,omitempty"`
	Cells []Cell  `json:"cells"`
}

// Cell is all runs of one load in one mode, in the order of rounds.
type Cell struct {
	Mode string `json:"mode"`
	Runs []Run  `json:"runs"`
	// Failed says why rounds are missing; they are then missing from Runs.
	Failed []string `json:"failed,omitempty"`
}

// Run is what one run measured. Rates are a second of the window; CPU is a
// share of one CPU, 0 to 1; MB are 1,000,000 bytes of payload.
type Run struct {
	Round int      `json:"round"`
	RR    *RRRun   `json:"rr,omitempty"`
	STR   *STRRun  `json:"str,omitempty"`
	Q     []QRun   `json:"queues,omitempty"`
	Why   []string `json:"decisions,omitempty"` // the daemon's last, a line each

	// ServerBusy is wall time less idle time of the server's CPU, with all that
	// ran on it: the service, the queues' threads, softirqs and the daemon.
	ServerBusy float64 `json:"server_busy"`
	// ControlBusy is the part of it that this process took: the daemon where
	// there is one. Where it only imitates the kernel's own algorithm (DIM) it
	// has been taken out of ServerBusy, because the kernel's costs next to nothing.
	ControlBusy float64 `json:"control_busy"`
	// WireBusy is the same of the CPU that has the wire, and the clients too
	// when there are only two.
	WireBusy float64 `json:"wire_busy"`

	// OutOfOrder segments were queued by the server's TCP (TcpExtTCPOFOQueue),
	// Retransmits were sent by the clients, RingDrops found a receive ring full, or
	// the queue before it; all of them over the whole run with its beginning and end.
	OutOfOrder    int64 `json:"out_of_order"`
	Retransmits   int64 `json:"retransmits"`
	RingDrops     int64 `json:"ring_drops"`
	PayloadErrors int64 `json:"payload_errors"`
}

// RRRun is the interactive part. Latencies are in microseconds.
type RRRun struct {
	PerS float64 `json:"per_s"`
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

// STRRun is the streaming part.
type STRRun struct {
	MBPerS float64 `json:"mb_per_s"`
}

// QRun is one receive queue in the window.
type QRun struct {
	Name     string  `json:"name"`
	PacketsS float64 `json:"packets_per_s"`
	WakesS   float64 `json:"wakes_per_s"`
	Busy     float64 `json:"busy"` // of its thread
	HoldUs   float64 `json:"hold_us"`
}

// Story is what the daemon did with one stream, for people to read.
type Story struct {
	// FoundBytes is how much a connection had streamed when it was found, and
	// MovedBytes when its packets first went to BULKDATA; 0 unknown.
	FoundBytes int64 `json:"found_bytes"`
	MovedBytes int64 `json:"moved_bytes"`
	// Queues and Decisions are of the end of that run.
	Queues    []QRun   `json:"queues"`
	Decisions []string `json:"decisions"`
	Changes   int      `json:"changes"` // settings of the host, all put back
}

// Metric takes one figure out of a run; ok is false where the run has none.
type Metric struct {
	Name, Unit string
	Of         func(Run) (v float64, ok bool)
}

// The metrics of reports.
var (
	RRPerS  = Metric{"transactions", "/s", func(r Run) (float64, bool) { return ofRR(r, func(x RRRun) float64 { return x.PerS }) }}
	RRP50   = Metric{"median latency", "µs", func(r Run) (float64, bool) { return ofRR(r, func(x RRRun) float64 { return x.P50 }) }}
	RRP99   = Metric{"p99 latency", "µs", func(r Run) (float64, bool) { return ofRR(r, func(x RRRun) float64 { return x.P99 }) }}
	STRMBps = Metric{"stream", "MB/s", func(r Run) (float64, bool) {
		if r.STR == nil {
			return 0, false
		}
		return r.STR.MBPerS, true
	}}
	ServerCPU = Metric{"server CPU", "%", func(r Run) (float64, bool) { return 100 * r.ServerBusy, true }}
	WireCPU   = Metric{"wire and client CPU", "%", func(r Run) (float64, bool) { return 100 * r.WireBusy, true }}
	ThreadCPU = Metric{"queues' threads", "%", func(r Run) (float64, bool) {
		sum := 0.0
		for _, q := range r.Q {
			sum += q.Busy
		}
		return 100 * sum, len(r.Q) > 0
	}}
	UsPerMB = Metric{"server CPU", "µs/MB", func(r Run) (float64, bool) {
		if r.STR == nil || r.STR.MBPerS == 0 {
			return 0, false
		}
		return 1e6 * r.ServerBusy / r.STR.MBPerS, true
	}}
	UsPerTran = Metric{"server CPU", "µs/transaction", func(r Run) (float64, bool) {
		if r.RR == nil || r.RR.PerS == 0 {
			return 0, false
		}
		return 1e6 * r.ServerBusy / r.RR.PerS, true
	}}
	Drops = Metric{"ring drops", "", func(r Run) (float64, bool) { return float64(r.RingDrops), true }}
)

func ofRR(r Run, f func(RRRun) float64) (float64, bool) {
	if r.RR == nil {
		return 0, false
	}
	return f(*r.RR), true
}

// Cell finds what was measured; nil when it was not.
func (r *Result) Cell(experiment, mode string) *Cell {
	for i := range r.Experiments {
		if r.Experiments[i].Name == experiment {
			return r.Experiments[i].Cell(mode)
		}
	}
	return nil
}

// Cell finds one mode's runs; nil when there are none.
func (e *ExperimentResult) Cell(mode string) *Cell {
	for i := range e.Cells {
		if e.Cells[i].Mode == mode && len(e.Cells[i].Runs) > 0 {
			return &e.Cells[i]
		}
	}
	return nil
}

// Spread summarises one metric of a cell.
func (c *Cell) Spread(m Metric) (Spread, bool) {
	if c == nil {
		return Spread{}, false
	}
	var values []float64
	for _, r := range c.Runs {
		if v, ok := m.Of(r); ok {
			values = append(values, v)
		}
	}
	return SpreadOf(values)
}

// Sum adds a count up over all runs of a cell.
func (c *Cell) Sum(of func(Run) int64) int64 {
	var n int64
	for _, r := range c.Runs {
		n += of(r)
	}
	return n
}
