package sorter

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"xlane/internal/model"
)

// reasonNames are the words for enum reason, in its order. A test holds them
// against the C enum.
var reasonNames = [...]string{
	"not_ip", "malformed", "fragment", "not_tcp", "udp", "ee", "tcp_untracked",
	"tcp_refused", "interactive", "sysdist", "bulk", "waiting", "off",
}

// eventNames are the words for enum event, in its order.
var eventNames = [...]string{
	"tracked", "replaced", "refused", "registered", "register_refused",
	"released_turned", "released_silent", "released_closed", "released_off",
	"moved_proved", "moved_acked", "moved_paused",
}

// Reasons lists the words under which packets are counted, in a stable order.
func Reasons() []string { return reasonNames[:] }

// Events lists the words under which changes of connections are counted.
func Events() []string { return eventNames[:] }

// Counters is what the sorter has counted since it was made.
type Counters struct {
	Packets map[model.QueueID]uint64
	Bytes   map[model.QueueID]uint64 // of frames, Ethernet header included
	Reason  map[string]uint64        // packets; each packet has one reason
	Event   map[string]uint64
}

// Moves is the number of times a connection changed queue.
func (c Counters) Moves() uint64 {
	var n uint64
	for name, v := range c.Event {
		if strings.HasPrefix(name, "moved_") {
			n += v
		}
	}
	return n
}

// Counters reads the counters of all CPUs.
func (s *Sorter) Counters() (Counters, error) {
	var per []sortSorterCounters
	if err := s.Maps.Counters.Lookup(uint32(0), &per); err != nil {
		return Counters{}, fmt.Errorf("read the sorter's counters: %w", err)
	}
	c := Counters{
		Packets: map[model.QueueID]uint64{}, Bytes: map[model.QueueID]uint64{},
		Reason: map[string]uint64{}, Event: map[string]uint64{},
	}
	for i := range per {
		for _, q := range model.AllQueues() {
			c.Packets[q] += per[i].QueuePackets[q]
			c.Bytes[q] += per[i].QueueBytes[q]
		}
		for r, name := range reasonNames {
			c.Reason[name] += per[i].Reason[r]
		}
		for e, name := range eventNames {
			c.Event[name] += per[i].Event[e]
		}
	}
	return c, nil
}

// QueueTotal is what the sorter put on one queue since it was made.
type QueueTotal struct{ Packets, Bytes uint64 }

// QueueTotals reads the totals alone, by queue id, at a fraction of the cost of
// Counters.
func (s *Sorter) QueueTotals() ([model.QueueIDMax + 1]QueueTotal, error) {
	var out [model.QueueIDMax + 1]QueueTotal
	var per []sortSorterCounters
	if err := s.Maps.Counters.Lookup(uint32(0), &per); err != nil {
		return out, fmt.Errorf("read the sorter's counters: %w", err)
	}
	for i := range per {
		for q := range out {
			out[q].Packets += per[i].QueuePackets[q]
			out[q].Bytes += per[i].QueueBytes[q]
		}
	}
	return out, nil
}

// State is what the table holds now.
type State struct {
	Tracked    uint64 // connections in the table
	Registered uint64 // of these, bulk
	Pending    uint64 // of these, waiting to change queue
	Capacity   uint64 // connections the table can hold
	BulkMax    uint64 // connections that can be registered
}

// State reads the table's totals.
func (s *Sorter) State() (State, error) {
	var st sortSorterState
	if err := s.Maps.State.Lookup(uint32(0), &st); err != nil {
		return State{}, fmt.Errorf("read the sorter's state: %w", err)
	}
	return State{
		Tracked: st.Tracked, Registered: st.Registered, Pending: st.Pending,
		Capacity: uint64(s.flowsMax), BulkMax: uint64(s.config.BulkMax),
	}, nil
}

// Flow is one tracked connection.
type Flow struct {
	Remote, Local netip.AddrPort
	VLAN          []uint16 // outer first; empty when untagged
	Queue, Want   model.QueueID
	Bulk, Pending bool
	Idle          time.Duration // since its last packet
	Since         time.Duration // since it was registered; 0 when not bulk
	Packets       uint64        // while registered
	Bytes         uint64        // while registered
	FoundBytes    uint32        // one-way payload when it was registered
	MovedBytes    uint32        // one-way payload when its packets first went to BULKDATA; 0 = not yet
}

// Flows calls yield for every tracked connection, or only the bulk ones, until
// it returns false. It reads the table where it lies, without system calls; a
// connection that changes meanwhile may be seen half-way.
func (s *Sorter) Flows(onlyBulk bool, yield func(Flow) bool) error {
	if s.view == nil {
		view, err := s.Maps.FlowByKey.Memory()
		if err != nil {
			return fmt.Errorf("map the flow table: %w", err)
		}
		s.view = view
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	const size = int(unsafe.Sizeof(sortFlowBucket{}))
	buf := make([]byte, size)
	for off := 0; off+size <= int(s.view.Size()); off += size {
		if _, err := s.view.ReadAt(buf, int64(off)); err != nil {
			return fmt.Errorf("read the flow table: %w", err)
		}
		b := (*sortFlowBucket)(unsafe.Pointer(&buf[0]))
		for i := range b.Tag {
			f := &b.Flow[i]
			if b.Tag[i] < 2 || onlyBulk && f.Bulk == 0 {
				continue
			}
			if !yield(flowOf(f, now)) {
				return nil
			}
		}
	}
	return nil
}

func flowOf(f *sortFlow, now uint64) Flow {
	out := Flow{
		Remote: netip.AddrPortFrom(addrOf(f.Key.Remote), swap16(f.Key.RemotePort)),
		Local:  netip.AddrPortFrom(addrOf(f.Key.Local), swap16(f.Key.LocalPort)),
		Queue:  model.QueueID(f.Queue), Want: model.QueueID(f.Want),
		Bulk: f.Bulk != 0, Pending: f.Pending != 0,
		Idle:    time.Duration(max(int64(now-f.LastNs), 0)),
		Packets: f.Packets, Bytes: f.Bytes,
		FoundBytes: f.FoundBytes, MovedBytes: f.MovedBytes,
	}
	if out.Bulk {
		out.Since = time.Duration(max(int64(now-f.RegisteredNs), 0))
	}
	if f.Key.VlanOuter != 0 {
		out.VLAN = append(out.VLAN, f.Key.VlanOuter)
	}
	if f.Key.VlanInner != 0 {
		out.VLAN = append(out.VLAN, f.Key.VlanInner)
	}
	return out
}

func swap16(v uint16) uint16 { return v<<8 | v>>8 }

// monotonic reads the clock that bpf_ktime_get_ns reads.
func monotonic() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return uint64(ts.Nano()), nil
}
