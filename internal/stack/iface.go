package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"xlane/internal/kernel/bpffs"
	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/model"
	"xlane/internal/profile"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
	"xlane/internal/receive/veth"
)

const (
	// checkEvery is how often everything is compared with what it should be,
	// beside the events that the kernel reports.
	checkEvery = 500 * time.Millisecond
	// sweepEvery releases bulk connections that fell silent.
	sweepEvery = 500 * time.Millisecond
	// drainMax is how long a stop waits for connections to come home in order.
	drainMax = 3 * time.Second
)

// iface is one managed device. All its fields belong to the goroutine that
// runs it, once it runs; snapshot asks that goroutine.
type iface struct {
	cfg     profile.Interface
	stack   *Config
	log     *slog.Logger
	ns      *netns.Handle
	journal *journal
	adapter receive.Adapter
	timers  *timers
	olm     olm
	pinDir  string

	state  model.InterfaceState
	reason string
	ask    chan func()
	ended  chan struct{}
}

// begin takes one device over.
func begin(ctx context.Context, stack *Config, cfg profile.Interface) (*iface, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	in := &iface{
		cfg: cfg, stack: stack, state: model.StateReady,
		log: stack.Log.With("device", cfg.Device),
		ask: make(chan func()), ended: make(chan struct{}),
	}
	ns, err := netns.Find(cfg.Netns)
	if err != nil {
		return nil, err
	}
	in.ns = ns
	if err := in.take(ctx); err != nil {
		return nil, errors.Join(err, in.giveUp(ctx))
	}
	return in, nil
}

// giveUp undoes a take-over that did not succeed.
func (in *iface) giveUp(ctx context.Context) error {
	defer in.ns.Close()
	if in.journal == nil {
		if in.adapter != nil {
			in.adapter.Close()
		}
		return nil
	}
	return in.restore(context.WithoutCancel(ctx))
}

func (in *iface) take(ctx context.Context) error {
	pins, err := bpffs.Ensure(pinRoot(in.stack))
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%d-%s", in.ns.ID().Ino, bpffs.Escape(in.cfg.Device))
	if in.cfg.WorkloadQ {
		if in.pinDir, err = pins.Locate(key); err != nil {
			return err
		}
	}
	cpus, err := cpu.ParseList(in.cfg.CPUs)
	if err != nil {
		return fmt.Errorf("CPUs %q: %w", in.cfg.CPUs, err)
	}
	spec := receive.Spec{
		NS: in.ns, Device: in.cfg.Device, Sort: in.cfg.WorkloadQ, Queues: 1, CPUs: cpus, PinDir: in.pinDir,
		Sorter: sorter.Config{
			ThresholdBytes: in.cfg.ThresholdBytes, FlowsMax: in.cfg.FlowsMax,
			EEPortFirst: sorter.DefaultConfig().EEPortFirst, EEPortLast: sorter.DefaultConfig().EEPortLast,
		},
	}
	// The adapter looks before the record is opened: bad input leaves no trace.
	journal := &lateJournal{}
	spec.Journal = journal
	if in.adapter, err = choose(in.cfg.Adapter, spec); err != nil {
		return err
	}
	if in.journal, err = openJournal(in.stack.StateDir, key); err != nil {
		return fmt.Errorf("device %q %w", in.cfg.Device, err)
	}
	journal.to = in.journal
	if err := in.journal.begin(Record{
		Device: in.cfg.Device, Netns: in.cfg.Netns, NS: in.ns.ID(), Adapter: in.adapter.Name(),
		PinDir: in.pinDir, PID: os.Getpid(), Started: in.stack.Clock(),
	}); err != nil {
		return err
	}
	if err := in.adapter.Apply(ctx); err != nil {
		return err
	}
	if in.adapter.Adopted() {
		in.log.Info("adopted", "why", "a sorter was found at work; it goes on without a gap")
	}
	if s := in.adapter.Sorter(); s != nil {
		if err := s.SetSysDist(in.cfg.SysDist); err != nil {
			return err
		}
	}
	if err := in.afterLoss(); err != nil {
		return err
	}
	in.timers = newTimers(in.cfg, in.stack.Clock)
	for q, d := range in.timers.begin() {
		if err := in.adapter.SetHold(q, d.Hold); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	if in.cfg.OLM {
		in.olm = newOLM(in.ns, in.log)
	}
	in.log.Info("ready", "adapter", in.adapter.Name(), "inbperf", in.cfg.INBPERF, "workloadq", in.cfg.WorkloadQ, "olm", in.cfg.OLM)
	return nil
}

// choose picks the adapter for a device: the one named, or the first that
// takes it.
func choose(name string, spec receive.Spec) (receive.Adapter, error) {
	switch name {
	case "", "veth":
		return veth.New(spec)
	}
	return nil, fmt.Errorf("no adapter is called %q; use veth or cpumap", name)
}

func pinRoot(cfg *Config) string {
	if cfg.PinRoot != "" {
		return cfg.PinRoot
	}
	return bpffs.Root
}

// lateJournal is given to the adapter before the record is open.
type lateJournal struct{ to setting.Journal }

func (l *lateJournal) Record(s setting.Setting) error {
	if l.to == nil {
		return errors.New("the record is not open")
	}
	return l.to.Record(s)
}

func (l *lateJournal) Recorded() []setting.Setting {
	if l.to == nil {
		return nil
	}
	return l.to.Recorded()
}

// afterLoss makes the host acknowledge every segment that arrives out of
// order: Linux thins these acknowledgements out (tcp_comp_sack_nr, Linux 4.18),
// which slows a bulk sender's recovery. The original does the same for bulk
// queues (zos.md §3.2, PM20056).
func (in *iface) afterLoss() error {
	if !in.cfg.WorkloadQ {
		return nil
	}
	host, err := setting.Open(in.ns)
	if err != nil {
		return err
	}
	defer host.Close()
	return host.Set(in.journal, setting.Sysctl, "", "net.ipv4.tcp_comp_sack_nr", "0")
}

// run drives the device until the context ends or the device is lost.
func (in *iface) run(ctx context.Context) error {
	defer close(in.ended)
	resets := make(chan string, 1)
	watchCtx, stopWatch := context.WithCancel(ctx)
	watchDone := make(chan struct{})
	go func() {
		defer close(watchDone)
		err := in.adapter.Watch(watchCtx, func(why string) {
			select {
			case resets <- why: // one that waits stands for all
			default:
			}
		})
		if err != nil {
			in.log.Warn("cannot watch for resets; checking twice a second instead", "error", err)
		}
	}()
	err := in.loop(ctx, resets)
	stopWatch()
	<-watchDone
	return errors.Join(err, in.restore(context.WithoutCancel(ctx)))
}

func (in *iface) loop(ctx context.Context, resets <-chan string) error {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	step := time.NewTimer(in.timers.wait())
	defer step.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case why := <-resets:
			in.log.Debug("something happened", "what", why)
			err = in.reapply(ctx)
		case <-check.C:
			err = in.reapply(ctx)
		case <-sweep.C:
			err = in.sweep()
		case <-step.C:
			err = in.decide()
			step.Reset(in.timers.wait())
		case f := <-in.ask:
			f()
		}
		if errors.Is(err, receive.ErrGone) {
			in.state, in.reason = model.StateNotActive, err.Error()
			return err
		}
		if err != nil {
			in.trouble(err)
		}
	}
}

// trouble notes that something does not work now; it will be tried again.
func (in *iface) trouble(err error) {
	if in.state != model.StateRecovering || in.reason != err.Error() {
		in.log.Warn("recovering", "error", err)
	}
	in.state, in.reason = model.StateRecovering, err.Error()
}

// reapply looks whether everything is as it should be, and makes it so.
func (in *iface) reapply(ctx context.Context) error {
	drift, err := in.adapter.Check()
	if err != nil {
		return err
	}
	if len(drift) == 0 && in.state == model.StateReady {
		return nil
	}
	if err := in.adapter.Apply(ctx); err != nil {
		return err
	}
	for _, d := range drift {
		in.log.Info("applied again", "why", d)
	}
	if in.state == model.StateRecovering {
		in.log.Info("ready again")
	}
	in.state, in.reason = model.StateReady, ""
	return nil
}

func (in *iface) sweep() error {
	if s := in.adapter.Sorter(); s != nil {
		if err := s.Sweep(); err != nil {
			return err
		}
	}
	if in.olm != nil {
		return in.olm.look(in.adapter)
	}
	return nil
}

// decide lets the policy look at the counters, and applies what it says.
func (in *iface) decide() error {
	readings, err := in.adapter.Read()
	if err != nil {
		return err
	}
	for q, d := range in.timers.step(readings) {
		if !d.Changed {
			continue
		}
		if err := in.adapter.SetHold(q, d.Hold); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		if !d.Probe {
			in.log.Info("hold", "queue", q.String(), "decision", d.Why)
		}
	}
	return nil
}

// restore puts everything back: connections home first, then the programs
// off, then every recorded setting, last first.
func (in *iface) restore(ctx context.Context) error {
	var errs []error
	if in.olm != nil {
		errs = append(errs, in.olm.close())
	}
	drainCtx, cancel := context.WithTimeout(ctx, drainMax)
	if err := in.adapter.Drain(drainCtx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		errs = append(errs, err)
	}
	cancel()
	errs = append(errs, in.adapter.Detach())
	in.adapter.Close()
	err := in.journal.undo(in.ns)
	if errors.Is(err, setting.ErrChangedSince) {
		in.log.Warn("not everything was put back", "error", err)
		err = nil
	}
	errs = append(errs, err)
	if errors.Join(errs...) == nil {
		errs = append(errs, in.journal.finish())
		in.log.Info("put back", "settings", len(in.journal.record.Settings))
	} else {
		in.journal.close()
	}
	return errors.Join(errs...)
}

// resetOne puts one dead daemon's device back.
func resetOne(_ context.Context, j *journal) error {
	if j.record.PinDir != "" {
		if err := sorter.Unpin(j.record.PinDir); err != nil {
			return err
		}
	}
	err := j.undo()
	if errors.Is(err, setting.ErrChangedSince) {
		return nil
	}
	return err
}
