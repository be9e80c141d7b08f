package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	// laneFramesMax is how many frames a lane holds, and again how many wait
	// for its reader: 200 ms of full frames at 1 Gb/s, 25 MB of memory.
	laneFramesMax = 16384
	// laneBatch is how many frames are read before the due ones are written.
	laneBatch = 64
	// laneHeaderMax is an Ethernet header with two VLAN tags.
	laneHeaderMax = 14 + 2*4
)

// lane delays frames: a TAP device that takes them, and a thread that writes
// each back when it is due.
type lane struct {
	ifindex   int
	reordered atomic.Uint64

	name     string
	wire     *Wire
	tap      int // file descriptors
	wake     int
	attach   link.Link
	settings atomic.Pointer[laneSettings]
	dropped  atomic.Uint64
	stopping atomic.Bool
	done     chan struct{}
	frameMax int
	cpus     unix.CPUSet // the one CPU of the thread
}

// laneSettings say when a frame is due.
type laneSettings struct {
	delay, jitter, hold time.Duration
	seed, reorder       uint64
	// all: every frame of the path comes here, and the lane chooses those to
	// be held back. Otherwise only the chosen ones come.
	all bool
}

// openLane makes the device and starts its thread. back is the program that
// sends returning frames on.
func openLane(wire *Wire, name string, mtu int, back *ebpf.Program) (_ *lane, err error) {
	l := &lane{name: name, wire: wire, tap: -1, wake: -1, done: make(chan struct{}), frameMax: mtu + laneHeaderMax}
	l.settings.Store(&laneSettings{})
	if l.cpus, err = laneCPU(wire.laneCPU); err != nil {
		return nil, fmt.Errorf("open slow lane %q: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open slow lane %q: %w", name, err), l.release())
		}
	}()
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err = wire.Do(l.openTap); err != nil {
		return nil, err
	}
	dev, err := wire.nl.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find tap: %w", err)
	}
	l.ifindex = dev.Attrs().Index
	if err = wire.nl.LinkSetMTU(dev, mtu); err != nil {
		return nil, fmt.Errorf("set mtu: %w", err)
	}
	if err = wire.nl.LinkSetTxQLen(dev, laneFramesMax); err != nil {
		return nil, fmt.Errorf("set queue length: %w", err)
	}
	if err = wire.Do(func() error {
		l.attach, err = link.AttachTCX(link.TCXOptions{
			Interface: l.ifindex, Program: back, Attach: ebpf.AttachTCXIngress,
		})
		return err
	}); err != nil {
		return nil, err
	}
	if err = wire.nl.LinkSetUp(dev); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	go l.run()
	return l, nil
}

// laneCPU returns the set of the wanted CPU, or of the highest that the
// process may use when none is wanted: interrupts tend to be on the lowest.
func laneCPU(wanted *int) (one unix.CPUSet, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &allowed); err != nil {
		return one, fmt.Errorf("read own CPUs: %w", err)
	}
	highest := 0
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			highest = cpu
		}
	}
	if wanted != nil {
		if !allowed.IsSet(*wanted) {
			return one, fmt.Errorf("this process may not use CPU %d", *wanted)
		}
		highest = *wanted
	}
	one.Set(highest)
	return one, nil
}

func (l *lane) openTap() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	l.tap = fd
	req, err := unix.NewIfreq(l.name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("make tap: %w", err)
	}
	return nil
}

func (l *lane) set(s laneSettings) { l.settings.Store(&s) }

// refused counts frames that found the lane, or the queue before it, full.
func (l *lane) refused() (uint64, error) {
	dev, err := l.wire.nl.LinkByName(l.name)
	if err != nil {
		return 0, fmt.Errorf("find tap: %w", err)
	}
	return l.dropped.Load() + dev.Attrs().Statistics.TxDropped, nil
}

// close stops the thread; frames that it still holds are dropped.
func (l *lane) close() error {
	l.stopping.Store(true)
	if _, err := unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return fmt.Errorf("stop slow lane %q: %w", l.name, err)
	}
	<-l.done
	return l.release()
}

// release closes what is open; the device goes with its descriptor.
func (l *lane) release() error {
	var err error
	if l.attach != nil {
		err = l.attach.Close()
	}
	for _, fd := range []int{l.tap, l.wake} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// run is the lane's thread. It sleeps in ppoll, whose time-out is exact to
// the thread's timer slack, where Go's own timers round up to 1 ms.
func (l *lane) run() {
	defer close(l.done)
	runtime.LockOSThread() // never unlocked: the slack is this thread's
	// The default slack is 50 µs. On failure the lane is only less exact.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	// A veth hands frames to the backlog of the CPU it is called on, so a
	// thread that changes its CPU lets frames overtake. This cannot fail for
	// a CPU out of the thread's own set.
	_ = unix.SchedSetaffinity(0, &l.cpus)
	start := time.Now()
	var q laneQueue
	polled := []unix.PollFd{{Fd: int32(l.tap), Events: unix.POLLIN}, {Fd: int32(l.wake), Events: unix.POLLIN}}
	for !l.stopping.Load() {
		more := l.take(&q, start)
		for frame := q.due(time.Since(start)); frame != nil; frame = q.due(time.Since(start)) {
			if _, err := unix.Write(l.tap, frame); err != nil {
				l.dropped.Add(1) // the host's link went away meanwhile
			}
			q.recycle(frame)
		}
		if more {
			continue
		}
		var wait *unix.Timespec // nil: until a frame comes
		if next, ok := q.next(); ok {
			ts := unix.NsecToTimespec(int64(max(next-time.Since(start), 0)))
			wait = &ts
		}
		if _, err := unix.Ppoll(polled, wait, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // a descriptor that is open cannot fail
		}
	}
}

// take reads up to laneBatch frames and reports whether more may be waiting.
func (l *lane) take(q *laneQueue, start time.Time) bool {
	s := l.settings.Load()
	for range laneBatch {
		buf := q.buffer(l.frameMax)
		n, err := unix.Read(l.tap, buf)
		if err != nil {
			q.recycle(buf)
			return false
		}
		if q.full() {
			q.recycle(buf)
			l.dropped.Add(1)
			continue
		}
		if q.admit(buf[:n], time.Since(start), s) {
			l.reordered.Add(1)
		}
	}
	return true
}
