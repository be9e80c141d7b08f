package cpumap

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sync/errgroup"

	"xlane/internal/kernel/link"
	"xlane/internal/kernel/netns"
	"xlane/internal/model"
	"xlane/internal/receive"
)

// Cannot lists what is not to be had with a cpumap.
func (a *Adapter) Cannot() []string {
	out := []string{
		"hold a queue: every frame is delivered as it comes, because a cpumap has no timer",
		"choose PRIMARY's CPU: it is the one that the device interrupts",
		"give SYSDIST and EE places of their own: they share PRIMARY's",
		fmt.Sprintf("count wake-ups, or frames that found BULKDATA's ring of %d full", ringEntries),
	}
	if a.generic != "" {
		out = append(out, "sort in the driver: "+a.generic+"; it is done before the stack instead, which costs more")
	}
	return out
}

// Describe is one line for the log: what was found.
func (a *Adapter) Describe() string {
	where := "in the driver"
	if a.generic != "" {
		where = "before the stack"
	}
	return fmt.Sprintf("XDP %s; BULKDATA on cpu %d, all else where the device delivers it", where, a.cpu)
}

// Check reports what is not as Apply left it.
func (a *Adapter) Check() ([]string, error) {
	dev, err := a.near.Links().ByName(a.spec.Device)
	if errors.Is(err, syscall.ENODEV) {
		return nil, fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	if !dev.Up || !dev.LowerUp {
		return nil, fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrDown)
	}
	if dev.Index != a.device.Index {
		return []string{fmt.Sprintf("%s was made again", dev.Name)}, nil
	}
	var drift []string
	sort := linkNative
	if a.generic != "" {
		sort = linkGeneric
	}
	for _, name := range []string{sort, linkProve, linkTurn} {
		if !a.sorter.AttachedTo(name, dev.Index) {
			drift = append(drift, fmt.Sprintf("program %q is not attached", name))
		}
	}
	if _, has, err := a.entries(); err != nil {
		return nil, err
	} else if !has {
		drift = append(drift, fmt.Sprintf("CPU %d takes no frames", a.cpu))
	}
	if a.far != nil {
		_, err := a.far.Links().ByIndex(a.farLink.Index)
		if errors.Is(err, syscall.ENODEV) {
			return append(drift, "the far end has moved"), nil
		}
		if err != nil {
			return nil, err
		}
	}
	conditions, err := a.drift()
	if err != nil {
		return nil, err
	}
	return append(drift, conditions...), a.refreshLocal()
}

// Watch follows the device, and the far end of a veth.
func (a *Adapter) Watch(ctx context.Context, reset func(why string)) error {
	type end struct {
		ns    *netns.Handle
		index int
		word  string
	}
	ends := []end{{a.spec.NS, a.device.Index, "device"}}
	if a.far != nil {
		ends = append(ends, end{a.farNS, a.farLink.Index, "far end"})
	}
	var watches []*link.Watch
	for _, e := range ends {
		w, err := link.Subscribe(e.ns)
		if err != nil {
			for _, open := range watches {
				err = errors.Join(err, open.Close())
			}
			return err
		}
		watches = append(watches, w)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, e := range ends {
		g.Go(func() error {
			return watches[i].Run(ctx, func(ev link.Event) {
				if ev.Kind == link.Resync || ev.Index == e.index {
					reset(fmt.Sprintf("%s: %v %s", e.word, ev.Kind, ev.Setting))
				}
			})
		})
	}
	return g.Wait()
}

// Queues describes the places frames go to.
func (a *Adapter) Queues() ([]receive.Queue, error) {
	return []receive.Queue{
		{ID: model.Primary, Index: indexPrimary, CPU: -1},
		{ID: model.BulkData, Index: indexCPU0, CPU: a.cpu, Ring: ringEntries},
		{ID: model.SysDist, Shares: model.Primary, CPU: -1},
		{ID: model.EE, Shares: model.Primary, CPU: -1},
	}, nil
}

// Read reads what the sorter put in each place since the adapter first
// applied. PRIMARY's place has what shares it too.
func (a *Adapter) Read() ([]receive.Reading, error) {
	if err := a.exists(); err != nil {
		return nil, err
	}
	c, err := a.sorter.Counters()
	if err != nil {
		return nil, err
	}
	if !a.based {
		a.base, a.based = c, true
	}
	primary := receive.Reading{ID: model.Primary, CPU: -1, Known: receive.Known{Packets: true}}
	bulk := receive.Reading{ID: model.BulkData, CPU: a.cpu, Known: receive.Known{Packets: true}}
	for _, id := range model.AllQueues() {
		r := &primary
		if id == model.BulkData {
			r = &bulk
		}
		r.Packets += c.Packets[id] - a.base.Packets[id]
		r.Bytes += c.Bytes[id] - a.base.Bytes[id]
	}
	return []receive.Reading{primary, bulk}, nil
}

// exists fails with ErrGone when the device does not.
func (a *Adapter) exists() error {
	_, err := a.near.Links().ByName(a.spec.Device)
	if errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrGone)
	}
	return err
}
