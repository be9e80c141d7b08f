package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Drops counts the frames on their way to the host that the adapter dropped
// since the link was made: those that found a ring full, and those that found
// full the queueing discipline that waits for room in it. The latter count from
// when that discipline was attached.
func (h *Host) Drops() (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, fmt.Errorf("count drops of %q: %w", h.Name, errClosed)
	}
	dev, err := h.wire.nl.LinkByName(h.FarDev)
	if err != nil {
		return 0, fmt.Errorf("find %q: %w", h.FarDev, err)
	}
	var n uint64
	if s := dev.Attrs().Statistics; s != nil {
		n = s.TxDropped
	}
	qdiscs, err := h.wire.nl.QdiscList(dev)
	if err != nil {
		return 0, fmt.Errorf("list qdiscs of %q: %w", h.FarDev, err)
	}
	for _, q := range qdiscs {
		// A classful root, such as mq, counts what its children dropped.
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			n += uint64(a.Statistics.Queue.Drops)
		}
	}
	return n, nil
}
