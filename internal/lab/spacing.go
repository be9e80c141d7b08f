package lab

import (
	"fmt"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/sysfs"
)

// sendFramesMax is GSO_MAX_SEGS (linux/netdevice.h), which a veth begins with.
const sendFramesMax = 65535

// SetSendFrames bounds how many frames the host's TCP hands to its device at
// once; zero means no bound but the 64 KB of a packet. It holds for connections
// made from then on. A rate limit lets what was handed over at once pass at
// once: under a limit, 1 spaces frames as a real wire of that rate does, and
// anything else makes bursts of up to 45 frames, at the limit's mean rate.
func (h *Host) SetSendFrames(n int) error {
	if n == 0 {
		n = sendFramesMax
	}
	if n < 1 || n > sendFramesMax {
		return fmt.Errorf("%d frames at once are not possible; use 1 to %d, or 0 for no bound", n, sendFramesMax)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("bound the frames of %q: %w", h.Name, errClosed)
	}
	dev, err := h.nl.LinkByName(h.Dev)
	if err != nil {
		return fmt.Errorf("find %q: %w", h.Dev, err)
	}
	if err := h.nl.LinkSetGSOMaxSegs(dev, n); err != nil {
		return fmt.Errorf("bound the frames of %q: %w", h.Name, err)
	}
	return nil
}

// switchOn has frames that the host sends switched on one CPU.
func (h *Host) switchOn(c *int) error {
	if c == nil {
		return nil
	}
	ns, err := netns.OpenPath(h.wire.NetNSPath)
	if err != nil {
		return err
	}
	defer ns.Close()
	fs, err := sysfs.Open(ns)
	if err != nil {
		return err
	}
	defer fs.Close()
	rx, _, err := fs.Queues(h.FarDev)
	if err != nil {
		return err
	}
	for q := range rx {
		if err := fs.SetRPSCPUs(h.FarDev, q, cpu.Of(*c)); err != nil {
			return fmt.Errorf("switch frames of %q on CPU %d: %w", h.Name, *c, err)
		}
	}
	return nil
}
