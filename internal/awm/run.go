package awm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

const (
	// setupLimit is how long all connections may take to open.
	setupLimit = 15 * time.Second
	// drainLimit is how long connections may take to end in good order; it is
	// shorter than the server's closeLimit.
	drainLimit = 5 * time.Second
	// DurationMax bounds a run.
	DurationMax = 24 * time.Hour
	// IntervalMin is the shortest time between two samples of a run.
	IntervalMin = time.Millisecond
)

// RunConfig is one run.
type RunConfig struct {
	// Server is HOST:PORT of an awm server.
	Server string
	Specs  []Spec
	// Duration is the window that is measured, after Warmup.
	Duration, Warmup time.Duration
	// Interval, if it is not 0, adds samples of what moved in each.
	Interval time.Duration
	// Threads is how many threads each class gets on either side, at most one
	// for each connection; 0 is 1.
	Threads int
	// CPUs pins the whole process, and chooses the CPUs whose busy time is
	// reported; empty means those the process may use.
	CPUs []int
	// NoCheck leaves out the comparison of contents, on both sides. Lengths
	// are checked all the same.
	NoCheck bool
}

func (c *RunConfig) check() error {
	if c.Threads == 0 {
		c.Threads = 1
	}
	if err := checkMix(c.Specs); err != nil {
		return err
	}
	threads := countThreads(c.Specs, c.Threads)
	switch {
	case c.Threads < 0 || threads > ThreadsMax:
		return fmt.Errorf("%d threads are not possible; use at most %d over all classes", threads, ThreadsMax)
	case c.Duration < 10*time.Millisecond || c.Duration > DurationMax:
		return fmt.Errorf("a duration of %v is not possible; use 10ms to %v", c.Duration, DurationMax)
	case c.Warmup < 0 || c.Warmup > DurationMax:
		return fmt.Errorf("a warm-up of %v is not possible; use 0s to %v", c.Warmup, DurationMax)
	case c.Interval != 0 && (c.Interval < IntervalMin || c.Duration/c.Interval > samplesMax):
		return fmt.Errorf("an interval of %v is not possible; use at least %v, and at most %d of them", c.Interval, IntervalMin, samplesMax)
	}
	conns := 100 // room for what the process has open besides
	for _, s := range c.Specs {
		conns += s.Conns
		if s.Kind == FTP {
			conns += s.Conns
		}
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err == nil && uint64(conns) > lim.Cur {
		return fmt.Errorf("the run needs %d open files and the limit is %d; raise it with ulimit -n", conns, lim.Cur)
	}
	return nil
}

// run is one run's client side.
type run struct {
	cfg     RunConfig
	clock   func() int64
	control *lineConn
	answers chan answer
	broken  chan struct{} // closed when the control connection is gone
	readErr error         // why; read it after broken
	classes [][]*clientWorker
	wg      sync.WaitGroup
	begun   hostMark
	host    HostReport
	backlog []int64
	server  answer // of the window
	early   bool   // ctx ended the window
}

// Run loads the server with the mix and reports. When ctx ends during the
// window the report covers what there was of it, and says so. Wrong payload is
// in the report (Report.PayloadErrors), not in the error.
func Run(ctx context.Context, cfg RunConfig) (Report, error) {
	if err := cfg.check(); err != nil {
		return Report{}, err
	}
	cpus, err := pinProcess(cfg.CPUs)
	if err != nil {
		return Report{}, err
	}
	r := &run{cfg: cfg, clock: monotonic(), answers: make(chan answer), broken: make(chan struct{})}
	ports, err := r.dial(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("start a run with %s: %w", cfg.Server, err)
	}
	defer func() { _ = r.control.Close() }()
	defer reserveProcs(countThreads(cfg.Specs, cfg.Threads))()
	defer r.abort()
	if err := r.start(ports); err != nil {
		return Report{}, err
	}
	stop := make(chan struct{})
	defer close(stop)
	go every(pingEvery, stop, func() { _ = r.control.write(request{Op: "ping"}) })
	if err := r.awaitOpen(ctx); err != nil {
		return Report{}, err
	}
	if err := r.measure(ctx, cpus); err != nil {
		return Report{}, fmt.Errorf("run with %s: %w", cfg.Server, err)
	}
	totals, err := r.finish()
	if err != nil {
		return Report{}, fmt.Errorf("end the run with %s: %w", cfg.Server, err)
	}
	return r.report(totals), nil
}

// dial opens the control connection and agrees on the run.
func (r *run) dial(ctx context.Context) (answer, error) {
	var a answer
	d := net.Dialer{Timeout: helloTimeout}
	c, err := d.DialContext(ctx, "tcp", r.cfg.Server)
	if err != nil {
		return a, err
	}
	r.control = newLineConn(c, answerMax)
	words := make([]string, 0, len(r.cfg.Specs))
	for _, s := range r.cfg.Specs {
		words = append(words, s.String())
	}
	hello := request{
		Op: "hello", Version: protocolVersion, Classes: words, Threads: r.cfg.Threads,
		Check: !r.cfg.NoCheck, IntervalUs: r.cfg.Interval.Microseconds(),
	}
	if err = r.control.write(hello); err == nil {
		err = r.control.read(&a, answerLimit)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("greet the server (is it xlane awm serve?): %w", err)
	case a.Op == "refused":
		err = fmt.Errorf("the server refuses: %s", a.Error)
	case a.Op != "ports" || a.Version != protocolVersion || len(a.Ports) != len(words):
		err = fmt.Errorf("greet the server: it answers %q in version %d of the awm protocol, not %d", a.Op, a.Version, protocolVersion)
	}
	if err != nil {
		_ = c.Close()
	}
	return a, err
}

// start starts the threads, whose connections open at once.
func (r *run) start(a answer) error {
	token, err := parseToken(a.Token)
	if err != nil {
		return err
	}
	go r.readAnswers()
	peer := r.control.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	if peer.Is4In6() {
		peer = peer.Unmap()
	}
	for i, s := range r.cfg.Specs {
		threads := min(r.cfg.Threads, s.Conns)
		if len(a.Ports[i]) != threads {
			return fmt.Errorf("the server opened %d ports for %s, not %d", len(a.Ports[i]), s.Name, threads)
		}
		r.classes = append(r.classes, nil)
		for t := range threads {
			var ids []uint32
			for id := t; id < s.Conns; id += threads {
				ids = append(ids, uint32(id))
			}
			to := netip.AddrPortFrom(peer, a.Ports[i][t])
			w, err := newClientWorker(r.clock, s, i, token, !r.cfg.NoCheck, to, ids)
			if err != nil {
				return fmt.Errorf("start %s: %w", s.Name, err)
			}
			r.classes[i] = append(r.classes[i], w)
			w.start(&r.wg)
			w.loop.ask(w.openMore)
		}
	}
	return nil
}

// readAnswers hands the server's answers over until the connection is gone.
func (r *run) readAnswers() {
	defer close(r.broken)
	for {
		var a answer
		if r.readErr = r.control.read(&a, DurationMax+time.Hour); r.readErr != nil {
			return
		}
		select {
		case r.answers <- a:
		case <-time.After(answerLimit):
			r.readErr = fmt.Errorf("the server said %q unasked", a.Op)
			return
		}
	}
}

// request asks the server and waits for the answer called op.
func (r *run) request(name, op string) (answer, error) {
	if err := r.control.write(request{Op: name}); err != nil {
		return answer{}, fmt.Errorf("ask the server to %s: %w", name, err)
	}
	t := time.NewTimer(answerLimit)
	defer t.Stop()
	select {
	case a := <-r.answers:
		if a.Op != op {
			return a, fmt.Errorf("ask the server to %s: it answers %q %s", name, a.Op, a.Error)
		}
		return a, nil
	case <-r.broken:
		return answer{}, fmt.Errorf("ask the server to %s: %w", name, r.readErr)
	case <-t.C:
		return answer{}, fmt.Errorf("ask the server to %s: no answer in %v", name, answerLimit)
	}
}

// each runs f on every worker's thread, and waits for all.
func (r *run) each(f func(w *clientWorker)) {
	var wg sync.WaitGroup
	for _, class := range r.classes {
		for _, w := range class {
			wg.Add(1)
			if !w.loop.ask(func() { f(w); wg.Done() }) {
				wg.Done()
			}
		}
	}
	wg.Wait()
}

// awaitOpen waits until every connection is open.
func (r *run) awaitOpen(ctx context.Context) error {
	limit := time.Now().Add(setupLimit)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		var missing error
		for i, s := range r.cfg.Specs {
			var open int
			var last error
			for _, w := range r.classes[i] {
				w.loop.askWait(func() {
					open += w.open
					if w.lastErr != nil {
						last = w.lastErr
					}
				})
			}
			if open < s.Conns {
				if last == nil {
					last = errors.New("no answer")
				}
				missing = fmt.Errorf("open %s: %d of %d connections: %w", s.Name, open, s.Conns, last)
			}
		}
		if missing == nil || time.Now().After(limit) {
			return missing
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted before the connections were open")
		case <-r.broken:
			return fmt.Errorf("lose the server: %w", r.readErr)
		case <-time.After(wait):
		}
	}
}

// measure runs the window.
func (r *run) measure(ctx context.Context, cpus []int) (err error) {
	if err := r.wait(ctx, r.cfg.Warmup); err != nil {
		return err
	}
	if _, err = r.request("begin", "began"); err != nil {
		return err
	}
	if r.begun, err = markHost(r.clock, cpus); err != nil {
		return err
	}
	r.each(func(w *clientWorker) { w.beginWindow() })
	stop := make(chan struct{})
	var sampling sync.WaitGroup
	if r.cfg.Interval > 0 {
		sampling.Add(1)
		go func() {
			defer sampling.Done()
			every(r.cfg.Interval, stop, func() { r.each(func(w *clientWorker) { w.takeSample() }) })
		}()
	}
	err = r.wait(ctx, r.cfg.Duration)
	close(stop)
	sampling.Wait()
	if err != nil {
		return err
	}
	return r.endWindow(cpus)
}

func (r *run) endWindow(cpus []int) (err error) {
	r.backlog = make([]int64, len(r.classes))
	var mu sync.Mutex
	r.each(func(w *clientWorker) {
		w.endWindow()
		mu.Lock()
		defer mu.Unlock()
		r.backlog[w.class] += w.backlog(w.window.ended)
	})
	now, err := markHost(r.clock, cpus)
	if err != nil {
		return err
	}
	r.host = hostBetween(r.begun, now)
	r.server, err = r.request("end", "window")
	if err == nil && len(r.server.Classes) != len(r.classes) {
		err = fmt.Errorf("the server reports %d classes of %d", len(r.server.Classes), len(r.classes))
	}
	return err
}

// wait lets the traffic run for d, or until ctx ends it early.
func (r *run) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		r.early = true
	case <-r.broken:
		return fmt.Errorf("lose the server: %w", r.readErr)
	}
	return nil
}

// finish ends every connection in good order and learns what the server got in
// all.
func (r *run) finish() (answer, error) {
	for _, class := range r.classes {
		for _, w := range class {
			w.loop.ask(w.stop)
		}
	}
	t := time.NewTimer(drainLimit)
	defer t.Stop()
	for _, class := range r.classes {
		for _, w := range class {
			select {
			case <-w.done:
			case <-t.C:
				t.Reset(0) // the others have had their time as well
				w.loop.ask(w.abort)
				<-w.done
			}
		}
	}
	totals, err := r.request("close", "totals")
	if err == nil && len(totals.Classes) != len(r.classes) {
		err = fmt.Errorf("the server reports %d classes of %d", len(totals.Classes), len(r.classes))
	}
	return totals, err
}

// abort ends whatever still runs.
func (r *run) abort() {
	for _, class := range r.classes {
		for _, w := range class {
			w.loop.ask(w.abort)
		}
	}
	r.wg.Wait()
}

// report puts both sides together. The threads have ended: their fields are
// free to read.
func (r *run) report(totals answer) Report {
	rep := Report{
		Version: reportVersion, Server: r.cfg.Server,
		WarmupS: r.cfg.Warmup.Seconds(), Checked: !r.cfg.NoCheck, Interrupted: r.early,
		ClientHost: r.host, ServerHost: r.server.Host, Problems: []string{},
	}
	rep.DurationS = round(float64(r.host.WallUs) / 1e6)
	for i, s := range r.cfg.Specs {
		hist := hdrhistogram.New(1, latencyMax, latencyDigits)
		var latest, aborted int64
		parts := make([]side, 0, len(r.classes[i]))
		for _, w := range r.classes[i] {
			parts = append(parts, w.figures())
			hist.Merge(w.hist)
			latest = max(latest, w.latest)
			aborted += w.aborted
		}
		p := classParts{
			spec: s, threads: len(parts), client: merge(parts), server: r.server.Classes[i], totals: totals.Classes[i],
			backlog: r.backlog[i], aborted: aborted, interval: r.cfg.Interval,
		}
		if !s.endless() {
			p.latency = latencyOf(hist, latest)
		}
		c, problems := p.report()
		rep.Classes = append(rep.Classes, c)
		rep.Problems = append(rep.Problems, problems...)
	}
	if len(rep.Classes) == 1 {
		rep.Classes[0].Client.busy(r.host)
		rep.Classes[0].Server.busy(r.server.Host)
	}
	return rep
}
