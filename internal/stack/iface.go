package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"xlane/internal/kernel/bpffs"
	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/model"
	"xlane/internal/profile"
	"xlane/internal/receive"
	"xlane/internal/receive/cpumap"
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
	// prior says that an earlier daemon's record and sorter were found, and
	// inherited how many settings that record has: a start that fails leaves
	// both as they were.
	prior     bool
	inherited int

	state  model.InterfaceState
	reason string
	ask    chan func()
	ended  chan struct{}
}

// ErrStopped says that the context ended before everything was taken over, and
// that what had been done was put back.
var ErrStopped = errors.New("stopped before it was ready")

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
		undo := in.giveUp(ctx)
		switch {
		case undo == nil && ctx.Err() != nil:
			return nil, ErrStopped
		case undo == nil:
			return nil, err
		}
		return nil, errors.Join(err, undo)
	}
	return in, nil
}

// giveUp undoes exactly what a take-over that did not succeed has done.
func (in *iface) giveUp(ctx context.Context) error {
	switch {
	case in.journal == nil:
		if in.adapter != nil {
			in.adapter.Close()
		}
		in.ns.Close()
		return nil
	case !in.prior:
		return in.restore(context.WithoutCancel(ctx))
	}
	defer in.ns.Close()
	in.adapter.Close()
	_, err := in.journal.undo(in.inherited, in.ns)
	err = errors.Join(err, in.journal.write())
	in.journal.close()
	return err
}

// key names a device's record, lock and pins.
func key(ns *netns.Handle, device string) string {
	return fmt.Sprintf("%d-%s", ns.ID().Ino, bpffs.Escape(device))
}

func (in *iface) take(ctx context.Context) error {
	cpus, err := chooseCPUs(in.cfg.CPUs)
	if err != nil {
		return err
	}
	pins, err := bpffs.Ensure(pinRoot(in.stack))
	if err != nil {
		return err
	}
	if in.cfg.WorkloadQ {
		if in.pinDir, err = pins.Locate(key(in.ns, in.cfg.Device)); err != nil {
			return err
		}
	}
	spec := receive.Spec{
		NS: in.ns, Device: in.cfg.Device, Sort: in.cfg.WorkloadQ, Queues: 1, CPUs: cpus, PinDir: in.pinDir,
		Sorter: sorter.Config{
			ThresholdBytes: in.cfg.ThresholdBytes, FlowsMax: in.cfg.FlowsMax,
			EEPortFirst: sorter.DefaultConfig().EEPortFirst, EEPortLast: sorter.DefaultConfig().EEPortLast,
		},
	}
	// The adapter looks before the record is opened: bad input leaves no trace.
	journal := &lateJournal{log: in.log}
	spec.Journal = journal
	adapter, err := choose(in.cfg.Adapter, spec)
	if err != nil {
		return err // and in.adapter stays nil, not a nil of the adapter's type
	}
	in.adapter = adapter
	if err := in.open(ctx); err != nil {
		return err
	}
	journal.to = in.journal
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
	if err := in.afterLoss(journal); err != nil {
		return err
	}
	return in.startTimers()
}

func chooseCPUs(list string) (cpu.Set, error) {
	cpus, err := cpu.ParseList(list)
	if err != nil {
		return cpus, fmt.Errorf("CPUs %q: %w", list, err)
	}
	online, err := cpu.Online()
	if err != nil {
		return cpus, err
	}
	for _, c := range cpus.Members() {
		if !online.Has(c) {
			return cpus, fmt.Errorf("CPUs %q: CPU %d is not online here; choose from %v", list, c, online)
		}
	}
	return cpus, nil
}

// open takes the device's lock, settles what an earlier daemon left, and
// writes down who has the device now.
func (in *iface) open(ctx context.Context) error {
	index, err := in.ifindex()
	if err != nil {
		return err
	}
	j, err := openJournal(in.stack.StateDir, key(in.ns, in.cfg.Device))
	if errors.Is(err, ErrManaged) {
		return fmt.Errorf("device %q %w", in.cfg.Device, err)
	}
	if err != nil {
		return fmt.Errorf("take over %q: %w", in.cfg.Device, err)
	}
	earlier := j.record
	if in.prior, err = j.dropStale(in.ns, index); err != nil {
		j.close()
		return err
	}
	in.journal, in.inherited = j, len(j.record.Settings)
	if err := j.meet(in.ns); err != nil {
		return err
	}
	switch {
	case earlier.Version == 0:
	case !in.prior:
		in.log.Info("earlier record not used", "why", "it is about a device that no longer exists")
		err = sorter.Unpin(earlier.PinDir)
	case earlier.PinDir != "" && earlier.PinDir != in.pinDir:
		in.log.Info("sorter removed", "why", "an earlier daemon left it, and sorting is not asked for now")
		err = removeSorter(ctx, earlier.PinDir)
	}
	if err != nil {
		return err
	}
	return j.begin(Record{
		Device: in.cfg.Device, Netns: in.cfg.Netns, NS: in.ns.ID(), Ifindex: index, Adapter: in.adapter.Name(),
		PinDir: in.pinDir, PID: os.Getpid(), Started: in.stack.Clock(),
	})
}

func (in *iface) ifindex() (int, error) {
	links, err := link.Dial(in.ns)
	if err != nil {
		return 0, err
	}
	defer links.Close()
	dev, err := links.ByName(in.cfg.Device)
	return dev.Index, err
}

func (in *iface) startTimers() error {
	in.timers = newTimers(in.cfg, in.stack.Clock)
	for q, d := range in.timers.begin() {
		err := in.adapter.SetHold(q, d.Hold)
		if errors.Is(err, errors.ErrUnsupported) {
			in.timers.without = true // and the adapter's Cannot says so
			break
		}
		if err != nil {
			return err
		}
	}
	if in.cfg.OLM {
		in.olm = newOLM(in.ns, in.log)
	}
	in.log.Info("ready", "adapter", in.adapter.Name(), "inbperf", in.cfg.INBPERF, "workloadq", in.cfg.WorkloadQ, "olm", in.cfg.OLM)
	return nil
}

// Assess looks at a device without changing it, and returns the adapter that
// would drive it and what that adapter cannot do there, a phrase each.
func Assess(cfg profile.Interface) (adapter string, cannot []string, err error) {
	ns, err := netns.Find(cfg.Netns)
	if err != nil {
		return "", nil, err
	}
	defer ns.Close()
	a, err := choose(cfg.Adapter, receive.Spec{NS: ns, Device: cfg.Device, Sort: true})
	if err != nil {
		return "", nil, err
	}
	defer a.Close()
	return a.Name(), a.Cannot(), nil
}

// choose picks the adapter for a device: the one named, or veth's for a veth
// and cpumap's for all else.
func choose(name string, spec receive.Spec) (receive.Adapter, error) {
	if name == "" {
		var err error
		if name, err = suited(spec); err != nil {
			return nil, err
		}
	}
	switch name {
	case "veth":
		return veth.New(spec)
	case "cpumap":
		return cpumap.New(spec)
	}
	return nil, fmt.Errorf("no adapter is called %q; use veth or cpumap", name)
}

// suited names the adapter that does most for a device. That a device does not
// exist, or cannot be managed, its adapter says.
func suited(spec receive.Spec) (string, error) {
	links, err := link.Dial(spec.NS)
	if err != nil {
		return "", err
	}
	defer links.Close()
	dev, err := links.ByName(spec.Device)
	if err != nil && !errors.Is(err, syscall.ENODEV) {
		return "", err
	}
	if dev.Kind == "veth" {
		return "veth", nil
	}
	return "cpumap", nil
}

func pinRoot(cfg *Config) string {
	if cfg.PinRoot != "" {
		return cfg.PinRoot
	}
	return bpffs.Root
}

// lateJournal is given to the adapter before the record is open. It also says
// in the log what is changed.
type lateJournal struct {
	to  setting.Journal
	log *slog.Logger
}

func (l *lateJournal) Record(s setting.Setting) error {
	if l.to == nil {
		return errors.New("the record is not open")
	}
	if err := l.to.Record(s); err != nil {
		return err
	}
	l.log.Info("change", "what", s.String(), "from", s.From, "to", s.To)
	return nil
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
func (in *iface) afterLoss(j setting.Journal) error {
	if !in.cfg.WorkloadQ {
		return nil
	}
	host, err := setting.Open(in.ns)
	if err != nil {
		return err
	}
	defer host.Close()
	return host.Set(j, setting.Sysctl, "", "net.ipv4.tcp_comp_sack_nr", "0")
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
			if err = in.vanished(); err == nil {
				err = in.reapply(ctx)
			}
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

// vanished returns an error that wraps ErrGone when nobody but this process
// holds the device's namespace any more: our own handle is all that keeps it,
// and the device in it, alive.
func (in *iface) vanished() error {
	if in.cfg.Netns == "" {
		return nil // our own
	}
	ns, err := netns.Find(in.cfg.Netns)
	if err == nil {
		same := ns.Same(in.ns)
		ns.Close()
		if same {
			return nil
		}
	}
	// It may have lost its name, or its first process, and live on.
	id := in.ns.ID()
	if ns, err = netns.Search(func(h *netns.Handle) (bool, error) { return h.ID() == id, nil }); err != nil {
		return fmt.Errorf("look for namespace %q: %w", in.cfg.Netns, err)
	}
	if ns != nil {
		return ns.Close()
	}
	return fmt.Errorf("device %q: namespace %q no longer exists: %w", in.cfg.Device, in.cfg.Netns, receive.ErrGone)
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
		if err := in.adapter.SetHold(q, d.Hold); err != nil {
			return err
		}
		if !d.Probe {
			in.log.Info("hold", "queue", q.String(), "decision", d.Why)
		}
	}
	return nil
}

// restore puts everything back: connections home first, then the programs
// off, then every recorded setting, last first. The record stays when anything
// fails, so that a reset can try again.
func (in *iface) restore(ctx context.Context) error {
	defer in.ns.Close()
	var errs []error
	if in.olm != nil {
		errs = append(errs, in.olm.close())
	}
	drainCtx, cancel := context.WithTimeout(ctx, drainMax)
	err := in.adapter.Drain(drainCtx)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		in.log.Warn("sorting ends while connections change queue", "why", fmt.Sprintf("they have not come home within %v", drainMax))
		err = nil
	}
	errs = append(errs, err, in.adapter.Detach())
	in.adapter.Close()
	done, err := in.journal.undo(0, in.ns)
	for _, left := range done.Left {
		in.log.Warn("left alone", "why", left)
	}
	errs = append(errs, err)
	if errors.Join(errs...) == nil {
		errs = append(errs, in.journal.finish())
		in.log.Info("put back", "settings", done.PutBack, "gone", done.Gone, "left_alone", len(done.Left))
	} else {
		errs = append(errs, in.journal.write())
		in.journal.close()
	}
	return errors.Join(errs...)
}

// removeSorter takes off a sorter that a dead daemon left: its connections go
// home to PRIMARY first, so that their packets stay in order. One that this
// version cannot read is taken off as it is.
func removeSorter(ctx context.Context, pinDir string) error {
	if s, err := sorter.Adopt(pinDir); err == nil {
		defer s.Close()
		drainCtx, cancel := context.WithTimeout(ctx, drainMax)
		defer cancel()
		if err := receive.DrainSorter(drainCtx, s); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return sorter.Unpin(pinDir)
}

// resetOne puts one dead daemon's device back.
func resetOne(ctx context.Context, j *journal) (undone, error) {
	if j.record.PinDir != "" {
		if err := removeSorter(ctx, j.record.PinDir); err != nil {
			return undone{}, err
		}
	}
	done, err := j.undo(0)
	if err != nil {
		err = errors.Join(err, j.write())
	}
	return done, err
}
