package busypoll

import "fmt"

const (
	// shareMin is how much of the primary queue's traffic one waiter must wait
	// for. Only one at a time can poll a queue (NAPI_STATE_SCHED); others that
	// try burn their CPU time, and the one polled gains nothing from a wake-up
	// that another needs.
	shareMin = 0.8
	// shareKeep is where an engaged one is left again.
	shareKeep = 0.6
)

type kind uint8

const (
	epoll kind = iota + 1
	socket
)

// waiter is something that a thread sleeps on: an epoll instance, or a socket
// that no epoll instance has.
type waiter struct {
	kind  kind
	proc  process
	fd    int    // in the process
	inode uint32 // of a socket
	// cookie of a socket.
	cookie uint64
	// active are its connections that received data since the last look.
	active []uint32
	// bulk says that a bulk connection is among all its connections.
	bulk bool
	// share of the primary queue's traffic, once picked.
	share float64
}

// String names the waiter for an operator.
func (w waiter) String() string {
	what := "an epoll instance"
	if w.kind == socket {
		what = "a socket"
	}
	return fmt.Sprintf("%s of process %d (%s)", what, w.proc.pid, w.proc.name)
}

func (w waiter) same(o waiter) bool {
	return w.kind == o.kind && w.proc.pid == o.proc.pid && w.proc.start == o.proc.start && w.fd == o.fd && w.inode == o.inode
}

// pick chooses who should poll, or says why nobody should. napi holds the queue
// of each connection that was asked; current, if not nil, is engaged now.
func pick(waiters []waiter, t *table, napi map[uint32]uint32, primary uint32, current *waiter) (*waiter, string) {
	var total uint64
	for ino, id := range napi {
		if id == primary {
			total += uint64(t.socks[ino].recent)
		}
	}
	if total == 0 {
		return nil, "no connection receives from the primary queue"
	}
	var best *waiter
	for i := range waiters {
		w := &waiters[i]
		var own uint64
		for _, ino := range w.active {
			if napi[ino] == primary {
				own += uint64(t.socks[ino].recent)
			}
		}
		w.share = float64(own) / float64(total)
		if best == nil || w.share > best.share {
			best = w
		}
	}
	if best == nil {
		return nil, "no process was found that has the primary queue's connections"
	}
	least := shareMin
	if current != nil && best.same(*current) {
		least = shareKeep
	}
	if best.share < least {
		return nil, fmt.Sprintf("several wait for the primary queue; the busiest for %.0f%% of it", 100*best.share)
	}
	if best.bulk {
		return nil, "it has a bulk connection as well"
	}
	for _, ino := range best.active {
		// Zero is no queue at all, as on the loopback device.
		if id, asked := napi[ino]; asked && id != 0 && id != primary {
			return nil, "it has connections of other queues as well"
		}
	}
	return best, ""
}
