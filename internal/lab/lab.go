// Package lab builds hosts and wires in network namespaces: every host is a
// namespace, and all of them meet in one more namespace, the wire, where a
// bridge is the switch and the far end of each host's link is its adapter. It
// decides what a link is like (queues, MTU, rate, loss, delay, reordering),
// and undoes all of it, also after a crash. What runs on the hosts, what is
// attached to the adapters and what is measured it leaves to its callers.
//
// Frames. A link made here never carries a frame larger than its MTU: both
// ends have every transmit segmentation offload off, so the sender's software
// GSO cuts before the wire, and the adapter hands on what it received. Receive
// GRO is left as the kernel makes it (off on a veth). Checksums of a sender's
// own sockets cross a link unfinished (CHECKSUM_PARTIAL), as with any veth: a
// socket accepts them, a capture calls them wrong. Frames that went over the
// slow lane have theirs finished. A link with PlainVeth is a veth as ip(8)
// makes it: up to 64 KB frames, one queue in use, no NAPI.
//
// Rates are HTB's: they count whole Ethernet frames without preamble, check
// sequence and gap, which is 24 bytes less a frame than a real wire carries.
//
// Faults are decided by a BPF program per link and direction. Loss and the
// choice of reordered frames depend on a seed and on the frame's number in
// that direction alone, so a single-flow run can be repeated exactly; with
// several senders at once it is the numbers that repeat, not the flows. ARP,
// neighbour discovery and MLD are exempt and not numbered. BPF cannot keep a
// frame, so those to be delayed go over a slow lane, a TAP device whose reader
// writes them back when they are due. Precision: a frame is never early; it is
// late by the reader's wake-up, typically 50-150 µs, and by more on a machine
// whose CPUs are all busy. A lane costs about 10 µs of CPU a frame, delivery
// included, on the one CPU where its thread stays: 1 Gb/s of full frames takes
// that CPU nearly whole. It holds laneFramesMax frames, and drops and counts
// what is beyond that. A frame that took the lane has lost its flow hash and
// recorded queue: without a sorter it may reach another receive queue than its
// flow's other frames. A capture at the adapter sees an outbound one twice: as
// it left the host, and as it came back.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
)

const (
	// namePrefix begins the name of every lab and so of every namespace.
	namePrefix = "xl-"

	// hostsMax bounds a lab; the last byte of addresses and MACs is a host's
	// number, and 200 leaves addresses for what callers add.
	hostsMax = 200

	bridgeName = "switch"
	hostDev    = "eth0"
)

// namePattern keeps names usable as file names, and short enough that the
// namespace's name stays readable.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

// labsMade numbers the labs of this process.
var labsMade atomic.Uint64

// Config says what lab to make. The zero value makes one with a name that is
// unique on this machine.
type Config struct {
	// Name is the lab's name, without or with the prefix "xl-": lower-case
	// letters, digits and dashes. Empty makes a unique one.
	Name string
	// Kept marks a lab whose creator does nothing but keep it until it gets
	// SIGTERM: Stop then may end that process.
	Kept bool
	// LaneCPU is the CPU whose time the slow lanes take; nil means the highest
	// that this process may use. Every lane has a thread that stays there.
	LaneCPU *int
	// WireCPU is the one CPU on which the switch works: every frame that a host
	// sends is handed to it (RPS). Without it a frame is switched on the CPU
	// that sent it, and a sender that runs on two is reordered by the wire; and
	// a host's CPU then also pays for the switch and for the other host's
	// receiving. nil means that.
	WireCPU *int
}

// Wire is the namespace between the hosts.
type Wire struct {
	Node
	// Bridge is the switch that joins the far ends of all links.
	Bridge string

	laneCPU *int // Config.LaneCPU
	cpu     *int // Config.WireCPU
}

// Lab is a set of hosts around a wire. Its methods may be called from several
// goroutines. It lives until Close, or until its creator dies and Down is run.
type Lab struct {
	// Name is unique on this machine and begins every namespace's name.
	Name string
	// Wire is the namespace that holds the switch and the adapters.
	Wire *Wire

	mu     sync.Mutex
	hosts  []*Host
	note   *record
	closed bool
}

// New makes a lab with a wire and no hosts. The caller must Close it. Root is
// needed. ctx bounds the making only.
func New(ctx context.Context, cfg Config) (*Lab, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("make lab: %w", err)
	}
	note, err := claimName(cfg)
	if err != nil {
		return nil, fmt.Errorf("make lab: %w", err)
	}
	l := &Lab{Name: note.Name, note: note}
	if err := l.makeWire(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("make lab %q: %w", l.Name, err), l.Close())
	}
	return l, nil
}

// claimName records the lab before anything of it exists, so that a crash at
// any later moment leaves a trace of what to remove.
func claimName(cfg Config) (*record, error) {
	start, err := startTicks(os.Getpid())
	if err != nil {
		return nil, err
	}
	note := &record{PID: os.Getpid(), StartTicks: start, Kept: cfg.Kept}
	if cfg.Name != "" {
		if note.Name, err = fullName(cfg.Name); err != nil {
			return nil, err
		}
		if err := note.create(); errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("the name %q is taken: %w", note.Name, os.ErrExist)
		} else if err != nil {
			return nil, err
		}
		return note, nil
	}
	for {
		// A taken name is left over from an earlier process with this id.
		note.Name = fmt.Sprintf("%s%d-%d", namePrefix, note.PID, labsMade.Add(1))
		err := note.create()
		if !errors.Is(err, os.ErrExist) {
			return note, err
		}
	}
}

func (l *Lab) makeWire(cfg Config) error {
	ns, err := l.addNamespace("wire")
	if err != nil {
		return err
	}
	l.Wire = &Wire{Node: ns, Bridge: bridgeName, laneCPU: cfg.LaneCPU, cpu: cfg.WireCPU}
	if err := l.Wire.open(); err != nil {
		return err
	}
	// The switch and the adapters speak for nobody: no addresses, no router
	// solicitations, and no firewall of the bridge's namespace in between.
	err = l.Wire.Do(func() error {
		return errors.Join(
			setSysctl("net/ipv6/conf/all/disable_ipv6", "1"),
			setSysctl("net/ipv6/conf/default/disable_ipv6", "1"),
			setSysctlIfPresent("net/bridge/bridge-nf-call-iptables", "0"),
			setSysctlIfPresent("net/bridge/bridge-nf-call-ip6tables", "0"),
			setSysctlIfPresent("net/bridge/bridge-nf-call-arptables", "0"))
	})
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	attrs.HardwareAddr = macOf(0, 0)
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := l.Wire.nl.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge %q: %w", bridgeName, err)
	}
	if err := l.Wire.nl.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set bridge %q up: %w", bridgeName, err)
	}
	return nil
}

// addNamespace records and makes the namespace of one host or of the wire.
func (l *Lab) addNamespace(short string) (Node, error) {
	name := l.Name + "-" + short
	before := l.note.NetNS
	l.note.NetNS = append(slices.Clone(before), name)
	if err := l.note.update(); err != nil {
		return Node{}, err
	}
	n, err := newNode(name)
	if errors.Is(err, os.ErrExist) {
		// It is somebody else's: neither Close nor Down may remove it.
		l.note.NetNS = before
		return Node{}, errors.Join(err, l.note.update())
	}
	return n, err
}

// AddHost adds a host with one link to the wire and waits until that link
// carries frames. name is at most 11 characters: lower-case letters, digits
// and dashes, and not "wire".
func (l *Lab) AddHost(name string, spec LinkSpec) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("add host %q: %w", name, err)
	}
	if err := l.checkHost(name); err != nil {
		return nil, fmt.Errorf("add host %q: %w", name, err)
	}
	number := byte(len(l.hosts) + 1)
	h := &Host{
		Name:   name,
		Dev:    hostDev,
		FarDev: "to-" + name,
		Addr4:  netip.AddrFrom4([4]byte{10, 77, 0, number}),
		Addr6:  addr6Of(number),
		MAC:    macOf(number, 1),
		spec:   spec,
		number: number,
		wire:   l.Wire,
	}
	if h.Node, err = l.addNamespace(name); err == nil {
		err = h.build()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add host %q: %w", name, err), h.close())
	}
	l.hosts = append(l.hosts, h)
	return h, nil
}

// hostNameMax leaves room for "to-", "in-" and "out-" in a device name of at
// most 15 bytes (IFNAMSIZ - 1).
const hostNameMax = 11

func (l *Lab) checkHost(name string) error {
	switch {
	case l.closed:
		return errClosed
	case !namePattern.MatchString(name) || len(name) > hostNameMax || name == "wire":
		return fmt.Errorf("not a host name; use up to %d lower-case letters, digits and dashes, and not \"wire\"", hostNameMax)
	case slices.ContainsFunc(l.hosts, func(h *Host) bool { return h.Name == name }):
		return errors.New("the lab has a host of that name")
	case len(l.hosts) == hostsMax:
		return fmt.Errorf("the lab is full (%d hosts)", hostsMax)
	}
	return nil
}

// Hosts lists the hosts in the order in which they were added.
func (l *Lab) Hosts() []*Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hosts)
}

// Close kills every process that still runs in one of the lab's namespaces,
// and removes links, programs and namespaces. Calling it again does nothing.
// It goes on after an error, and returns all errors.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, h.stop(), h.close())
	}
	if l.Wire != nil {
		errs = append(errs, l.Wire.stop(), l.Wire.close())
	}
	errs = append(errs, l.note.remove())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close lab %q: %w", l.Name, err)
	}
	return nil
}

// fullName checks a lab's name and puts the prefix before it.
func fullName(name string) (string, error) {
	if !namePattern.MatchString(name) {
		return "", fmt.Errorf("lab name %q: use up to 31 lower-case letters, digits and dashes", name)
	}
	if len(name) > len(namePrefix) && name[:len(namePrefix)] == namePrefix {
		return name, nil
	}
	return namePrefix + name, nil
}
