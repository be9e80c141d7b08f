package awm

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// reportVersion is Report.Version. Fields are only ever added to it.
const reportVersion = 1

// Report is what a run found: the JSON of xlane awm run --json. Rates are a
// second of the window; MB are 1,000,000 bytes of payload.
type Report struct {
	Version int    `json:"version"`
	Server  string `json:"server"`
	// DurationS is the window that was measured, after WarmupS of warm-up.
	DurationS float64 `json:"duration_s"`
	WarmupS   float64 `json:"warmup_s"`
	// Interrupted says that the window was ended early.
	Interrupted bool `json:"interrupted"`
	// Checked says that contents were compared, and not only lengths.
	Checked bool          `json:"checked"`
	Classes []ClassReport `json:"classes"`
	// ClientHost and ServerHost are of each whole host: the CPU time of the
	// process, and how long its CPUs were busy with anything at all.
	ClientHost HostReport `json:"client_host"`
	ServerHost HostReport `json:"server_host"`
	// Problems describes payload errors, at most a few of each class.
	Problems []string `json:"problems"`
}

// ClassReport is what a run found of one class.
type ClassReport struct {
	Name        string `json:"name"`
	Spec        string `json:"spec"`
	Kind        string `json:"kind"`
	Connections int    `json:"connections"`
	Threads     int    `json:"threads"` // on either side

	// Transactions were completed at the client within the window. Endless
	// streams have none.
	Transactions     int64   `json:"transactions"`
	TransactionsPerS float64 `json:"transactions_per_s"`
	// InMBPerS was received by the server, OutMBPerS by the client.
	InMBPerS  float64 `json:"in_mb_per_s"`
	OutMBPerS float64 `json:"out_mb_per_s"`
	// Latency is missing where there are no transactions. It runs from the
	// request's sending (with rate=: its intended sending) to the reply's last
	// byte; a CRR's from connect to close, an FTP's from PASV to 226.
	Latency *LatencyReport `json:"latency_us,omitempty"`
	// Backlog counts the sends of an open loop that were intended before the
	// window ended and were not answered by then: their latency is missing.
	Backlog int64 `json:"backlog"`
	// Aborted counts connections that did not end in good order after the
	// window; the length check is left out if there are any.
	Aborted int64 `json:"aborted"`
	// PayloadErrors counts wrong contents, order or length, on either side and
	// over the whole run.
	PayloadErrors int64 `json:"payload_errors"`

	Client SideReport    `json:"client"`
	Server SideReport    `json:"server"`
	Series *SeriesReport `json:"series,omitempty"`
}

// LatencyReport is in microseconds, with three digits; Max is exact.
type LatencyReport struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// SideReport is what one end of a class saw in its window.
type SideReport struct {
	WindowS       float64 `json:"window_s"`
	Transactions  int64   `json:"transactions"`
	BytesSent     int64   `json:"bytes_sent"`
	BytesReceived int64   `json:"bytes_received"`
	// CPU time of the class's own threads, and its share of a transaction and
	// of a MB moved in either direction (0 where nothing moved).
	CPUUserUs           int64   `json:"cpu_user_us"`
	CPUSystemUs         int64   `json:"cpu_system_us"`
	CPUUsPerTransaction float64 `json:"cpu_us_per_transaction"`
	CPUUsPerMB          float64 `json:"cpu_us_per_mb"`
	// Busy time of all the host's CPUs, in a run of one class only: it cannot
	// be split between classes.
	BusyUsPerTransaction float64 `json:"busy_us_per_transaction,omitempty"`
	BusyUsPerMB          float64 `json:"busy_us_per_mb,omitempty"`
	// Retransmits (tcpi_total_retrans) are segments that this end sent again,
	// OutOfOrder (tcpi_rcv_ooopack) those it received out of order.
	Retransmits int64 `json:"retransmits"`
	OutOfOrder  int64 `json:"out_of_order"`
	ConnErrors  int64 `json:"conn_errors"`
	// Refused counts connections that were over the server's limit or had no
	// valid hello, over the whole run.
	Refused int64 `json:"refused"`
}

// SeriesReport is what moved in each interval of the window, in order. The
// first interval begins with the window.
type SeriesReport struct {
	IntervalS        float64   `json:"interval_s"`
	TransactionsPerS []float64 `json:"transactions_per_s"`
	InMBPerS         []float64 `json:"in_mb_per_s"`
	OutMBPerS        []float64 `json:"out_mb_per_s"`
}

// HostReport is one host's CPU use in the window, in microseconds.
type HostReport struct {
	WallUs          int64 `json:"wall_us"`
	ProcessUserUs   int64 `json:"process_user_us"`
	ProcessSystemUs int64 `json:"process_system_us"`
	// CPUs are those the process may use; busy is wall time minus idle time,
	// in steps of 10 ms.
	CPUs []CPUReport `json:"cpus"`
}

// CPUReport is how long one CPU was not idle.
type CPUReport struct {
	CPU    int   `json:"cpu"`
	BusyUs int64 `json:"busy_us"`
}

func (h HostReport) busyUs() (sum int64) {
	for _, c := range h.CPUs {
		sum += c.BusyUs
	}
	return sum
}

// PayloadErrors is the sum over all classes: the run has failed unless it is 0.
func (r Report) PayloadErrors() (n int64) {
	for _, c := range r.Classes {
		n += c.PayloadErrors
	}
	return n
}

// round keeps three decimals, so that reports can be read and compared.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// per divides, and is 0 where there is nothing to divide by.
func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return round(a / b)
}

func latencyOf(h *hdrhistogram.Histogram, most int64) *LatencyReport {
	if h.TotalCount() == 0 {
		return nil
	}
	us := func(ns int64) float64 { return round(float64(min(ns, most)) / 1000) }
	return &LatencyReport{
		Count: h.TotalCount(), Mean: round(h.Mean() / 1000), Max: us(most),
		P50: us(h.ValueAtQuantile(50)), P90: us(h.ValueAtQuantile(90)),
		P99: us(h.ValueAtQuantile(99)), P999: us(h.ValueAtQuantile(99.9)),
	}
}

// classParts is what a ClassReport is made of.
type classParts struct {
	spec             Spec
	threads          int
	client, server   side
	totals           side // the server's, at the end
	latency          *LatencyReport
	backlog, aborted int64
	interval         time.Duration
}

func (p classParts) report() (ClassReport, []string) {
	c := ClassReport{
		Name: p.spec.Name, Spec: p.spec.String(), Kind: p.spec.Kind.String(), Connections: p.spec.Conns, Threads: p.threads,
		Transactions: p.client.Counts.Transactions, Latency: p.latency, Backlog: p.backlog, Aborted: p.aborted,
		Client: sideReport(p.client), Server: sideReport(p.server),
	}
	c.TransactionsPerS = per(float64(c.Transactions), c.Client.WindowS)
	c.InMBPerS = per(float64(p.server.Counts.Received)/1e6, c.Server.WindowS)
	c.OutMBPerS = per(float64(p.client.Counts.Received)/1e6, c.Client.WindowS)
	c.Server.Refused = p.totals.Refused
	c.PayloadErrors = p.client.Total.PayloadErrors + p.totals.Total.PayloadErrors
	problems := append(prefixed("client: ", p.client.Details), prefixed("server: ", p.totals.Details)...)
	if wrong := p.lengths(); wrong != "" {
		c.PayloadErrors++
		problems = append(problems, wrong)
	}
	if p.interval > 0 {
		c.Series = p.series()
	}
	return c, problems
}

// lengths compares what either side sent in all with what the other got. It
// means something only if no connection broke off.
func (p classParts) lengths() string {
	a, b := p.client.Total, p.totals.Total
	if p.aborted+a.ConnErrors+b.ConnErrors+a.PayloadErrors+b.PayloadErrors > 0 {
		return ""
	}
	if a.Sent != b.Received || b.Sent != a.Received {
		return fmt.Sprintf("%s: the client sent %d bytes and the server got %d; the server sent %d and the client got %d",
			p.spec.Name, a.Sent, b.Received, b.Sent, a.Received)
	}
	return ""
}

func prefixed(prefix string, lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, prefix+l)
	}
	return out
}

func sideReport(s side) SideReport {
	mb := float64(s.Counts.Sent+s.Counts.Received) / 1e6
	return SideReport{
		WindowS: round(float64(s.WindowNs) / 1e9), Transactions: s.Counts.Transactions,
		BytesSent: s.Counts.Sent, BytesReceived: s.Counts.Received,
		CPUUserUs: s.CPU.User, CPUSystemUs: s.CPU.System,
		CPUUsPerTransaction: per(float64(s.CPU.total()), float64(s.Counts.Transactions)),
		CPUUsPerMB:          per(float64(s.CPU.total()), mb),
		Retransmits:         s.Counts.Retransmits, OutOfOrder: s.Counts.OutOfOrder, ConnErrors: s.Counts.ConnErrors,
	}
}

func (s *SideReport) busy(h HostReport) {
	s.BusyUsPerTransaction = per(float64(h.busyUs()), float64(s.Transactions))
	s.BusyUsPerMB = per(float64(h.busyUs()), float64(s.BytesSent+s.BytesReceived)/1e6)
}

func (p classParts) series() *SeriesReport {
	seconds := p.interval.Seconds()
	s := &SeriesReport{IntervalS: seconds, TransactionsPerS: []float64{}, InMBPerS: []float64{}, OutMBPerS: []float64{}}
	for i := range min(len(p.client.Samples), len(p.server.Samples)) {
		c, v := p.client.Samples[i], p.server.Samples[i]
		s.TransactionsPerS = append(s.TransactionsPerS, per(float64(c.Transactions), seconds))
		s.InMBPerS = append(s.InMBPerS, per(float64(v.Received)/1e6, seconds))
		s.OutMBPerS = append(s.OutMBPerS, per(float64(c.Received)/1e6, seconds))
	}
	return s
}

// nameWidth and the columns beside it make lines of at most 80 characters.
const nameWidth = 24

func fit(name string) string {
	if len(name) > nameWidth {
		return name[:nameWidth-1] + "~"
	}
	return name
}

// WriteText writes the report as tables of 80 columns.
func (r Report) WriteText(out io.Writer) error {
	var b strings.Builder
	checked := "payload checked"
	if !r.Checked {
		checked = "payload lengths checked only"
	}
	fmt.Fprintf(&b, "awm with %s: %.1f s after %.1f s of warm-up, %s\n", r.Server, r.DurationS, r.WarmupS, checked)
	if r.Interrupted {
		b.WriteString("The window was ended early.\n")
	}
	r.textLoad(&b)
	r.textCost(&b)
	r.textTrouble(&b)
	r.textHosts(&b)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "payload error: %s\n", p)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (r Report) textLoad(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-*s%10s%9s%9s%9s%9s%10s\n", nameWidth, "latency in us", "trans/s", "p50", "p90", "p99", "p99.9", "max")
	for _, c := range r.Classes {
		fmt.Fprintf(b, "%-*s", nameWidth, fit(c.Name))
		if l := c.Latency; l != nil {
			fmt.Fprintf(b, "%10.1f%9.1f%9.1f%9.1f%9.1f%10.1f\n", c.TransactionsPerS, l.P50, l.P90, l.P99, l.P999, l.Max)
			continue
		}
		fmt.Fprintf(b, "%10s%9s%9s%9s%9s%10s\n", "-", "-", "-", "-", "-", "-")
	}
}

func (r Report) textCost(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-*s%18s%18s%18s\n", nameWidth, "", "MB/s", "client CPU us", "server CPU us")
	fmt.Fprintf(b, "%-*s%9s%9s%9s%9s%9s%9s\n", nameWidth, "", "in", "out", "a trans", "a MB", "a trans", "a MB")
	for _, c := range r.Classes {
		fmt.Fprintf(b, "%-*s%9.1f%9.1f%9.1f%9.1f%9.1f%9.1f\n", nameWidth, fit(c.Name), c.InMBPerS, c.OutMBPerS,
			c.Client.CPUUsPerTransaction, c.Client.CPUUsPerMB, c.Server.CPUUsPerTransaction, c.Server.CPUUsPerMB)
	}
}

func (r Report) textTrouble(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-*s%16s%16s%16s%8s\n", nameWidth, "", "retransmits", "out of order", "conn errors", "payload")
	fmt.Fprintf(b, "%-*s%8s%8s%8s%8s%8s%8s%8s\n", nameWidth, "", "client", "server", "client", "server", "client", "server", "errors")
	for _, c := range r.Classes {
		fmt.Fprintf(b, "%-*s%8d%8d%8d%8d%8d%8d%8d\n", nameWidth, fit(c.Name), c.Client.Retransmits, c.Server.Retransmits,
			c.Client.OutOfOrder, c.Server.OutOfOrder, c.Client.ConnErrors, c.Server.ConnErrors, c.PayloadErrors)
		if c.Backlog > 0 {
			fmt.Fprintf(b, "  %d intended sends were late and are not in the latencies\n", c.Backlog)
		}
		if c.Aborted > 0 {
			fmt.Fprintf(b, "  %d connections did not end in good order\n", c.Aborted)
		}
	}
}

func (r Report) textHosts(b *strings.Builder) {
	b.WriteByte('\n')
	for _, h := range []struct {
		name string
		host HostReport
	}{{"client", r.ClientHost}, {"server", r.ServerHost}} {
		wall := float64(h.host.WallUs)
		fmt.Fprintf(b, "%s process %.2f s user, %.2f s system; busy:", h.name,
			float64(h.host.ProcessUserUs)/1e6, float64(h.host.ProcessSystemUs)/1e6)
		for i, c := range h.host.CPUs {
			if i == 8 { // one line; JSON has all
				fmt.Fprintf(b, " and %d more", len(h.host.CPUs)-i)
				break
			}
			fmt.Fprintf(b, " CPU%d %.0f%%", c.CPU, 100*per(float64(c.BusyUs), wall))
		}
		b.WriteByte('\n')
	}
}
