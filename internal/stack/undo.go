package stack

import (
	"errors"
	"fmt"
	"syscall"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/receive/veth"
)

// undone is what became of recorded settings.
type undone struct {
	// PutBack and Gone count those that have their old value again, and those
	// that went with their device or namespace.
	PutBack, Gone int
	// Left are those that somebody else has changed since, a sentence each.
	Left []error
}

// places opens the namespaces of a record, each once.
type places struct {
	journal *journal
	known   []*netns.Handle
	open    map[netns.ID]*place
}

type place struct {
	ns   *netns.Handle
	host *setting.Host
}

func (p *places) close() {
	for _, at := range p.open {
		if at == nil {
			continue
		}
		if at.host != nil {
			at.host.Close()
		}
		at.ns.Close()
	}
}

// at returns nil for a namespace that no longer exists.
func (p *places) at(id netns.ID) (*place, error) {
	if at, seen := p.open[id]; seen {
		return at, nil
	}
	ns, err := openByID(id, p.known)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		p.open[id] = nil
		return nil, nil
	}
	same, err := p.journal.same(ns)
	if err != nil || !same {
		ns.Close()
		if err == nil {
			p.open[id] = nil
		}
		return nil, err
	}
	host, err := setting.Open(ns)
	if err != nil {
		ns.Close()
		return nil, err
	}
	at := &place{ns: ns, host: host}
	p.open[id] = at
	return at, nil
}

// device reports whether the record's device is still the one that it was
// written about: with a device of a pair its far end goes too.
func (p *places) device() (bool, error) {
	near, err := p.at(p.journal.record.NS)
	if err != nil || near == nil {
		return false, err
	}
	dev, err := near.host.Links().ByName(p.journal.record.Device)
	if errors.Is(err, syscall.ENODEV) {
		return false, nil
	}
	return err == nil && dev.Index == p.journal.record.Ifindex, err
}

// undo puts the recorded settings from number first on back, last first, and
// takes them out of the record in memory; those that could not be put back
// stay in it. The error holds every failure, and only failures.
func (j *journal) undo(first int, known ...*netns.Handle) (undone, error) {
	p := &places{journal: j, known: known, open: map[netns.ID]*place{}}
	defer p.close()
	var out undone
	device, err := p.device()
	if err != nil {
		return out, err
	}
	settings := j.record.Settings
	var failed []setting.Setting
	var errs []error
	for i := len(settings) - 1; i >= first; i-- {
		s := settings[i]
		at, err := p.at(s.NS)
		switch {
		case err == nil && (at == nil || s.Device != "" && !device):
			out.Gone++
			continue
		case err == nil && s.Kind == veth.Thread:
			err = veth.UndoThread(at.host, s)
		case err == nil:
			err = at.host.Undo(s)
		}
		switch {
		case err == nil:
			out.PutBack++
		case errors.Is(err, setting.ErrChangedSince):
			out.Left = append(out.Left, err)
		default:
			errs = append(errs, err)
			failed = append([]setting.Setting{s}, failed...)
		}
	}
	j.record.Settings = append(append([]setting.Setting(nil), settings[:min(first, len(settings))]...), failed...)
	return out, errors.Join(errs...)
}

// dropStale forgets what an earlier daemon recorded about namespaces and
// devices that no longer exist, though others may have their names and numbers
// now. It reports whether what that daemon left is still at work here.
func (j *journal) dropStale(near *netns.Handle, ifindex int) (bool, error) {
	if j.record.Version == 0 {
		return false, nil
	}
	p := &places{journal: j, known: []*netns.Handle{near}, open: map[netns.ID]*place{}}
	defer p.close()
	here, err := p.at(near.ID())
	if err != nil {
		return false, fmt.Errorf("read the record %s: %w", j.path, err)
	}
	device := here != nil && j.record.Ifindex == ifindex
	var keep []setting.Setting
	for _, s := range j.record.Settings {
		at, err := p.at(s.NS)
		if err != nil {
			return false, fmt.Errorf("read the record %s: %w", j.path, err)
		}
		if at != nil && (device || s.Device == "") {
			keep = append(keep, s)
		}
	}
	j.record.Settings = keep
	cookies := map[string]uint64{}
	for id, at := range p.open {
		if at != nil {
			cookies[id.String()] = j.record.Cookies[id.String()]
		}
	}
	j.record.Cookies = cookies
	return device, nil
}
