// Package veth is the adapter for veth devices: containers, namespaces and the
// lab. The far end of the pair, wherever it is, is the adapter's side of the
// link: the sorter sits at its egress and chooses its transmit queue, which is
// the near device's receive queue. This package meets veth's conditions for
// having queues at all, gives each queue a thread and a CPU, and notices what
// resets them. It decides nothing about traffic.
package veth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/kernel/thread"
	"xlane/internal/model"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
)

// ringEntries is VETH_RING_SIZE, drivers/net/veth.c; it cannot be changed.
const ringEntries = 256

// waitingMax is how many packets may wait for room in each ring. A TCP sender
// on the same host stops by itself when it has 4 MB under way, 2,800 frames
// (net.ipv4.tcp_limit_output_bytes, Linux 6.18).
const waitingMax = 4096

// Names of the attached programs, and of their pins.
const (
	linkSort  = "sort"
	linkProve = "prove"
	linkTurn  = "turn"
)

// Priorities of the threads. Both stay in the fair class: a real-time thread
// that a flood keeps busy would starve the host.
var (
	primaryPriority = thread.Priority{Policy: thread.Other, Nice: -20}
	bulkPriority    = thread.Priority{Policy: thread.Other, Nice: 0}
)

// Adapter drives one veth.
type Adapter struct {
	spec receive.Spec
	near *setting.Host
	far  *setting.Host

	// seen guards the three below for Watch, which runs on another goroutine
	// than all else; moved tells it that the far end is another now.
	seen    sync.Mutex
	moved   chan struct{}
	device  link.Link
	farLink link.Link
	farNS   *netns.Handle

	// numbered queues of the device numberedIndex wake the right transmit queue.
	numbered, numberedIndex int

	checks uint64 // how often Check has looked at the far end

	queues  []queue // by the device's index
	sorter  *sorter.Sorter
	adopted bool
	holds   map[model.QueueID]model.Hold

	counts     map[int]counts // by the device's index
	meters     map[int]meterOf
	farDropped uint64
	dropsBegun bool
	dropsIn    int // readings until drops are read again
}

type queue struct {
	id   model.QueueID
	napi uint32
	pid  int
	cpu  int
}

// New looks at the device and its far end. It changes nothing.
func New(spec receive.Spec) (*Adapter, error) {
	a := &Adapter{spec: spec, holds: map[model.QueueID]model.Hold{}, counts: map[int]counts{}, meters: map[int]meterOf{}, moved: make(chan struct{}, 1)}
	near, err := setting.Open(spec.NS)
	if err != nil {
		return nil, err
	}
	a.near = near
	if err := a.find(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Name returns "veth".
func (a *Adapter) Name() string { return "veth" }

// find looks up both ends. It is done anew at each Apply, because either may
// have been moved or made again under the same name.
func (a *Adapter) find() error {
	dev, err := a.near.Links().ByName(a.spec.Device)
	if errors.Is(err, syscall.ENODEV) {
		return goneError{fmt.Sprintf("there is no device %q in namespace %v", a.spec.Device, a.spec.NS)}
	}
	if err != nil {
		return err
	}
	if dev.Kind != "veth" {
		return fmt.Errorf("device %q is %s, not a veth", a.spec.Device, kindWord(dev))
	}
	if !dev.Up {
		return fmt.Errorf("device %q: %w; set it up first (ip link set %s up)", a.spec.Device, receive.ErrDown, a.spec.Device)
	}
	ns, far, err := a.near.Links().FarEnd(dev)
	if err != nil {
		return err
	}
	if !far.Up {
		ns.Close()
		return fmt.Errorf("the far end of %q, %q in namespace %v: %w; set it up first", a.spec.Device, far.Name, ns, receive.ErrDown)
	}
	a.seen.Lock()
	defer a.seen.Unlock()
	a.device = dev
	if a.farNS != nil && a.farNS.Same(ns) {
		if a.farLink.Index != far.Index {
			a.tellMoved()
		}
		a.farLink = far
		return ns.Close()
	}
	host, err := setting.Open(ns)
	if err != nil {
		ns.Close()
		return err
	}
	a.closeFar()
	a.farLink, a.farNS, a.far = far, ns, host
	a.tellMoved()
	return nil
}

// tellMoved makes Watch look where the far end is now.
func (a *Adapter) tellMoved() {
	select {
	case a.moved <- struct{}{}:
	default: // it has been told, and has not looked yet
	}
}

// goneError is receive.ErrGone in words of its own.
type goneError struct{ text string }

func (e goneError) Error() string { return e.text }
func (e goneError) Unwrap() error { return receive.ErrGone }

func kindWord(dev link.Link) string {
	switch {
	case dev.Loopback():
		return "the loopback"
	case dev.Kind == "":
		return "hardware"
	}
	return "a " + dev.Kind
}

func (a *Adapter) closeFar() {
	if a.far != nil {
		a.far.Close()
		a.far = nil
	}
	if a.farNS != nil {
		a.farNS.Close()
		a.farNS = nil
	}
}

// layout decides which inbound queue has which of the device's queues.
func layout(sort bool, asked, room int) ([]model.QueueID, error) {
	if !sort {
		if asked < 1 {
			asked = 1
		}
		if asked > room {
			return nil, fmt.Errorf("has room for %d queues, %d were asked for", room, asked)
		}
		ids := make([]model.QueueID, asked)
		for i := range ids {
			ids[i] = model.Primary
		}
		return ids, nil
	}
	if room < 2 {
		return nil, errors.New("has room for one receive queue, and sorting needs two; make it again with numrxqueues 4 (and the far end with numtxqueues 4)")
	}
	all := model.AllQueues()
	return all[:min(room, len(all))], nil
}

// Apply makes the queues, their threads and their sorter be as asked.
func (a *Adapter) Apply(ctx context.Context) error {
	if err := a.find(); err != nil {
		return err
	}
	ids, err := a.makeQueues()
	if err != nil {
		return err
	}
	if err := a.numberQueues(len(ids)); err != nil {
		return err
	}
	if err := a.waitForRoom(); err != nil {
		return err
	}
	if err := a.makeThreads(ids); err != nil {
		return err
	}
	if !a.spec.Sort {
		return nil
	}
	if err := a.clearXPS(len(ids)); err != nil {
		return err
	}
	if err := a.attach(ids); err != nil {
		return err
	}
	return ctx.Err()
}

// makeQueues meets veth's conditions: as many receive queues here as transmit
// queues there, GRO here (without it there is no NAPI), and no TSO there (with
// it TCP bypasses the NAPI).
func (a *Adapter) makeQueues() ([]model.QueueID, error) {
	near, err := a.near.Ethtool().Channels(a.device.Name)
	if err != nil {
		return nil, err
	}
	far, err := a.far.Ethtool().Channels(a.farLink.Name)
	if err != nil {
		return nil, err
	}
	ids, err := layout(a.spec.Sort, a.spec.Queues, min(near.RxMax, far.TxMax))
	if err != nil {
		return nil, fmt.Errorf("device %q %w", a.device.Name, err)
	}
	n := strconv.Itoa(len(ids))
	j := a.spec.Journal
	// The kernel keeps our rx at or above the far end's tx: grow here first, shrink there first.
	if near.Rx < len(ids) {
		err = a.near.Set(j, setting.Channels, a.device.Name, "rx", n)
	}
	if err == nil {
		err = a.far.Set(j, setting.Channels, a.farLink.Name, "tx", n)
	}
	if err == nil {
		err = a.near.Set(j, setting.Channels, a.device.Name, "rx", n)
	}
	for _, f := range ethtool.TSO() {
		if err == nil {
			err = a.far.Set(j, setting.Feature, a.farLink.Name, f, "off")
		}
	}
	if err == nil {
		err = a.near.Set(j, setting.Feature, a.device.Name, ethtool.GRO, "on")
	}
	return ids, err
}

// waitForRoom gives the far end a qdisc where it has none: a packet that finds
// a ring full then waits there (Linux 6.16 and later) instead of being lost. A
// qdisc that somebody else configured stays. mq is refused by devices that were
// made with a single transmit queue.
func (a *Adapter) waitForRoom() error {
	if a.farLink.Qdisc != link.NoQueue {
		return nil
	}
	// before the qdisc: it is made with this length
	if err := a.far.Set(a.spec.Journal, setting.TxQLen, a.farLink.Name, "txqlen", strconv.Itoa(waitingMax)); err != nil {
		return err
	}
	kind := "mq"
	if a.farLink.TxQueues < 2 {
		kind = "pfifo"
	}
	return a.far.Set(a.spec.Journal, setting.Qdisc, a.farLink.Name, "root", kind)
}

// makeThreads gives each queue a thread, a CPU, a priority and its hold.
func (a *Adapter) makeThreads(ids []model.QueueID) error {
	cpus := a.spec.CPUs
	if cpus.Empty() {
		var err error
		if cpus, err = cpu.Online(); err != nil {
			return err
		}
	}
	napis, err := a.near.NAPIs().List(a.device.Index)
	if err != nil {
		return err
	}
	if len(napis) != len(ids) {
		return fmt.Errorf("device %q has %d polling instances for %d queues", a.device.Name, len(napis), len(ids))
	}
	a.queues = a.queues[:0]
	for i, id := range ids {
		q, err := a.makeThread(i, id, napis[i], cpus.Members())
		if err != nil {
			return err
		}
		a.queues = append(a.queues, q)
	}
	return nil
}

func (a *Adapter) makeThread(i int, id model.QueueID, n napi.NAPI, cpus []int) (queue, error) {
	q := queue{id: id, napi: n.ID, cpu: -1}
	value := setting.NAPIValue(a.holds[id], !a.spec.Unthreaded)
	if err := a.near.Set(a.spec.Journal, setting.NAPI, a.device.Name, strconv.Itoa(i), value); err != nil {
		return q, err
	}
	if a.spec.Unthreaded {
		return q, nil
	}
	was := n
	n, err := a.near.NAPIs().Get(n.ID)
	if err != nil {
		return q, err
	}
	t, err := thread.OfNAPI(n.PID, n.ID)
	if err != nil {
		return q, err
	}
	q.pid, q.cpu = n.PID, cpus[i%len(cpus)]
	p := primaryPriority
	if id == model.BulkData {
		p = bulkPriority
	}
	if err := a.recordThread(i, was, t, cpu.Of(q.cpu), p); err != nil {
		return q, err
	}
	if err := t.SetAffinity(cpu.Of(q.cpu)); err != nil {
		return q, err
	}
	return q, t.SetPriority(p)
}

// clearXPS: a transmit queue chosen by XPS overrides the sorter's.
func (a *Adapter) clearXPS(n int) error {
	for i := 0; i < n; i++ {
		for _, kind := range []setting.Kind{setting.XPSCPUs, setting.XPSRxQs} {
			err := a.far.Set(a.spec.Journal, kind, a.farLink.Name, strconv.Itoa(i), "")
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (a *Adapter) sorterQueues(ids []model.QueueID) sorter.Queues {
	q := sorter.Queues{Index: map[model.QueueID]int{}, SameCPU: true}
	for _, id := range model.AllQueues() {
		q.Index[id] = -1
	}
	for i, id := range ids {
		q.Index[id] = i
		if a.queues[i].cpu < 0 || a.queues[i].cpu != a.queues[0].cpu {
			q.SameCPU = false
		}
	}
	return q
}

// attach loads the sorter, or adopts the one that is pinned, and attaches what
// is not attached.
func (a *Adapter) attach(ids []model.QueueID) error {
	if a.sorter == nil {
		if err := a.loadOrAdopt(); err != nil {
			return err
		}
	}
	if err := a.sorter.Start(a.sorterQueues(ids)); err != nil {
		return err
	}
	if err := receive.RefreshLocal(a.near.Links(), a.sorter); err != nil {
		return err
	}
	// The two observers first: the sorter relies on what they note.
	for _, p := range []struct {
		name string
		prog *ebpf.Program
		at   ebpf.AttachType
		ns   *netns.Handle
		dev  link.Link
	}{
		{linkProve, a.sorter.Prove, ebpf.AttachTCXIngress, a.spec.NS, a.device},
		{linkTurn, a.sorter.Turn, ebpf.AttachTCXEgress, a.spec.NS, a.device},
		{linkSort, a.sorter.Sort, ebpf.AttachTCXEgress, a.farNS, a.farLink},
	} {
		if a.sorter.AttachedTo(p.name, p.dev.Index) {
			continue
		}
		err := p.ns.Do(func() error { return a.sorter.Attach(p.name, p.prog, p.at, p.dev.Index) })
		if err != nil {
			return fmt.Errorf("device %q: %w", p.dev.Name, err)
		}
	}
	if a.spec.PinDir == "" {
		return nil
	}
	return a.sorter.Pin(a.spec.PinDir)
}

func (a *Adapter) loadOrAdopt() error {
	if a.spec.PinDir != "" {
		s, err := sorter.Adopt(a.spec.PinDir)
		switch {
		case err == nil:
			a.sorter, a.adopted = s, true
			return s.Reconfigure(a.spec.Sorter)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w; run 'xlane reset' to remove what it left", err)
		}
		// a half-made set of pins is of no use to anybody
		if err := sorter.Unpin(a.spec.PinDir); err != nil {
			return err
		}
	}
	s, err := sorter.New(a.spec.Sorter)
	if err != nil {
		return err
	}
	a.sorter = s
	return nil
}

// Adopted says that the sorter was found at work.
func (a *Adapter) Adopted() bool { return a.adopted }

// Sorter returns the sorter, or nil.
func (a *Adapter) Sorter() *sorter.Sorter { return a.sorter }

// SetHold sets one queue's timers.
func (a *Adapter) SetHold(id model.QueueID, hold model.Hold) error {
	a.holds[id] = hold
	for _, q := range a.queues {
		if q.id != id {
			continue
		}
		if err := a.near.NAPIs().SetHold(q.napi, hold); err != nil {
			return fmt.Errorf("hold %v of %q for %v: %w", id, a.device.Name, hold.Timeout, err)
		}
	}
	return nil
}

// Cannot lists what is not to be had on this device. Before Apply it says what
// will not be.
func (a *Adapter) Cannot() []string {
	if !a.spec.Sort {
		return nil
	}
	room := len(a.queues)
	if room == 0 {
		near, err := a.near.Ethtool().Channels(a.device.Name)
		if err != nil {
			return nil
		}
		far, err := a.far.Ethtool().Channels(a.farLink.Name)
		if err != nil {
			return nil
		}
		room = min(near.RxMax, far.TxMax)
	}
	var out []string
	for _, id := range model.AllQueues()[min(room, len(model.AllQueues())):] {
		out = append(out, fmt.Sprintf("give %v a queue of its own: %s was made with room for %d; it shares PRIMARY's", id, a.device.Name, room))
	}
	return out
}

func (a *Adapter) has(id model.QueueID) bool {
	for _, q := range a.queues {
		if q.id == id {
			return true
		}
	}
	return false
}

// Drain sends every connection home to PRIMARY.
func (a *Adapter) Drain(ctx context.Context) error { return receive.DrainSorter(ctx, a.sorter) }

// Detach takes the programs off: the sorter first, then its observers.
func (a *Adapter) Detach() error {
	var errs []error
	if a.sorter != nil {
		for _, name := range []string{linkSort, linkTurn, linkProve} {
			errs = append(errs, a.sorter.Detach(name))
		}
	}
	if a.spec.PinDir != "" {
		errs = append(errs, sorter.Unpin(a.spec.PinDir))
	}
	return errors.Join(errs...)
}

// Close lets go. Pinned programs go on sorting.
func (a *Adapter) Close() {
	for _, m := range a.meters {
		m.Close()
	}
	if a.sorter != nil {
		a.sorter.Close()
		a.sorter = nil
	}
	a.seen.Lock()
	a.closeFar()
	a.seen.Unlock()
	if a.near != nil {
		a.near.Close()
		a.near = nil
	}
}
