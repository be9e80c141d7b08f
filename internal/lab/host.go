package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Prefix lengths of the wire's two networks, 10.77.0.0/24 and fd77::/64.
	bits4, bits6 = 24, 64

	queuesDefault = 4
	queuesMax     = 64 // far above the CPUs of any host that runs a lab

	mtuDefault = 1500
	mtuMin     = 1280  // IPv6 (RFC 8200 5)
	mtuMax     = 65535 // veth

	// linkUpWait is how long a new link may take to carry frames; it takes
	// about 1 ms, and up to 1 s when the kernel defers its link events.
	linkUpWait = 5 * time.Second
	linkUpPoll = 2 * time.Millisecond
)

// Direction is the way of a frame over a host's link.
type Direction uint8

// The directions, as the host sees them.
const (
	In  Direction = iota // from the wire to the host
	Out                  // from the host to the wire
)

// String returns "in" or "out".
func (d Direction) String() string {
	if d == In {
		return "in"
	}
	return "out"
}

// Path is one direction of a link.
type Path struct {
	// RateBPS is the rate limit in bits per second; zero is none.
	RateBPS uint64
	// Faults are what goes wrong from the start; SetFaults changes it.
	Faults Faults
}

// LinkSpec is the link between a host and the wire.
type LinkSpec struct {
	// Queues is the number of receive and transmit queues of both ends; zero
	// means 4, at most 64.
	Queues int
	// MTU in bytes, 1280 to 65535; zero means 1500.
	MTU int
	// PlainVeth makes a veth pair with the kernel's defaults, as a user has it
	// who knows nothing of xlane. Queues must then be zero.
	PlainVeth bool
	// In and Out are the two directions of the link.
	In, Out Path
}

// Check says what is wrong with the link, without making one.
func (s LinkSpec) Check() error {
	_, err := s.withDefaults()
	return err
}

func (s LinkSpec) withDefaults() (LinkSpec, error) {
	if s.PlainVeth && s.Queues != 0 {
		return s, errors.New("a plain veth has the queues that the kernel gives it; leave Queues zero")
	}
	if s.Queues == 0 && !s.PlainVeth {
		s.Queues = queuesDefault
	}
	if s.MTU == 0 {
		s.MTU = mtuDefault
	}
	if s.Queues < 0 || s.Queues > queuesMax {
		return s, fmt.Errorf("%d queues are not possible; use 1 to %d", s.Queues, queuesMax)
	}
	if s.MTU < mtuMin || s.MTU > mtuMax {
		return s, fmt.Errorf("an MTU of %d bytes is not possible; use %d to %d", s.MTU, mtuMin, mtuMax)
	}
	for _, p := range []Path{s.In, s.Out} {
		if err := errors.Join(checkRate(p.RateBPS), p.Faults.check()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Host is a namespace with one link to the wire.
type Host struct {
	Node
	// Name is the host's name in the lab; NetNS is its namespace's.
	Name string
	// Dev is the host's end of the link; FarDev, in the wire's namespace, is
	// the adapter's.
	Dev, FarDev string
	// Addr4 is in 10.77.0.0/24, Addr6 in fd77::/64, without duplicate address
	// detection.
	Addr4, Addr6 netip.Addr
	// MAC is Dev's, the same in every lab.
	MAC net.HardwareAddr

	spec   LinkSpec
	number byte
	wire   *Wire

	mu     sync.Mutex
	faults [2]*faultPath // by Direction; nil until faults were first set
	closed bool
}

// errClosed answers whoever changes or asks a host whose lab is gone.
var errClosed = errors.New("the lab is closed")

// Spec returns how the link was made, with defaults filled in.
func (h *Host) Spec() LinkSpec { return h.spec }

// macOf is locally administered (bit 1 of the first byte), then "xl", then the
// host's number and which end of its link.
func macOf(number, end byte) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'x', 'l', 0, number, end}
}

func addr6Of(number byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: number})
}

// build makes the link, addresses and rate limits, and waits until the link
// carries frames.
func (h *Host) build() error {
	if err := h.open(); err != nil {
		return err
	}
	// A lab's addresses are its own: nothing to detect, nobody to ask.
	err := h.Do(func() error {
		return errors.Join(
			setSysctl("net/ipv6/conf/default/accept_dad", "0"),
			setSysctl("net/ipv6/conf/default/accept_ra", "0"),
			setSysctl("net/ipv6/conf/default/router_solicitations", "0"))
	})
	if err != nil {
		return err
	}
	if err := h.makeLink(); err != nil {
		return err
	}
	if !h.spec.PlainVeth {
		if err := errors.Join(h.Do(func() error { return clearSegmentation(h.Dev) }),
			h.wire.Do(func() error { return clearSegmentation(h.FarDev) })); err != nil {
			return err
		}
	}
	if err := h.switchOn(h.wire.cpu); err != nil {
		return err
	}
	if err := h.addAddresses(); err != nil {
		return err
	}
	if err := h.raise(); err != nil {
		return err
	}
	for d, p := range map[Direction]Path{In: h.spec.In, Out: h.spec.Out} {
		if err := errors.Join(h.SetRate(d, p.RateBPS), h.SetFaults(d, p.Faults)); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) makeLink() error {
	bridge, err := h.wire.nl.LinkByName(h.wire.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %q: %w", h.wire.Bridge, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = h.FarDev
	attrs.MTU = h.spec.MTU
	attrs.HardwareAddr = macOf(h.number, 2)
	attrs.NumTxQueues, attrs.NumRxQueues = h.spec.Queues, h.spec.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName = h.Dev
	veth.PeerHardwareAddr = h.MAC
	veth.PeerNamespace = netlink.NsFd(h.ns.Fd())
	veth.PeerMTU = uint32(h.spec.MTU)
	if err := h.wire.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %q: %w", h.FarDev, err)
	}
	if err := h.wire.nl.LinkSetMaster(veth, bridge); err != nil {
		return fmt.Errorf("join %q to %q: %w", h.FarDev, h.wire.Bridge, err)
	}
	return nil
}

func (h *Host) addAddresses() error {
	dev, err := h.nl.LinkByName(h.Dev)
	if err != nil {
		return fmt.Errorf("find %q: %w", h.Dev, err)
	}
	for addr, bits := range map[netip.Addr]int{h.Addr4: bits4, h.Addr6: bits6} {
		a := &netlink.Addr{IPNet: &net.IPNet{
			IP:   addr.AsSlice(),
			Mask: net.CIDRMask(bits, addr.BitLen()),
		}}
		if addr.Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := h.nl.AddrAdd(dev, a); err != nil {
			return fmt.Errorf("add address %v/%d: %w", addr, bits, err)
		}
	}
	return nil
}

// raise sets both ends up and waits for the kernel to say that they carry.
func (h *Host) raise() error {
	ends := []struct {
		nl   *netlink.Handle
		name string
	}{{h.nl, h.Dev}, {h.wire.nl, h.FarDev}}
	for _, e := range ends {
		dev, err := e.nl.LinkByName(e.name)
		if err != nil {
			return fmt.Errorf("find %q: %w", e.name, err)
		}
		if err := e.nl.LinkSetUp(dev); err != nil {
			return fmt.Errorf("set %q up: %w", e.name, err)
		}
	}
	tick := time.NewTicker(linkUpPoll)
	defer tick.Stop()
	for end := time.Now().Add(linkUpWait); time.Now().Before(end); <-tick.C {
		up := 0
		for _, e := range ends {
			dev, err := e.nl.LinkByName(e.name)
			if err != nil {
				return fmt.Errorf("find %q: %w", e.name, err)
			}
			if dev.Attrs().OperState == netlink.OperUp {
				up++
			}
		}
		if up == len(ends) {
			return nil
		}
	}
	return fmt.Errorf("set %q up: no carrier after %v", h.Dev, linkUpWait)
}

// close removes the link, with its other end, and the namespace.
func (h *Host) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var errs []error
	for _, f := range h.faults {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	if h.wire != nil && h.wire.nl != nil {
		if far, err := h.wire.nl.LinkByName(h.FarDev); err == nil {
			if err := h.wire.nl.LinkDel(far); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				errs = append(errs, fmt.Errorf("delete link %q: %w", h.FarDev, err))
			}
		}
	}
	return errors.Join(append(errs, h.Node.close())...)
}
