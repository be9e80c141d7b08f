package model

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// SnapshotFormat is the value of Snapshot.Format. It rises only when a field
// changes its meaning; adding a field does not change it.
const SnapshotFormat = 1

// Snapshot is what one daemon knew at one moment: the whole content of every
// display, and the JSON that --json prints. Fields are only ever added.
// Durations are nanoseconds in JSON, times are RFC 3339, and a list that is
// empty is [] once Canonical has been called.
type Snapshot struct {
	// Format is SnapshotFormat.
	Format int `json:"format"`
	// Taken is when the snapshot was taken, by the daemon's clock. Displays use
	// it as "now", so that a recorded snapshot always draws the same report.
	Taken time.Time `json:"taken"`
	// Daemon is who took it.
	Daemon Daemon `json:"daemon"`
	// Interfaces are the devices the daemon manages, in the order it was given them.
	Interfaces []Interface `json:"interfaces"`
}

// Daemon names the process that took a snapshot.
type Daemon struct {
	// Version is the version of the daemon's build.
	Version string `json:"version"`
	// PID is the daemon's process, as seen from its own PID namespace.
	PID int `json:"pid"`
	// Started is when it began, by its own clock.
	Started time.Time `json:"started"`
	// Namespace is the network namespace it was started in: a name, a path, or
	// "" for the host's own.
	Namespace string `json:"namespace"`
}

// InterfaceState is the operator's word for how an interface is doing.
type InterfaceState string

// The states. RECOVERING and NOT ACTIVE come with a Reason.
const (
	// StateReady: traffic is being sorted and every setting is in place.
	StateReady InterfaceState = "READY"
	// StateNotActive: nothing of ours is in place on the device.
	StateNotActive InterfaceState = "NOT ACTIVE"
	// StateRecovering: something reset a setting, and it is being reapplied.
	StateRecovering InterfaceState = "RECOVERING"
)

// Answer is a yes or no that may not have been read. The zero value is "not read".
type Answer string

// The answers.
const (
	AnswerUnknown Answer = ""
	AnswerYes     Answer = "YES"
	AnswerNo      Answer = "NO"
)

// AnswerOf turns a claim that was read into an Answer.
func AnswerOf(is bool) Answer {
	if is {
		return AnswerYes
	}
	return AnswerNo
}

// Count is a counter that an adapter may be unable to give: it is null in JSON
// then, so that "not counted" is never taken for zero. The zero value is unknown.
type Count struct {
	N     uint64
	Known bool
}

// Known returns a count that was read.
func Known(n uint64) Count { return Count{N: n, Known: true} }

// Add returns the sum of what is known of two counts; it is unknown only if
// both are.
func (c Count) Add(d Count) Count {
	return Count{N: c.N + d.N, Known: c.Known || d.Known}
}

// MarshalJSON writes the number, or null for an unknown count.
func (c Count) MarshalJSON() ([]byte, error) {
	if !c.Known {
		return []byte("null"), nil
	}
	return strconv.AppendUint(nil, c.N, 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Count) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*c = Count{}
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("read count %q: %w", b, err)
	}
	*c = Known(n)
	return nil
}

// MarshalText writes the mode as its operand.
func (m INBPERF) MarshalText() ([]byte, error) {
	if int(m) >= len(inbperfNames) {
		return nil, fmt.Errorf("write INBPERF: %d is not a mode", uint8(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads an operand, in any case.
func (m *INBPERF) UnmarshalText(b []byte) error {
	v, err := ParseINBPERF(string(b))
	if err != nil {
		return err
	}
	*m = v
	return nil
}

// Interface is one managed device.
type Interface struct {
	// Device is the kernel's name in Netns, at most 15 bytes (IFNAMSIZ-1).
	Device string `json:"device"`
	// Netns is the namespace it lives in: a name, a path, or "" for the host's own.
	Netns string `json:"netns"`
	// Ifindex is its number in that namespace; 0 once the device is gone.
	Ifindex int `json:"ifindex"`
	// Adapter is the room that drives it: "veth", "cpumap".
	Adapter string `json:"adapter"`
	// State and Reason say how it is; Reason is "" when READY.
	State  InterfaceState `json:"state"`
	Reason string         `json:"reason"`
	// MTU in bytes; 0 unknown.
	MTU int `json:"mtu"`
	// SpeedMbps is what the driver claims, in Mb/s; 0 unknown.
	SpeedMbps uint64 `json:"speed_mbps"`
	// MAC is six colon-separated hex pairs; "" unknown.
	MAC string `json:"mac"`
	// Addresses are its unicast addresses with their prefix lengths.
	Addresses []netip.Prefix `json:"addresses"`
	// VLAN is the tag that the device itself adds and strips; 0 none.
	VLAN uint16 `json:"vlan"`
	// Broadcast and Multicast are the link's flags.
	Broadcast Answer `json:"broadcast"`
	Multicast Answer `json:"multicast"`
	// ChecksumOffload and SegmentationOffload are the device's own features
	// (rx-checksum, TCP segmentation), as they are now.
	ChecksumOffload     Answer `json:"checksum_offload"`
	SegmentationOffload Answer `json:"segmentation_offload"`
	// INBPERF is the mode in effect.
	INBPERF INBPERF `json:"inbperf"`
	// WorkloadQ: inbound traffic is sorted onto several queues.
	WorkloadQ bool `json:"workloadq"`
	// OLM: optimized latency mode, busy polling on the primary queue.
	OLM bool `json:"olm"`
	// Queues are in ID order: those that exist, and those that share one.
	Queues []Queue `json:"queues"`
	// Rules are what the sorter sorts by.
	Rules Rules `json:"rules"`
	// Sorter is what the sorter counted.
	Sorter Sorter `json:"sorter"`
	// Cannot lists, a sentence each, what this adapter is unable to do.
	Cannot []string `json:"cannot"`
	// Changes lists what was changed on the host, in the order it was done.
	Changes []Change `json:"changes"`
	// Link is the device's own statistics.
	Link LinkStats `json:"link"`
}

// Queue is one inbound queue. A queue whose Shares is set has no hardware
// queue of its own, because the device has too few: its packets and bytes are
// still counted by the sorter, and all else belongs to the queue it shares.
type Queue struct {
	// ID is the operator's number (RD/ID); Role is ID.String().
	ID   QueueID `json:"id"`
	Role string  `json:"role"`
	// Shares is the queue whose hardware queue this one uses; 0 for its own.
	Shares QueueID `json:"shares,omitempty"`
	// Hardware is the receive queue's index, from 0.
	Hardware int `json:"hardware_queue"`
	// NAPI is the kernel's NAPI id; 0 none or unknown.
	NAPI uint32 `json:"napi_id"`
	// ThreadPID is the kernel thread that delivers the queue; 0 none.
	ThreadPID int `json:"thread_pid"`
	// CPU is where the queue is delivered; -1 not pinned.
	CPU int `json:"cpu"`
	// Priority is the thread's scheduling, in words: "FIFO 10", "OTHER nice 0".
	Priority string `json:"priority"`
	// Hold and DeferCount are the timers in effect now (see model.Hold).
	Hold       time.Duration `json:"hold_ns"`
	DeferCount uint32        `json:"defer_count"`
	// RingEntries is how many packets the ring takes; 0 unknown.
	RingEntries int `json:"ring_entries"`
	// Counters count since the device was taken over.
	Counters QueueCounters `json:"counters"`
	// Decision is the last one made about this queue; its zero value: none yet.
	Decision Decision `json:"last_decision"`
}

// QueueCounters are one queue's totals since the device was taken over.
type QueueCounters struct {
	// Packets and Bytes are what the sorter put on the queue; bytes are frame
	// bytes with the Ethernet header.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// RingDrops are packets lost because the ring was full.
	RingDrops Count `json:"ring_drops"`
	// Deliveries are polls that handed at least one packet to the stack.
	Deliveries Count `json:"deliveries"`
	// ThreadRun is how long the queue's thread has run, in nanoseconds.
	ThreadRun Count `json:"thread_run_ns"`
	// ThreadWakes is how often it was put on a CPU: a wake-up stands for an interrupt.
	ThreadWakes Count `json:"thread_wakes"`
}

// Decision is something the daemon decided: what, why, and when.
type Decision struct {
	What string    `json:"what"`
	Why  string    `json:"why"`
	When time.Time `json:"when"`
}

// Rules are the sorting rules in force: everything that is not PRIMARY's.
type Rules struct {
	// SysDist are the distributed addresses whose TCP goes to SYSDIST.
	SysDist []netip.Addr `json:"sysdist"`
	// EEPorts are the UDP ports, and EELocal the local addresses, that go to EE.
	EEPorts []uint16     `json:"ee_ports"`
	EELocal []netip.Addr `json:"ee_local"`
	// Bulk are registered connections, those registered longest first. A query
	// may have cut the list; Bulk4Total and Bulk6Total count all that are registered.
	Bulk       []BulkConnection `json:"bulk"`
	Bulk4Total int              `json:"bulk_ipv4_total"`
	Bulk6Total int              `json:"bulk_ipv6_total"`
}

// BulkConnection is one connection registered to BULKDATA, as inbound packets
// carry it: Source is the far end, Destination this host.
type BulkConnection struct {
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	// VLANs are the tags that are part of the key, the outer one first; at most two.
	VLANs []uint16 `json:"vlans,omitempty"`
	// Since is when it was registered.
	Since time.Time `json:"since"`
	// Packets and Bytes went to BULKDATA since then.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// FoundBytes is the one-way payload after which it was found to be bulk,
	// MovedBytes that after which its packets went to BULKDATA; 0 = not yet.
	FoundBytes uint32 `json:"found_bytes"`
	MovedBytes uint32 `json:"moved_bytes"`
}

// Sorter is what the sorter counted since it was attached.
type Sorter struct {
	// Reasons counts packets by why they went where they went; the keys are the
	// sorter's own names. ReasonOrder is the order in which to show them.
	Reasons     map[string]uint64 `json:"reasons"`
	ReasonOrder []string          `json:"reason_order"`
	// Flows are in the table now, of FlowCapacity.
	Flows        uint64 `json:"flows"`
	FlowCapacity uint64 `json:"flow_capacity"`
	// FlowsRefused found no room; FlowsEvicted made room for another.
	FlowsRefused uint64 `json:"flows_refused"`
	FlowsEvicted uint64 `json:"flows_evicted"`
	// MovesDone are changes of queue; MovesPending wait for older packets to leave.
	MovesDone    uint64 `json:"moves_done"`
	MovesPending uint64 `json:"moves_pending"`
}

// Change is one setting of the host that was changed and will be put back.
type Change struct {
	What string `json:"what"`
	From string `json:"from"`
	To   string `json:"to"`
}

// LinkStats are the kernel's statistics of the device (rtnl_link_stats64), since
// the device was made.
type LinkStats struct {
	RxBytes   uint64 `json:"rx_bytes"`
	RxPackets uint64 `json:"rx_packets"`
	RxErrors  uint64 `json:"rx_errors"`
	RxDropped uint64 `json:"rx_dropped"`
	TxBytes   uint64 `json:"tx_bytes"`
	TxPackets uint64 `json:"tx_packets"`
	TxErrors  uint64 `json:"tx_errors"`
	TxDropped uint64 `json:"tx_dropped"`
}

// Canonical returns a copy in which every empty list is [] and not null in
// JSON, Format is set, and each queue's Role is that of its ID. The lists
// themselves are shared with s.
func (s Snapshot) Canonical() Snapshot {
	s.Format = SnapshotFormat
	s.Interfaces = append([]Interface{}, s.Interfaces...)
	for i := range s.Interfaces {
		in := &s.Interfaces[i]
		in.Addresses = orEmpty(in.Addresses)
		in.Cannot = orEmpty(in.Cannot)
		in.Changes = orEmpty(in.Changes)
		in.Rules.SysDist = orEmpty(in.Rules.SysDist)
		in.Rules.EEPorts = orEmpty(in.Rules.EEPorts)
		in.Rules.EELocal = orEmpty(in.Rules.EELocal)
		in.Rules.Bulk = orEmpty(in.Rules.Bulk)
		in.Sorter.ReasonOrder = orEmpty(in.Sorter.ReasonOrder)
		if in.Sorter.Reasons == nil {
			in.Sorter.Reasons = map[string]uint64{}
		}
		in.Queues = append([]Queue{}, in.Queues...)
		for q := range in.Queues {
			in.Queues[q].Role = in.Queues[q].ID.String()
		}
	}
	return s
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
