package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"xlane/internal/awm"
	"xlane/internal/kernel/cpu"
	"xlane/internal/stack"
)

// The bench reads its counters inside the load's window, so that neither the
// load's beginning nor its end is in them. A load's process takes some 30 ms to
// open its connections.
const (
	windowLeadMin = 60 * time.Millisecond
	windowShare   = 10 // the window begins and ends a tenth of it later and earlier
)

// mark is everything that is read at one moment.
type mark struct {
	at      time.Time
	queues  []count
	cpus    cpu.Times
	control time.Duration
}

func takeMark(ctx context.Context, mode engaged) (m mark, err error) {
	if m.queues, err = mode.read(ctx); err != nil {
		return m, err
	}
	m.at = time.Now()
	if m.cpus, err = cpu.Read(time.Now); err != nil {
		return m, err
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return m, fmt.Errorf("read own CPU time: %w", err)
	}
	m.control = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return m, nil
}

// imitates says that the daemon's work in a mode stands for what the kernel
// does by itself.
func (m Mode) imitates() bool { return m.DIM || m.Kind == KindDaemon && m.INBPERF.String() == "DIM" }

// measure makes one run: the mode, the load, the counters.
func (r *rig) measure(ctx context.Context, e Experiment, m Mode, round int) (run Run, story *Story, err error) {
	run.Round = round
	if err := r.setWire(e, round); err != nil {
		return run, nil, err
	}
	mode, err := r.engage(ctx, m)
	if err != nil {
		return run, nil, fmt.Errorf("begin mode %s: %w", m.Name, err)
	}
	defer func() {
		if stopErr := mode.stop(); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("end mode %s: %w", m.Name, stopErr))
		}
	}()
	before, err := r.losses()
	if err != nil {
		return run, nil, err
	}
	loads, err := r.startLoads(e)
	defer loads.kill()
	if err != nil {
		return run, nil, err
	}
	first, last, err := r.marks(ctx, mode)
	if err != nil {
		return run, nil, err
	}
	r.fill(&run, m, first, last)
	if run.Why, err = mode.decisions(ctx); err != nil {
		return run, nil, err
	}
	if d, ok := mode.(*daemon); ok && m.WorkloadQ && e.RR != "" && e.STR != "" {
		if story, err = d.story(ctx, run); err != nil {
			return run, nil, err
		}
	}
	if err := loads.report(ctx, r.cfg.Warmup+r.cfg.Duration+runSlack, &run); err != nil {
		return run, nil, err
	}
	after, err := r.losses()
	if err != nil {
		return run, nil, err
	}
	run.OutOfOrder = after.counters.Since(before.counters)["TcpExtTCPOFOQueue"]
	run.RingDrops = int64(after.dropped - before.dropped)
	return run, story, nil
}

// marks waits for the window's beginning and end.
func (r *rig) marks(ctx context.Context, mode engaged) (first, last mark, err error) {
	lead := max(windowLeadMin, r.cfg.Duration/windowShare)
	if err = pause(ctx, r.cfg.Warmup+lead); err != nil {
		return
	}
	if first, err = takeMark(ctx, mode); err != nil {
		return
	}
	if err = pause(ctx, r.cfg.Duration-2*lead); err != nil {
		return
	}
	last, err = takeMark(ctx, mode)
	return
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fill turns two marks into rates.
func (r *rig) fill(run *Run, m Mode, first, last mark) {
	wall := last.cpus.At.Sub(first.cpus.At)
	busy := cpu.Busy(first.cpus, last.cpus)
	run.ServerBusy = float64(busy[r.at.server]) / float64(wall)
	run.WireBusy = float64(busy[r.at.wire]) / float64(wall)
	run.ControlBusy = float64(last.control-first.control) / float64(wall)
	if m.imitates() {
		run.ServerBusy = max(run.ServerBusy-run.ControlBusy, 0)
	}
	span := last.at.Sub(first.at).Seconds()
	for i, q := range last.queues {
		if i >= len(first.queues) {
			break
		}
		was := first.queues[i]
		run.Q = append(run.Q, QRun{
			Name: q.name, PacketsS: float64(q.packets-was.packets) / span, WakesS: float64(q.wakes-was.wakes) / span,
			Busy: (q.run - was.run).Seconds() / span, HoldUs: float64(q.hold) / float64(time.Microsecond),
		})
	}
}

// loads are the one or two parts of a run.
type loads struct{ rr, str *load }

func (r *rig) startLoads(e Experiment) (l loads, err error) {
	if e.STR != "" {
		if l.str, err = r.start(r.bulk, e.STR); err != nil {
			return l, err
		}
	}
	if e.RR != "" {
		l.rr, err = r.start(r.client, e.RR)
	}
	return l, err
}

// kill ends what still runs when a run is given up.
func (l loads) kill() {
	for _, part := range []*load{l.rr, l.str} {
		if part != nil && part.cmd.ProcessState == nil {
			_ = part.cmd.Process.Kill() // what has ended needs none
			_ = part.cmd.Wait()
		}
	}
}

func (l loads) report(ctx context.Context, limit time.Duration, run *Run) error {
	if l.rr != nil {
		rep, err := l.rr.wait(ctx, limit)
		if err != nil {
			return err
		}
		c := rep.Classes[0]
		run.RR = &RRRun{PerS: c.TransactionsPerS}
		if t := c.Latency; t != nil {
			run.RR.P50, run.RR.P90, run.RR.P99, run.RR.P999, run.RR.Max = t.P50, t.P90, t.P99, t.P999, t.Max
		}
		run.add(rep)
	}
	if l.str != nil {
		rep, err := l.str.wait(ctx, limit)
		if err != nil {
			return err
		}
		run.STR = &STRRun{MBPerS: rep.Classes[0].InMBPerS + rep.Classes[0].OutMBPerS}
		run.add(rep)
	}
	return nil
}

func (r *Run) add(rep awm.Report) {
	r.PayloadErrors += rep.PayloadErrors()
	for _, c := range rep.Classes {
		r.Retransmits += c.Client.Retransmits + c.Server.Retransmits
	}
}

// story asks the daemon what it did with this load.
func (d *daemon) story(ctx context.Context, run Run) (*Story, error) {
	found, moved, err := d.found()
	if err != nil {
		return nil, err
	}
	v, err := d.view(ctx)
	if err != nil {
		return nil, err
	}
	return &Story{FoundBytes: found, MovedBytes: moved, Queues: run.Q, Decisions: run.Why, Changes: len(v.Changes)}, nil
}

func recordAt(path string) (stack.Record, error) {
	var r stack.Record
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read the record %s: %w", path, err)
	}
	return r, nil
}
