package awm

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Latencies are kept from 1 ns to 100 s with three digits; longer ones count
// as 100 s, and the exact maximum is kept beside.
const (
	latencyMax    = int64(100 * time.Second)
	latencyDigits = 3
)

// detailsMax is how many payload errors are described; all are counted.
const detailsMax = 16

// tally is what a worker counts. Bytes are payload, without hellos, frame
// heads and FTP commands.
type tally struct {
	Transactions  int64
	Sent          int64
	Received      int64
	Connects      int64
	ConnErrors    int64
	PayloadErrors int64
	Retransmits   int64
	OutOfOrder    int64
}

func (t *tally) add(o tally) {
	t.Transactions += o.Transactions
	t.Sent += o.Sent
	t.Received += o.Received
	t.Connects += o.Connects
	t.ConnErrors += o.ConnErrors
	t.PayloadErrors += o.PayloadErrors
	t.Retransmits += o.Retransmits
	t.OutOfOrder += o.OutOfOrder
}

func (t tally) minus(o tally) tally {
	return tally{
		Transactions: t.Transactions - o.Transactions, Sent: t.Sent - o.Sent, Received: t.Received - o.Received,
		Connects: t.Connects - o.Connects, ConnErrors: t.ConnErrors - o.ConnErrors, PayloadErrors: t.PayloadErrors - o.PayloadErrors,
		Retransmits: t.Retransmits - o.Retransmits, OutOfOrder: t.OutOfOrder - o.OutOfOrder,
	}
}

// worker is one thread of one class, on either end. Its fields belong to its
// loop's thread; others ask.
type worker struct {
	loop  *loop
	spec  Spec
	class int
	token uint64
	check bool
	buf   []byte
	opts  socketOptions
	set   func(fd int) error // opts.set, made once: a method value allocates

	tally     tally // since the worker began
	total     tally // only Sent and Received, for the length check at the end
	hist      *hdrhistogram.Histogram
	latest    int64 // the longest latency of the window, exactly
	measuring bool
	window    window
	details   []string
	lastErr   error
	info      unix.TCPInfo
	live      int
	done      chan struct{}
}

// window is what a worker saw between begin and end.
type window struct {
	began, ended   int64 // the loop's clock
	cpu0, cpu1     cpuTime
	tally0, tally1 tally
	samples        []sample
	sampled        tally
}

// sample is what moved in one interval.
type sample struct{ Transactions, Sent, Received int64 }

// init makes the worker's loop; close lets go of it if start is never called.
func (w *worker) init(clock func() int64, s Spec, class int, token uint64, check bool) error {
	opts, err := newSocketOptions(s)
	if err != nil {
		return err
	}
	if w.loop, err = newLoop(clock); err != nil {
		return err
	}
	w.spec, w.class, w.token, w.check, w.opts = s, class, token, check, opts
	w.set = w.opts.set
	w.buf = make([]byte, s.Call)
	w.hist = hdrhistogram.New(1, latencyMax, latencyDigits)
	w.done = make(chan struct{})
	patternBlock() // made before the first connection needs it
	return nil
}

// start runs the loop on a thread of its own until it is stopped.
func (w *worker) start(wg *sync.WaitGroup) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w.loop.run()
		for _, c := range w.loop.slots {
			w.loop.drop(c)
		}
		w.loop.close()
		close(w.done)
	}()
}

// record counts one transaction that began at from.
func (w *worker) record(from, now int64) {
	w.tally.Transactions++
	if !w.measuring {
		return
	}
	d := max(now-from, 1)
	w.latest = max(w.latest, d)
	// The only error is a value out of range, which min rules out.
	_ = w.hist.RecordValue(min(d, latencyMax))
}

// counted returns the tally with what the open sockets know.
func (w *worker) counted() tally {
	t := w.tally
	for _, c := range w.loop.slots {
		if c.fd >= 0 && !c.connecting {
			r, o := w.tcpCounts(c)
			t.Retransmits += r
			t.OutOfOrder += o
		}
	}
	return t
}

func (w *worker) tcpCounts(c *conn) (retransmits, outOfOrder int64) {
	if sysTCPInfo(c.fd, &w.info) != 0 {
		return 0, 0 // a listening socket, or one that is going away
	}
	return int64(w.info.Total_retrans), int64(w.info.Rcv_ooopack)
}

// forget adds what a socket knows to the tally, before it is closed.
func (w *worker) forget(c *conn) {
	if c.fd < 0 || c.connecting {
		return
	}
	r, o := w.tcpCounts(c)
	w.tally.Retransmits += r
	w.tally.OutOfOrder += o
}

func (w *worker) beginWindow() {
	w.hist.Reset()
	w.latest = 0
	w.window = window{began: w.loop.clock(), cpu0: threadCPU(), tally0: w.counted()}
	w.window.sampled = w.tally
	w.measuring = true
}

func (w *worker) takeSample() {
	if !w.measuring || len(w.window.samples) >= samplesMax {
		return
	}
	d := w.tally.minus(w.window.sampled)
	w.window.sampled = w.tally
	w.window.samples = append(w.window.samples, sample{d.Transactions, d.Sent, d.Received})
}

func (w *worker) endWindow() {
	w.measuring = false
	w.window.tally1, w.window.cpu1, w.window.ended = w.counted(), threadCPU(), w.loop.clock()
}

func (w *worker) payloadError(c *conn, at int64, what string) {
	w.tally.PayloadErrors++
	if len(w.details) < detailsMax {
		w.details = append(w.details, fmt.Sprintf("%s connection %d, payload offset %d: %s", w.spec.Name, c.id, at, what))
	}
	c.role.ended(c, errPayload)
}

var errPayload = fmt.Errorf("the payload is wrong")

// connError counts a connection that ended when it should not have.
func (w *worker) connError(err error) {
	if err == errPayload {
		return // counted as what it is
	}
	w.tally.ConnErrors++
	w.lastErr = err
}

// lastDetail describes the latest payload error.
func (w *worker) lastDetail() string {
	if len(w.details) == 0 {
		return "see the count"
	}
	return w.details[len(w.details)-1]
}

// side is what one end reports of a class: a message of the control
// connection, and half of a ClassReport.
type side struct {
	WindowNs int64    `json:"window_ns"`
	CPU      cpuTime  `json:"cpu"`
	Counts   tally    `json:"counts"`
	Samples  []sample `json:"samples,omitempty"`
	// Total and Errors are of the whole run, not of the window.
	Total   tally    `json:"total"`
	Details []string `json:"details,omitempty"`
	Refused int64    `json:"refused,omitempty"`
}

// figures returns what the worker saw, for the window that has ended.
func (w *worker) figures() side {
	total := w.counted()
	total.Sent, total.Received = w.total.Sent, w.total.Received
	return side{
		WindowNs: w.window.ended - w.window.began,
		CPU:      w.window.cpu1.minus(w.window.cpu0),
		Counts:   w.window.tally1.minus(w.window.tally0),
		Samples:  w.window.samples,
		Total:    total,
		Details:  w.details,
	}
}

// merge adds the threads of one class up. Their windows are one window, give
// or take a scheduling delay: the mean counts.
func merge(parts []side) side {
	var m side
	for _, p := range parts {
		m.WindowNs += p.WindowNs / int64(len(parts))
		m.CPU.User += p.CPU.User
		m.CPU.System += p.CPU.System
		m.Counts.add(p.Counts)
		m.Total.add(p.Total)
		m.Refused += p.Refused
		m.Details = append(m.Details, p.Details...)
		for i, s := range p.Samples {
			if i == len(m.Samples) {
				m.Samples = append(m.Samples, sample{})
			}
			m.Samples[i].Transactions += s.Transactions
			m.Samples[i].Sent += s.Sent
			m.Samples[i].Received += s.Received
		}
	}
	m.Details = m.Details[:min(len(m.Details), detailsMax)]
	return m
}
