// Package receive is the contract of the adapters: whatever feeds a host's
// receive queues. An adapter makes the queues, has the sorter choose among
// them, applies the hold that it is told, and notices when something resets
// any of that. What to hold is decided in policy; when to look and what to
// undo in stack; which queue a packet belongs on in sorter.
package receive

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/model"
	"xlane/internal/receive/sorter"
)

// Spec is what an adapter is asked to do with one device.
type Spec struct {
	// NS and Device name the device. The handle stays open as long as the adapter.
	NS     *netns.Handle
	Device string
	// Sort spreads traffic over queues by workload (WORKLOADQ). Without it
	// there are Queues queues, over which the kernel hashes flows.
	Sort   bool
	Queues int
	// CPUs may deliver queues; empty means all that are online. PRIMARY has
	// the first of them, BULKDATA the next, and so on, round.
	CPUs cpu.Set
	// Sorter is how bulk is told from interactive.
	Sorter sorter.Config
	// Journal has every change to the host before it is made.
	Journal setting.Journal
	// PinDir, on a BPF file system, keeps programs and maps when the process
	// dies. Pins found there are adopted.
	PinDir string
	// Unthreaded leaves polling to softirqs, for comparison in bench.
	Unthreaded bool
}

// Queue is one queue as it is now.
type Queue struct {
	ID       model.QueueID
	Shares   model.QueueID // the queue whose place it shares; 0 when it has its own
	Index    int           // the device's receive queue
	NAPI     uint32
	PID      int // of the thread that delivers it; 0 when a softirq does
	CPU      int // -1 when not pinned
	Priority string
	Hold     model.Hold
	Ring     int // entries; 0 unknown
}

// Reading is what one queue has counted since the adapter began. Fields that
// an adapter cannot know are zero, and Known says which are real.
type Reading struct {
	ID             model.QueueID
	Packets, Bytes uint64 // as frames on the wire
	Drops          uint64 // lost because the ring was full
	ThreadRun      time.Duration
	ThreadWakes    uint64
	CPU            int // that delivers the queue; -1 when not pinned
	Known          Known
	// Waits says that a packet which finds the queue full waits at the sender.
	Waits bool
}

// Known says which of a reading's fields the adapter can fill.
type Known struct{ Packets, Drops, Thread bool }

// ErrGone says that the device or its namespace no longer exists: the adapter
// cannot come back, and there is nothing left to put back on it.
var ErrGone = errors.New("the device is gone")

// ErrDown says that the device is down; the adapter comes back by itself when
// it is up again and Apply is called.
var ErrDown = errors.New("the device is down")

// Adapter drives one device. Its methods are called from one goroutine, except
// Watch, which runs on another.
type Adapter interface {
	// Name is the adapter's word in displays: "veth", "cpumap".
	Name() string
	// Cannot lists, a sentence each, what this adapter is unable to do here.
	Cannot() []string
	// Apply makes everything be as the Spec asks, records each change first,
	// and changes nothing that already is so. It is called at the start, and
	// again whenever Watch or Check say that something was reset. On error
	// what was done stays recorded; the caller undoes it.
	Apply(ctx context.Context) error
	// Check reports what is not as Apply left it, a sentence each.
	Check() ([]string, error)
	// Watch calls reset, with a reason, whenever something happened that may
	// have reset any of it, until the context ends.
	Watch(ctx context.Context, reset func(why string)) error
	// SetHold changes how long one queue holds its packets. Adapters that
	// cannot return errors.ErrUnsupported.
	SetHold(q model.QueueID, hold model.Hold) error
	// Queues describes the queues now.
	Queues() ([]Queue, error)
	// Read reads what the queues have counted.
	Read() ([]Reading, error)
	// Sorter returns the sorter, or nil when Spec.Sort is false.
	Sorter() *sorter.Sorter
	// Adopted says that Apply found a sorter at work and took it over.
	Adopted() bool
	// Drain sends every connection home to PRIMARY in order, and returns when
	// that is done or the context ends.
	Drain(ctx context.Context) error
	// Detach takes the programs off and removes the pins. Settings are put
	// back by whoever has the journal.
	Detach() error
	// Close lets go without changing anything on the host.
	Close()
}

// RefreshLocal tells the sorter the addresses of the namespace that links asks:
// those to which EE's ports apply.
func RefreshLocal(links *link.Conn, s *sorter.Sorter) error {
	prefixes, err := links.Addresses(0)
	if err != nil {
		return err
	}
	addrs := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		addrs[i] = p.Addr()
	}
	return s.SetLocal(addrs)
}

// DrainSorter waits until no connection is bulk or on its way between queues.
// It is the common part of the adapters' Drain.
func DrainSorter(ctx context.Context, s *sorter.Sorter) error {
	if s == nil {
		return nil
	}
	if err := s.Drain(); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		home, err := everyoneHome(s)
		if home || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// everyoneHome reports whether each connection that still sends is on PRIMARY.
// One that has been still for longer than any hold is as good as home: its
// next packet finds the old queue empty.
func everyoneHome(s *sorter.Sorter) (bool, error) {
	home := true
	err := s.Flows(false, func(f sorter.Flow) bool {
		if f.Queue != model.Primary && f.Idle < 100*time.Millisecond {
			home = false
		}
		return home
	})
	return home, err
}
