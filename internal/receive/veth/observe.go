package veth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/sysfs"
	"xlane/internal/kernel/thread"
	"xlane/internal/model"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
)

// Check reports what is not as Apply left it.
func (a *Adapter) Check() ([]string, error) {
	dev, err := a.near.Links().ByName(a.spec.Device)
	if errors.Is(err, syscall.ENODEV) {
		return nil, fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	if dev.Index != a.device.Index {
		// Its settings are not those that the record holds for the old one.
		return nil, goneError{fmt.Sprintf("device %q was deleted, and another made in its place", dev.Name)}
	}
	if !dev.Up || !dev.LowerUp {
		return nil, fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrDown)
	}
	var drift []string
	napis, err := a.near.NAPIs().List(dev.Index)
	if err != nil {
		return nil, err
	}
	if len(napis) != len(a.queues) {
		return []string{fmt.Sprintf("%s has %d polling instances, not %d", dev.Name, len(napis), len(a.queues))}, nil
	}
	for i, n := range napis {
		q := a.queues[i]
		switch {
		case n.ID != q.napi:
			drift = append(drift, fmt.Sprintf("queue %d was made again", i))
		case n.Hold != a.holds[q.id]:
			drift = append(drift, fmt.Sprintf("queue %d is held %v, not %v", i, n.Hold.Timeout, a.holds[q.id].Timeout))
		case n.PID != q.pid:
			drift = append(drift, fmt.Sprintf("queue %d has another thread", i))
		}
	}
	far, err := a.checkFar()
	return append(drift, far...), err
}

func (a *Adapter) checkFar() ([]string, error) {
	if a.checks++; a.checks%farSeenEvery == 0 {
		if err := a.farSeen(); err != nil {
			return nil, err
		}
	}
	far, err := a.far.Links().ByIndex(a.farLink.Index)
	if errors.Is(err, syscall.ENODEV) {
		return []string{"the far end has moved"}, nil
	}
	if err != nil {
		return nil, err
	}
	var drift []string
	features, err := a.far.Ethtool().Features(far.Name)
	if err != nil {
		return nil, err
	}
	for _, f := range ethtool.TSO() {
		if features[f].Active {
			drift = append(drift, fmt.Sprintf("%s of %s is on again", f, far.Name))
		}
	}
	if !a.spec.Sort {
		return drift, nil
	}
	ch, err := a.far.Ethtool().Channels(far.Name)
	if err != nil {
		return nil, err
	}
	if ch.Tx < len(a.queues) {
		drift = append(drift, fmt.Sprintf("%s has %d transmit queues, not %d", far.Name, ch.Tx, len(a.queues)))
	}
	for name, index := range map[string]int{linkProve: a.device.Index, linkTurn: a.device.Index, linkSort: far.Index} {
		if !a.sorter.AttachedTo(name, index) {
			drift = append(drift, fmt.Sprintf("program %q is not attached", name))
		}
	}
	xps, err := a.checkXPS(far.Name)
	if err != nil {
		return nil, err
	}
	return append(drift, xps...), receive.RefreshLocal(a.near.Links(), a.sorter)
}

// farSeenEvery is how many checks pass between two looks for the far end's
// namespace: where only a process holds it, the look reads all of /proc.
const farSeenEvery = 4

// farSeen returns an error that wraps receive.ErrGone when nobody but this
// process holds the far end's namespace any more: our own handle is all that
// keeps it, and the pair with it, alive.
func (a *Adapter) farSeen() error {
	id := a.farNS.ID()
	ns, err := netns.Search(func(h *netns.Handle) (bool, error) { return h.ID() == id, nil })
	if err != nil {
		return err
	}
	if ns != nil {
		return ns.Close()
	}
	return goneError{fmt.Sprintf("device %q: the namespace of its far end, %v, no longer exists", a.spec.Device, a.farNS)}
}

// checkXPS: a transmit queue that XPS chooses overrides the sorter's choice.
func (a *Adapter) checkXPS(far string) ([]string, error) {
	fs, err := sysfs.Open(a.farNS)
	if err != nil {
		return nil, err
	}
	defer fs.Close()
	var drift []string
	for i := range a.queues {
		cpus, err := fs.XPSCPUs(far, i)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		queues, err := fs.XPSRxQueues(far, i)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if !cpus.Empty() || !queues.Empty() {
			drift = append(drift, fmt.Sprintf("XPS of %s tx-%d is set", far, i))
		}
	}
	return drift, nil
}

// Watch follows both ends' namespaces, also when the far end moves.
func (a *Adapter) Watch(ctx context.Context, reset func(why string)) error {
	for {
		again, err := a.watchOnce(ctx, reset)
		if err != nil || !again {
			return err
		}
		reset("far end: moved") // and what happened before the new watch
	}
}

// watchOnce watches until the context ends, or reports that the far end is
// another now.
func (a *Adapter) watchOnce(ctx context.Context, reset func(why string)) (again bool, err error) {
	a.seen.Lock()
	select {
	case <-a.moved:
	default:
	}
	nearIndex, farIndex := a.device.Index, a.farLink.Index
	farNS, err := a.farNS.Clone()
	a.seen.Unlock()
	if err != nil {
		return false, err
	}
	// A subscription has a socket in the namespace and needs no handle.
	near, err := link.Subscribe(a.spec.NS)
	if err != nil {
		farNS.Close()
		return false, err
	}
	far, err := link.Subscribe(farNS)
	farNS.Close()
	if err != nil {
		near.Close()
		return false, err
	}
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	g, watchCtx := errgroup.WithContext(watchCtx)
	for _, end := range []struct {
		watch *link.Watch
		index int
		word  string
	}{{near, nearIndex, "device"}, {far, farIndex, "far end"}} {
		g.Go(func() error {
			return end.watch.Run(watchCtx, func(e link.Event) {
				if e.Kind == link.Resync || e.Index == end.index {
					reset(fmt.Sprintf("%s: %v %s", end.word, e.Kind, e.Setting))
				}
			})
		})
	}
	g.Go(func() error {
		select {
		case <-a.moved:
			again = true
			stop()
		case <-watchCtx.Done():
		}
		return nil
	})
	err = g.Wait()
	return again && ctx.Err() == nil, err
}

// Queues describes the queues now.
func (a *Adapter) Queues() ([]receive.Queue, error) {
	var out []receive.Queue
	for i, q := range a.queues {
		r := receive.Queue{
			ID: q.id, Index: i, NAPI: q.napi, PID: q.pid, CPU: q.cpu, Hold: a.holds[q.id], Ring: ringEntries,
		}
		if n, err := a.near.NAPIs().Get(q.napi); err == nil {
			r.Hold = n.Hold
		}
		if t, err := thread.OfNAPI(q.pid, q.napi); err == nil {
			if p, err := t.Priority(); err == nil {
				r.Priority = p.String()
			}
		}
		out = append(out, r)
	}
	if a.spec.Sort {
		for _, id := range model.AllQueues() {
			if !a.has(id) {
				out = append(out, receive.Queue{ID: id, Shares: model.Primary, CPU: -1})
			}
		}
	}
	return out, nil
}

// Read reads each queue's totals and its thread's run time, both since the
// adapter first read them. It is called many times a second, so the totals come
// from the sorter where there is one (a tenth of the cost of the driver's).
func (a *Adapter) Read() ([]receive.Reading, error) {
	totals, err := a.totals()
	if err != nil {
		return nil, err
	}
	busiest, most := 0, uint64(0)
	for i, q := range a.queues {
		c := a.counts[i]
		if d := totals[i].Packets - c.lastPackets; c.begun && d > most {
			busiest, most = i, d
		}
		times, err := a.times(i, q)
		if err != nil { // the thread has ended: with the device, or Check finds its successor
			if err := a.present(); err != nil {
				return nil, err
			}
			times = c.lastTimes
		}
		a.counts[i] = c.next(q.pid, totals[i].Packets, totals[i].Bytes, times)
	}
	if err := a.readDrops(busiest); err != nil {
		return nil, err
	}
	out := make([]receive.Reading, len(a.queues))
	for i, q := range a.queues {
		c := a.counts[i]
		out[i] = receive.Reading{
			ID: q.id, CPU: q.cpu, Packets: c.packets, Bytes: c.bytes, Drops: c.drops, ThreadRun: c.run, ThreadWakes: c.wakes,
			Known: receive.Known{Packets: true, Drops: true, Thread: q.pid != 0},
			Waits: a.farLink.Qdisc != link.NoQueue,
		}
	}
	return out, nil
}

// present returns an error when the device no longer exists.
func (a *Adapter) present() error {
	_, err := a.near.Links().ByIndex(a.device.Index)
	if errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrGone)
	}
	return err
}

// totals returns what each of the device's queues has carried.
func (a *Adapter) totals() ([]sorter.QueueTotal, error) {
	out := make([]sorter.QueueTotal, len(a.queues))
	if a.sorter != nil {
		all, err := a.sorter.QueueTotals()
		for i, q := range a.queues {
			out[i] = all[q.id]
		}
		return out, err
	}
	stats, err := a.near.Ethtool().Statistics(a.device.Name)
	if errors.Is(err, syscall.ENODEV) {
		return nil, fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	for i := range out {
		prefix := "rx_queue_" + strconv.Itoa(i) + "_"
		out[i] = sorter.QueueTotal{Packets: stats[prefix+"xdp_packets"], Bytes: stats[prefix+"xdp_bytes"]}
	}
	return out, nil
}

// times reads the run time of a queue's thread.
func (a *Adapter) times(i int, q queue) (thread.Times, error) {
	if q.pid == 0 {
		return thread.Times{}, nil
	}
	m, ok := a.meters[i]
	if !ok || m.pid != q.pid {
		if ok {
			m.Close()
			delete(a.meters, i)
		}
		t, err := thread.OfNAPI(q.pid, q.napi)
		if err != nil {
			return thread.Times{}, err
		}
		meter, err := t.Meter()
		if err != nil {
			return thread.Times{}, err
		}
		m = meterOf{meter, q.pid}
		a.meters[i] = m
	}
	return m.Times()
}

type meterOf struct {
	*thread.Meter
	pid int
}

// dropsEvery is how often drops are asked for: it takes two requests.
const dropsEvery = 20

// readDrops counts what was lost. A packet that finds a ring full, or the
// qdisc before it, is counted by the far end for all rings together
// (veth_xmit in drivers/net/veth.c); what is lost between two readings is
// charged to the queue that was busiest between them.
func (a *Adapter) readDrops(busiest int) error {
	if a.dropsIn--; a.dropsIn > 0 && a.sorter != nil {
		return nil
	}
	a.dropsIn = dropsEvery
	far, err := a.far.Links().ByIndex(a.farLink.Index)
	if errors.Is(err, syscall.ENODEV) { // gone with the device, or moved: Check follows it
		return a.present()
	}
	if err != nil {
		return err
	}
	waiting, err := a.far.Links().RootQdiscDrops(a.farLink.Index)
	if err != nil {
		return err
	}
	dropped := far.Stats.TxDropped + waiting
	if a.dropsBegun && dropped > a.farDropped {
		c := a.counts[busiest]
		c.drops += dropped - a.farDropped
		a.counts[busiest] = c
	}
	a.farDropped, a.dropsBegun = dropped, true
	return nil
}

// counts accumulates one queue's counters over new threads and new queues,
// which begin again at zero.
type counts struct {
	begun                  bool
	pid                    int
	packets, bytes, drops  uint64
	run                    time.Duration
	wakes                  uint64
	lastPackets, lastBytes uint64
	lastTimes              thread.Times
}

func (c counts) next(pid int, packets, bytes uint64, times thread.Times) counts {
	if c.begun && packets < c.lastPackets { // the device's queues were made again
		c.lastPackets, c.lastBytes = 0, 0
	}
	if c.pid != pid {
		c.lastTimes = thread.Times{}
	}
	if c.begun {
		c.packets += packets - c.lastPackets
		c.bytes += bytes - c.lastBytes
		c.run += max(times.Ran-c.lastTimes.Ran, 0)
		if times.Timeslices > c.lastTimes.Timeslices {
			c.wakes += times.Timeslices - c.lastTimes.Timeslices
		}
	}
	c.begun, c.pid = true, pid
	c.lastPackets, c.lastBytes, c.lastTimes = packets, bytes, times
	return c
}

var _ receive.Adapter = (*Adapter)(nil)
