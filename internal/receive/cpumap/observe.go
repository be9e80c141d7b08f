package cpumap

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"xlane/internal/kernel/link"
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
	if dev.Index != a.device.Index {
		// Its settings are not those that the record holds for the old one.
		return nil, goneError{fmt.Sprintf("device %q was deleted, and another made in its place", a.spec.Device)}
	}
	if !dev.Up || !dev.LowerUp {
		return nil, fmt.Errorf("device %q: %w", a.spec.Device, receive.ErrDown)
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
	return append(drift, conditions...), receive.RefreshLocal(a.near.Links(), a.sorter)
}

// Watch follows the device, and the far end of a veth, also when that moves.
func (a *Adapter) Watch(ctx context.Context, reset func(why string)) error {
	for {
		again, err := a.watchOnce(ctx, reset)
		if err != nil || !again {
			return err
		}
		reset("far end: moved") // and whatever happened before the new watch
	}
}

// subscription is a watch on one end of the link.
type subscription struct {
	*link.Watch
	index int
	word  string
}

// subscribe watches both ends as they are now. It may run beside Apply.
func (a *Adapter) subscribe() (subs []subscription, err error) {
	a.ends.Lock()
	defer a.ends.Unlock()
	select {
	case <-a.moved: // before this subscription, so no news to it
	default:
	}
	defer func() {
		if err != nil {
			for _, s := range subs {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	near, err := link.Subscribe(a.spec.NS)
	if err != nil {
		return nil, err
	}
	subs = append(subs, subscription{near, a.device.Index, "device"})
	if a.far == nil {
		return subs, nil
	}
	far, err := link.Subscribe(a.farNS)
	if err != nil {
		return subs, err
	}
	return append(subs, subscription{far, a.farLink.Index, "far end"}), nil
}

// watchOnce watches until the context ends, or reports that the far end is
// another now.
func (a *Adapter) watchOnce(ctx context.Context, reset func(why string)) (again bool, err error) {
	subs, err := a.subscribe()
	if err != nil {
		return false, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make(chan error, len(subs))
	for _, s := range subs {
		go func() {
			errs <- s.Run(ctx, func(e link.Event) {
				if e.Kind == link.Resync || e.Index == s.index {
					reset(fmt.Sprintf("%s: %v %s", s.word, e.Kind, e.Setting))
				}
			})
		}()
	}
	ended := 0
	select {
	case <-a.moved:
		again = true
	case err = <-errs:
		ended++
	}
	stop()
	for ; ended < len(subs); ended++ {
		err = errors.Join(err, <-errs)
	}
	return again, err
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
