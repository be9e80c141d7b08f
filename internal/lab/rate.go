package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Limits of a rate: below, a frame takes longer than anybody waits; above,
	// HTB's 32-bit bytes per second end.
	rateMinBPS = 64_000
	rateMaxBPS = 30_000_000_000

	// rateBurst is how much of its rate an idle path may send at once. At
	// 1 Gb/s that is 8 full frames: the timer then fires once in 100 µs rather
	// than once a frame, and a burst stays far below a receive ring's 256.
	rateBurst = 100 * time.Microsecond

	// rateQuantumFrames is HTB's quantum in frames; with a single class it has
	// no effect but to keep the kernel from warning about its own choice.
	rateQuantumFrames = 10

	ethernetHeader = 14
)

var (
	rateRoot  = netlink.MakeHandle(1, 0)
	rateClass = netlink.MakeHandle(1, 1)
)

func checkRate(bps uint64) error {
	if bps != 0 && (bps < rateMinBPS || bps > rateMaxBPS) {
		return fmt.Errorf("a rate of %d bit/s is not possible; use %d to %d, or 0 for none", bps, uint64(rateMinBPS), uint64(rateMaxBPS))
	}
	return nil
}

// SetRate limits one direction of the host's link to bps bits per second of
// Ethernet frames; zero takes the limit away. Out is limited at the host's
// device, so that its senders feel it as they feel a real link; In at the
// switch's port, behind whatever runs on the far end's egress, where 1000
// frames may queue and the rest is dropped.
func (h *Host) SetRate(d Direction, bps uint64) error {
	if err := checkRate(bps); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("limit %q: %w", h.Name, errClosed)
	}
	nl, name := h.nl, h.Dev
	if d == In {
		nl, name = h.wire.nl, h.FarDev
	}
	dev, err := nl.LinkByName(name)
	if err != nil {
		return fmt.Errorf("limit %q: find device: %w", name, err)
	}
	root := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: dev.Attrs().Index, Handle: rateRoot, Parent: netlink.HANDLE_ROOT,
	})
	root.Defcls = 1
	if bps == 0 {
		// Without a limit there is no such qdisc, and the kernel says so.
		err := nl.QdiscDel(root)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("take limit off %q: %w", name, err)
		}
		return nil
	}
	present, err := hasLimit(nl, dev)
	if err != nil {
		return fmt.Errorf("limit %q: %w", name, err)
	}
	if !present {
		if err := nl.QdiscAdd(root); err != nil {
			return fmt.Errorf("limit %q: add htb: %w", name, err)
		}
	}
	frame := uint32(h.spec.MTU + ethernetHeader)
	burst := max(uint32(bps/8*uint64(rateBurst)/uint64(time.Second)), 2*frame)
	class := netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: dev.Attrs().Index, Parent: rateRoot, Handle: rateClass},
		netlink.HtbClassAttrs{Rate: bps, Buffer: burst, Cbuffer: burst, Quantum: rateQuantumFrames * frame})
	if err := nl.ClassReplace(class); err != nil {
		return fmt.Errorf("limit %q: set htb class: %w", name, err)
	}
	return nil
}

func hasLimit(nl *netlink.Handle, dev netlink.Link) (bool, error) {
	qdiscs, err := nl.QdiscList(dev)
	if err != nil {
		return false, fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		if q.Type() == "htb" && q.Attrs().Handle == rateRoot {
			return true, nil
		}
	}
	return false, nil
}
