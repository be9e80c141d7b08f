// Package busypoll has an application poll the primary queue itself while it
// would otherwise sleep for the next packet (optimized latency mode). It finds
// the one epoll instance or blocking socket that waits for what that queue
// carries, sets its busy-poll time through a duplicate of its descriptor
// (pidfd_getfd), and puts back what was there. The application is neither
// changed nor stopped. Whether polling is worth its CPU time is decided in
// policy/olm; which connections are bulk is the sorter's knowledge, and none of
// those is ever touched, nor an epoll instance that has one among its own.
package busypoll

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
)

// PollUsecs is how long one wait polls before it sleeps. Switched on and off
// under one run of RR1(100/800) beside a 1 Gb/s stream, 50 µs left the stream
// 99% of its rate and 200 µs 95%, because a thread that polls keeps the stream's
// from its CPU; most of the gain is there at 50 (docs/design/0003-olm.md).
const PollUsecs = 50

// walkEvery is how many looks pass between two searches through /proc; between
// them only what is engaged is looked at.
const walkEvery = 4

// Limits bound the work of one look. What is over a limit is left alone and
// counted.
type Limits struct {
	// Sockets of the namespace that are listed.
	Sockets int
	// Processes on the host whose namespace is read.
	Processes int
	// FDs is how many descriptors of all processes are read, FDsPerProcess of
	// each: a process that has more is left alone.
	FDs, FDsPerProcess int
	// Epolls of one process that are looked into.
	Epolls int
	// Asked is how many sockets are asked for their queue, busiest first.
	Asked int
}

// DefaultLimits keep one search below about 50 ms: reading where a descriptor
// leads takes 1 to 2 µs.
func DefaultLimits() Limits {
	return Limits{Sockets: 16384, Processes: 4096, FDs: 16384, FDsPerProcess: 8192, Epolls: 256, Asked: 64}
}

// Config is what an engager is made with.
type Config struct {
	// NS is where the connections are. It stays open as long as the engager.
	NS *netns.Handle
	// RecordDir is where changes are written down before they are made.
	RecordDir string
	// Limits; the zero value means DefaultLimits.
	Limits Limits
}

// Mode is what polling should be until the next look.
type Mode uint8

// The modes. Paused remembers who polls, but lets it sleep.
const (
	Off Mode = iota
	On
	Paused
)

// View is what a look is told.
type View struct {
	Mode Mode
	// NAPI is the primary queue's.
	NAPI uint32
	// Bulk calls yield for every bulk connection until it returns false.
	Bulk func(yield func(local, remote netip.AddrPort) bool) error
}

// Counts is what a display shows. The first two say what is engaged now, the
// rest is since Open.
type Counts struct {
	Epolls, Sockets     int
	Engaged, Disengaged uint64
	// What was left alone because a limit was reached.
	RefusedSockets, RefusedProcesses, RefusedFDs, RefusedEpolls uint64
	// Denied are processes that the kernel did not let us reach into.
	Denied uint64
}

// Report is what one look did.
type Report struct {
	// Engaged says that somebody polls from now on.
	Engaged bool
	// Events are sentences for the log, one for each change.
	Events []string
}

// Engager engages one queue's application. Its methods are called from one
// goroutine.
type Engager struct {
	cfg    Config
	record *record
	counts Counts
	table  *table
	held   *held
	looks  int
	bad    int // searches in a row that found another, or none, to be the one to poll
}

// Open checks that processes may be reached into, and puts back what an engager
// that was killed left. The error wraps EPERM without the privilege.
func Open(cfg Config) (*Engager, error) {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	if err := allowed(); err != nil {
		return nil, err
	}
	if _, err := Undo(cfg.RecordDir); err != nil {
		return nil, err
	}
	return &Engager{cfg: cfg, record: &record{dir: cfg.RecordDir}}, nil
}

// allowed wants CAP_SYS_PTRACE, which pidfd_getfd(2) asks for, and
// CAP_NET_ADMIN, which raising SO_BUSY_POLL does (socket(7)).
func allowed() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has two words of each set
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	for _, c := range []struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			return fmt.Errorf("busy-poll for applications without %s: %w", c.name, unix.EPERM)
		}
	}
	return nil
}

// Counts returns the counts as they are now.
func (e *Engager) Counts() Counts {
	c := e.counts
	if e.held != nil && e.held.on {
		if e.held.who.kind == epoll {
			c.Epolls = 1
		} else {
			c.Sockets = 1
		}
	}
	return c
}

// Look sees what came and went, and makes polling be as asked. It is to be
// called about twice a second: an epoll instance that a bulk connection joined
// is left at the next look. On error nothing is engaged.
func (e *Engager) Look(v View) (Report, error) {
	var r Report
	if v.Mode == Off {
		e.table, e.looks, e.bad = nil, 0, 0
		return r, e.leave(&r, "asked to")
	}
	t, err := readTable(e.cfg.NS, v.Bulk, e.table, e.cfg.Limits.Sockets)
	if err != nil {
		return r, joinErr(err, e.leave(&r, err.Error()))
	}
	if t.truncated {
		e.counts.RefusedSockets++
	}
	first := e.table == nil
	e.table = t
	if e.held != nil {
		if why := e.held.over(t); why != "" {
			if err := e.leave(&r, why); err != nil {
				return r, err
			}
		}
	}
	if first { // nothing to compare with: all is still
		return r, nil
	}
	if e.looks%walkEvery == 0 && (e.held != nil || v.Mode == On) {
		if err := e.search(v, &r); err != nil {
			return r, joinErr(err, e.leave(&r, err.Error()))
		}
	}
	e.looks++
	if e.held == nil {
		return r, nil
	}
	if err := e.held.set(v.Mode == On); err != nil {
		return r, joinErr(e.tolerate(err), e.leave(&r, err.Error()))
	}
	r.Engaged = e.held.on
	return r, nil
}

// search finds who should poll, and engages it. One that polls is left when two
// searches in a row find that it no longer should: activity is a sample.
func (e *Engager) search(v View, r *Report) error {
	found, why := e.find(v.NAPI)
	if e.held != nil {
		if found != nil && found.same(e.held.who) {
			e.bad = 0
			return nil
		}
		if e.bad++; e.bad < 2 {
			return nil
		}
		if why == "" {
			why = "another waits for most of the primary queue now"
		}
		if err := e.leave(r, why); err != nil {
			return err
		}
	}
	if found == nil || v.Mode != On {
		return nil
	}
	return e.engage(*found, r)
}

func (e *Engager) engage(w waiter, r *Report) error {
	h, err := hold(w)
	if err != nil || h == nil { // gone since, or it polls by its own wish
		return e.tolerate(err)
	}
	if err := e.record.add(h.entry()); err != nil {
		h.close()
		return err
	}
	if err := h.set(true); err != nil {
		h.close()
		return joinErr(e.tolerate(err), e.record.clear())
	}
	e.held, e.bad = h, 0
	e.counts.Engaged++
	r.Events = append(r.Events, fmt.Sprintf("engaged %v: it waits for %.0f%% of the primary queue's packets", w, 100*w.share))
	return nil
}

// tolerate counts a refusal of the kernel, and takes a process that ended for
// what it is: no error.
func (e *Engager) tolerate(err error) error {
	if isGone(err) || errors.Is(err, errOther) {
		return nil
	}
	if isDenied(err) {
		e.counts.Denied++
		return nil
	}
	return err
}

// leave puts back what is engaged.
func (e *Engager) leave(r *Report, why string) error {
	if e.held == nil {
		return nil
	}
	h := e.held
	e.held = nil
	e.counts.Disengaged++
	r.Events = append(r.Events, fmt.Sprintf("left %v: %s", h.who, why))
	err := h.set(false)
	h.close()
	if err != nil && !isGone(err) {
		return err // the record stays, for a reset
	}
	return e.record.clear()
}

// Close puts back what is engaged.
func (e *Engager) Close() error {
	var r Report
	return joinErr(e.leave(&r, "the end"), e.record.remove())
}

// self is this process, which never engages itself.
var self = os.Getpid()
