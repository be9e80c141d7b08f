package awm

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stepBudget is how many calls one connection makes before the others of
	// its thread get their turn: 1 MB of a stream with the default call size.
	stepBudget = 16
	// eventsMax is how many events one epoll_wait takes.
	eventsMax = 256
	// sweepEvery is how often connections past their deadline are looked for.
	sweepEvery = int64(time.Second)
	// timerSlack is what PR_SET_TIMERSLACK gets: the default of 50 µs would
	// make every intended send of an open loop late by as much.
	timerSlack = 1
	// wakeSlot marks the event of the loop's own eventfd.
	wakeSlot = -1
	never    = int64(1) << 62
)

// loop is one thread's poll loop: it owns its connections, and everything that
// happens to them happens on its thread. Others speak to it through ask.
//
// Readiness is edge triggered: a connection's canRead and canWrite are set by
// events and cleared by a call that moved less than it was given, so that no
// connection needs epoll_ctl after it was added.
type loop struct {
	epfd, evfd int
	clock      func() int64 // monotonic, in nanoseconds
	now        int64        // the clock when the last wait returned
	events     [eventsMax]unix.EpollEvent
	slots      []*conn
	free       []int32
	ready      []*conn
	spare      []*conn
	timers     timerHeap
	sweepAt    int64
	stopped    bool
	out        gather

	mu     sync.Mutex
	asked  []func()
	closed bool
}

func newLoop(clock func() int64) (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	evfd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		sysClose(epfd)
		return nil, fmt.Errorf("create an eventfd: %w", err)
	}
	l := &loop{epfd: epfd, evfd: evfd, clock: clock, sweepAt: never}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeSlot}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, evfd, &ev); err != nil {
		l.close()
		return nil, fmt.Errorf("watch an eventfd: %w", err)
	}
	return l, nil
}

// ask runs f on the loop's thread. It reports whether the loop still takes
// questions; f runs exactly once if so.
func (l *loop) ask(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.asked = append(l.asked, f)
	one := [8]byte{1}
	// An eventfd's write can only fail when its count overflows: it is awake.
	_, _ = unix.Write(l.evfd, one[:])
	return true
}

// askWait is ask, and waits until f has run.
func (l *loop) askWait(f func()) bool {
	done := make(chan struct{})
	if !l.ask(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// close lets go of the loop's descriptors, after run or instead of it, and
// answers what was asked too late.
func (l *loop) close() {
	l.mu.Lock()
	asked := l.asked
	l.asked, l.closed = nil, true
	sysClose(l.evfd)
	sysClose(l.epfd)
	l.mu.Unlock()
	for _, f := range asked {
		f()
	}
}

// run polls until stopped is set.
func (l *loop) run() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	l.now = l.clock()
	for !l.stopped {
		l.turn()
	}
}

func (l *loop) turn() {
	n, errno := sysEpollWait(l.epfd, l.events[:], l.timeout())
	if errno != 0 {
		n = 0 // EINTR: whatever interrupted is dealt with below or in the next turn
	}
	l.now = l.clock()
	for i := range l.events[:n] {
		l.note(&l.events[i])
	}
	work := l.ready
	l.ready, l.spare = l.spare[:0], nil
	for _, c := range work {
		c.queued = false
		if c.fd >= 0 && c.role.ready(c) {
			l.mark(c)
		}
	}
	l.spare = work[:0]
	for len(l.timers) > 0 && l.timers[0].wakeAt <= l.now {
		c := l.timers[0]
		l.setTimer(c, never)
		c.role.timer(c)
	}
	if l.now >= l.sweepAt {
		l.sweepAt = never
		l.sweepDue()
	}
}

// setDeadline makes role.ended run with err when the connection is still open
// limit from now, give or take sweepEvery.
func (l *loop) setDeadline(c *conn, limit int64, err error) {
	c.deadline, c.late = l.now+limit, err
	l.armSweep()
}

// armSweep lets sweepDue run. It is armed only while there is something to
// look for: a wait with a time limit costs a kernel timer each.
func (l *loop) armSweep() { l.sweepAt = min(l.sweepAt, l.now+sweepEvery) }

// sweepDue ends the connections that are too late, and retries an accept that
// found no room.
func (l *loop) sweepDue() {
	for _, c := range l.slots {
		switch {
		case c.fd < 0:
		case c.retry:
			c.retry = false
			l.mark(c)
		case c.deadline != 0 && l.now > c.deadline:
			c.deadline = 0
			c.role.ended(c, c.late)
		case c.deadline != 0:
			l.armSweep()
		}
	}
}

// note takes one event in.
func (l *loop) note(ev *unix.EpollEvent) {
	if ev.Fd == wakeSlot {
		l.answer()
		return
	}
	c := l.slots[ev.Fd]
	if c == nil || c.gen != ev.Pad {
		return // closed earlier in this batch
	}
	if ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		c.canRead, c.canWrite = true, true
	}
	if ev.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
		c.canRead = true
	}
	if ev.Events&unix.EPOLLRDHUP != 0 {
		c.hangup = true
	}
	if ev.Events&unix.EPOLLOUT != 0 {
		c.canWrite = true
	}
	l.mark(c)
}

// answer runs what other threads asked for.
func (l *loop) answer() {
	var count [8]byte
	_, _ = unix.Read(l.evfd, count[:])
	l.mu.Lock()
	asked := l.asked
	l.asked = nil
	l.mu.Unlock()
	for _, f := range asked {
		f()
	}
}

func (l *loop) timeout() time.Duration {
	if len(l.ready) > 0 {
		return 0
	}
	at := l.sweepAt
	if len(l.timers) > 0 {
		at = min(at, l.timers[0].wakeAt)
	}
	if at == never {
		return -1
	}
	return time.Duration(max(at-l.clock(), 0))
}

// mark gives the connection a step before the next wait.
func (l *loop) mark(c *conn) {
	if !c.queued {
		c.queued = true
		l.ready = append(l.ready, c)
	}
}

// newConn returns a connection that has a slot and no socket yet.
func (l *loop) newConn(r role) *conn {
	if n := len(l.free); n > 0 {
		slot := l.free[n-1]
		l.free = l.free[:n-1]
		c := l.slots[slot]
		*c = conn{fd: -1, slot: slot, gen: c.gen, queued: c.queued, role: r, wakeAt: never, heapAt: -1}
		return c
	}
	c := &conn{fd: -1, slot: int32(len(l.slots)), role: r, wakeAt: never, heapAt: -1}
	l.slots = append(l.slots, c)
	return c
}

// watch adds the connection's new socket to the poll set.
func (l *loop) watch(c *conn, fd int) error {
	c.fd = fd
	c.gen++
	c.canRead, c.canWrite, c.hangup = false, false, false
	ev := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff,
		Fd:     c.slot, Pad: c.gen,
	}
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		c.fd = -1
		sysClose(fd)
		return fmt.Errorf("watch a socket: %w", err)
	}
	return nil
}

// drop closes the connection's socket and keeps its slot.
func (l *loop) drop(c *conn) {
	if c.fd < 0 {
		return
	}
	sysClose(c.fd) // which takes it out of the poll set: it has no duplicate
	c.fd = -1
	c.gen++
	l.setTimer(c, never)
}

// release drops the connection and gives its slot to a later one.
func (l *loop) release(c *conn) {
	l.drop(c)
	l.setTimer(c, never)
	l.free = append(l.free, c.slot)
}

// timerHeap orders the connections that have a timer by when it is due. It is
// not container/heap, whose interface would cost a call a comparison.
type timerHeap []*conn

// setTimer makes role.timer run at a time of the loop's clock, in place of any
// earlier setting; never takes the timer away.
func (l *loop) setTimer(c *conn, at int64) {
	c.wakeAt = at
	i := int(c.heapAt)
	switch {
	case i < 0 && at == never:
		return
	case i < 0:
		l.timers = append(l.timers, c)
		i = len(l.timers) - 1
		c.heapAt = int32(i)
	case at == never:
		last := len(l.timers) - 1
		l.timers.swap(i, last)
		l.timers = l.timers[:last]
		c.heapAt = -1
		if i == last {
			return
		}
	}
	l.timers.down(l.timers.up(i))
}

func (h timerHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = int32(i), int32(j)
}

func (h timerHeap) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].wakeAt <= h[i].wakeAt {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h timerHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].wakeAt < h[least].wakeAt {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
