// Package model holds the nouns that two or more rooms share: queues, hold
// timers, performance modes and the snapshot that displays are drawn from.
// It decides nothing and touches nothing; it leaves decisions to policy and
// the kernel to the rooms that speak to it.
package model

import (
	"fmt"
	"strings"
	"time"
)

// QueueID names an inbound queue by what it carries, not by the hardware queue
// that happens to carry it. The numbers are those an operator knows (RD/1 …).
type QueueID uint8

// The inbound queues. PRIMARY takes everything that no rule claims.
const (
	Primary  QueueID = 1
	BulkData QueueID = 2
	SysDist  QueueID = 3
	EE       QueueID = 4

	// QueueIDMax bounds every array that is indexed by QueueID.
	QueueIDMax = 4
)

// String returns the operator's name of the queue.
func (q QueueID) String() string {
	switch q {
	case Primary:
		return "PRIMARY"
	case BulkData:
		return "BULKDATA"
	case SysDist:
		return "SYSDIST"
	case EE:
		return "EE"
	}
	return fmt.Sprintf("QUEUE%d", uint8(q))
}

// AllQueues lists the inbound queues in ID order.
func AllQueues() []QueueID { return []QueueID{Primary, BulkData, SysDist, EE} }

// Hold is how long a queue keeps packets back so that several are delivered
// at once. The zero value delivers every packet at once.
type Hold struct {
	// Timeout is the NAPI gro_flush_timeout: the longest time between two
	// deliveries while the queue is busy. Zero means no hold.
	Timeout time.Duration
	// DeferCount is napi_defer_hard_irqs: how many empty polls in a row the
	// timer survives before the queue asks for an interrupt again.
	DeferCount uint32
}

// INBPERF is how an interface's inbound timers are set.
type INBPERF uint8

// The INBPERF modes. DIM is no statement operand: it exists for comparison in
// bench, and drives each queue with the kernel's own moderation algorithm.
const (
	Balanced INBPERF = iota
	MinCPU
	MinLatency
	Dynamic
	DIM
)

var inbperfNames = [...]string{"BALANCED", "MINCPU", "MINLATENCY", "DYNAMIC", "DIM"}

// String returns the operand as it is written in a profile.
func (m INBPERF) String() string {
	if int(m) < len(inbperfNames) {
		return inbperfNames[m]
	}
	return fmt.Sprintf("INBPERF(%d)", uint8(m))
}

// ParseINBPERF reads an operand, in any case.
func ParseINBPERF(s string) (INBPERF, error) {
	for i, n := range inbperfNames {
		if strings.EqualFold(s, n) {
			return INBPERF(i), nil
		}
	}
	return 0, fmt.Errorf("INBPERF %q is not a mode; use BALANCED, MINCPU, MINLATENCY or DYNAMIC", s)
}
