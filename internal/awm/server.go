package awm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// sessionsMax is how many runs a server takes at once.
	sessionsMax = 64
	// ThreadsMax is the most threads of a run, and of a server.
	ThreadsMax = 128
	// closeLimit is how long a server waits for a session's last connections.
	closeLimit = 8 * time.Second
)

// ServeConfig is how Serve listens.
type ServeConfig struct {
	// Listen is the control connection's address; port 0 picks one. Data
	// connections go to the address that the client reached.
	Listen netip.AddrPort
	// DataPorts bounds the ports of data connections.
	DataPorts PortRange
	// FTPListen, if it is valid, is the address of an FTP server that any
	// client may log in to.
	FTPListen netip.AddrPort
	// CPUs pins the whole process, and chooses the CPUs whose busy time is
	// reported; empty means those the process may use.
	CPUs []int
	// MaxConns bounds the data connections of all sessions; 0 is ConnsMax.
	MaxConns int
	// Ready is called when the server takes runs; ftp is not valid without
	// FTPListen.
	Ready func(control, ftp netip.AddrPort)
	// Log gets one line for each run that was refused or broke off; nil drops
	// them.
	Log func(line string)
}

// server is what a Serve's sessions share.
type server struct {
	cfg     ServeConfig
	clock   func() int64
	cpus    []int
	limit   connLimit
	mu      sync.Mutex
	threads int
	wg      sync.WaitGroup
	slots   chan struct{}
}

// Serve answers runs until ctx is done. It returns an error only if it could
// not begin.
func Serve(ctx context.Context, cfg ServeConfig) error {
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = ConnsMax
	}
	cpus, err := pinProcess(cfg.CPUs)
	if err != nil {
		return err
	}
	s := &server{cfg: cfg, clock: monotonic(), cpus: cpus, slots: make(chan struct{}, sessionsMax)}
	s.limit.most = int64(cfg.MaxConns)
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cfg.Listen.String())
	if err != nil {
		return fmt.Errorf("listen for runs on %s: %w", cfg.Listen, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	ftp, err := s.serveFTP(ctx)
	if err != nil {
		_ = ln.Close()
		return err
	}
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	if cfg.Ready != nil {
		cfg.Ready(ln.Addr().(*net.TCPAddr).AddrPort(), ftp)
	}
	for {
		c, err := ln.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			cfg.Log(fmt.Sprintf("accept a run: %v", err))
			if !pause(ctx, 100*time.Millisecond) {
				return nil
			}
			continue
		}
		s.admit(ctx, c)
	}
}

// pause waits for d, and reports whether ctx outlived it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// serveFTP starts the open FTP server.
func (s *server) serveFTP(ctx context.Context) (netip.AddrPort, error) {
	at := s.cfg.FTPListen
	if !at.IsValid() {
		return netip.AddrPort{}, nil
	}
	spec := Spec{Kind: FTP, Conns: ConnsMax, Name: "ftp", Call: callDefault, CC: ccDefault, NoDelay: true}
	only := PortRange{at.Port(), at.Port()}
	w, err := newServerWorker(s.clock, spec, 0, 0, true, &s.limit, at.Addr(), only)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("start the FTP server: %w", err)
	}
	w.ports = s.cfg.DataPorts
	release := reserveProcs(1)
	w.start(&s.wg)
	context.AfterFunc(ctx, func() {
		w.loop.ask(w.stop)
		<-w.done
		release()
	})
	return netip.AddrPortFrom(at.Addr(), w.port), nil
}

// admit serves a control connection on a goroutine of its own, if there is
// room for another.
func (s *server) admit(ctx context.Context, c net.Conn) {
	select {
	case s.slots <- struct{}{}:
	default:
		s.cfg.Log(fmt.Sprintf("refuse %s: %d runs are the most at once", c.RemoteAddr(), sessionsMax))
		_ = c.Close()
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer func() { <-s.slots }()
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		defer func() { _ = c.Close() }()
		if err := s.session(newLineConn(c, requestMax)); err != nil && ctx.Err() == nil {
			s.cfg.Log(fmt.Sprintf("run from %s: %v", c.RemoteAddr(), err))
		}
	}()
}

// session is one run, seen from the server.
type session struct {
	server   *server
	conn     *lineConn
	classes  [][]*serverWorker // by class, then by thread
	interval time.Duration
	begun    hostMark
	sampling chan struct{} // closed to end the sampling
	sampled  sync.WaitGroup
}

func (s *server) session(c *lineConn) error {
	var hello request
	err := c.read(&hello, helloTimeout)
	if err == nil {
		err = checkHello(hello)
	}
	if err != nil {
		_ = c.write(answer{Op: "refused", Version: protocolVersion, Error: err.Error()})
		return fmt.Errorf("refuse it: %w", err)
	}
	ss := &session{server: s, conn: c, interval: time.Duration(hello.IntervalUs) * time.Microsecond}
	stop, err := ss.open(hello)
	if err != nil {
		_ = c.write(answer{Op: "refused", Version: protocolVersion, Error: err.Error()})
		return fmt.Errorf("refuse it: %w", err)
	}
	defer stop()
	return ss.run()
}

func checkHello(h request) error {
	if h.Op != "hello" {
		return fmt.Errorf("%q is not how a run begins", h.Op)
	}
	if h.Version != protocolVersion {
		return fmt.Errorf("the client speaks version %d of the awm protocol and this server version %d; use the same xlane on both hosts", h.Version, protocolVersion)
	}
	if h.Threads < 1 || h.Threads > ThreadsMax {
		return fmt.Errorf("%d threads a class are not possible; use 1 to %d", h.Threads, ThreadsMax)
	}
	return nil
}

// open starts the session's threads and tells the client their ports.
func (ss *session) open(hello request) (stop func(), err error) {
	specs, err := ParseSpecs(hello.Classes)
	if err != nil {
		return nil, err
	}
	s := ss.server
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	token := binary.BigEndian.Uint64(random[:]) | 1 // never 0, which is no session
	threads := countThreads(specs, hello.Threads)
	if err := s.reserve(specs, threads); err != nil {
		return nil, err
	}
	release := reserveProcs(threads)
	stop = func() {
		ss.endSampling()
		ss.stopWorkers()
		s.giveThreads(threads)
		release()
	}
	local := ss.conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	ports := make([][]uint16, len(specs))
	for i, spec := range specs {
		ss.classes = append(ss.classes, nil)
		for range min(hello.Threads, spec.Conns) {
			w, err := newServerWorker(s.clock, spec, i, token, hello.Check, &s.limit, local, s.cfg.DataPorts)
			if err != nil {
				stop()
				return nil, fmt.Errorf("serve %s: %w", spec.Name, err)
			}
			w.start(&s.wg)
			ss.classes[i] = append(ss.classes[i], w)
			ports[i] = append(ports[i], w.port)
		}
	}
	err = ss.conn.write(answer{Op: "ports", Version: protocolVersion, Token: formatToken(token), Ports: ports})
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// countThreads is how many threads a mix takes on either side.
func countThreads(specs []Spec, perClass int) int {
	n := 0
	for _, s := range specs {
		n += min(perClass, s.Conns)
	}
	return n
}

// reserve refuses a run that is larger than what the server has left.
func (s *server) reserve(specs []Spec, threads int) error {
	conns := int64(0)
	for _, spec := range specs {
		conns += int64(spec.Conns)
	}
	if left := s.limit.most - s.limit.now.Load(); conns > left {
		return fmt.Errorf("the run asks for %d connections and the server has %d left of %d", conns, max(left, 0), s.limit.most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.threads+threads > ThreadsMax {
		return fmt.Errorf("the run asks for %d threads and the server has %d left of %d", threads, ThreadsMax-s.threads, ThreadsMax)
	}
	s.threads += threads
	return nil
}

func (s *server) giveThreads(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.threads -= n
}

// each runs f on every worker's thread and waits for all of them.
func (ss *session) each(f func(w *serverWorker)) {
	var wg sync.WaitGroup
	for _, class := range ss.classes {
		for _, w := range class {
			wg.Add(1)
			if !w.loop.ask(func() { f(w); wg.Done() }) {
				wg.Done()
			}
		}
	}
	wg.Wait()
}

func (ss *session) stopWorkers() {
	for _, class := range ss.classes {
		for _, w := range class {
			w.loop.ask(w.stop)
		}
	}
	for _, class := range ss.classes {
		for _, w := range class {
			<-w.done
		}
	}
}

// run answers the client until it closes.
func (ss *session) run() error {
	for {
		var r request
		if err := ss.conn.read(&r, controlIdle); err != nil {
			return fmt.Errorf("read from the client: %w", err)
		}
		var err error
		switch r.Op {
		case "ping":
		case "begin":
			err = ss.begin()
		case "end":
			err = ss.end()
		case "close":
			return ss.close()
		default:
			err = fmt.Errorf("%q is not a request", r.Op)
		}
		if err != nil {
			return err
		}
	}
}

func (ss *session) begin() (err error) {
	if ss.sampling != nil {
		return errors.New("the window began twice")
	}
	if ss.begun, err = markHost(ss.server.clock, ss.server.cpus); err != nil {
		return err
	}
	ss.each(func(w *serverWorker) { w.beginWindow() })
	ss.sampling = make(chan struct{})
	if ss.interval > 0 {
		ss.sampled.Add(1)
		go func() {
			defer ss.sampled.Done()
			every(ss.interval, ss.sampling, func() {
				ss.each(func(w *serverWorker) { w.takeSample() })
			})
		}()
	}
	return ss.conn.write(answer{Op: "began"})
}

// every calls f at each interval until stop is closed.
func every(interval time.Duration, stop <-chan struct{}, f func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			f()
		}
	}
}

func (ss *session) endSampling() {
	if ss.sampling != nil {
		close(ss.sampling)
		ss.sampling = nil
	}
	ss.sampled.Wait()
}

func (ss *session) end() error {
	if ss.sampling == nil {
		return errors.New("the window ended before it began")
	}
	ss.endSampling()
	ss.each(func(w *serverWorker) { w.ending = true; w.endWindow() })
	now, err := markHost(ss.server.clock, ss.server.cpus)
	if err != nil {
		return err
	}
	return ss.conn.write(answer{Op: "window", Classes: ss.figures(), Host: hostBetween(ss.begun, now)})
}

func (ss *session) figures() []side {
	var out []side
	for _, class := range ss.classes {
		parts := make([]side, 0, len(class))
		for _, w := range class {
			w.loop.askWait(func() {
				f := w.figures()
				f.Refused = w.refused
				parts = append(parts, f)
			})
		}
		out = append(out, merge(parts))
	}
	return out
}

// close waits until the client's connections are gone, and says what they
// carried in all.
func (ss *session) close() error {
	deadline := time.Now().Add(closeLimit)
	for wait := time.Millisecond; ss.liveConns() > 0 && time.Now().Before(deadline); wait = min(2*wait, 50*time.Millisecond) {
		time.Sleep(wait)
	}
	classes := ss.figures()
	for i := range classes {
		classes[i].Samples = nil
	}
	return ss.conn.write(answer{Op: "totals", Classes: classes})
}

func (ss *session) liveConns() int {
	n := 0
	for _, class := range ss.classes {
		for _, w := range class {
			w.loop.askWait(func() { n += w.live })
		}
	}
	return n
}
