// Package cpumap is the adapter for any device that XDP can be attached to:
// the sorter sits where the device hands its frames to the host, and sends
// those of bulk connections through a cpumap to another CPU. All else stays
// where the device delivers it, so there are two places, and none of them can
// be held: a cpumap has no timer. This package attaches the programs, in the
// driver where it can be done without harm and before the stack otherwise, and
// notices what resets that. It decides nothing about traffic.
package cpumap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	xdplink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/model"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
)

const (
	// ringEntries is how many frames wait for BULKDATA's CPU before more are
	// dropped: what the kernel's own sample of a cpumap uses
	// (samples/bpf/xdp_redirect_cpu, Linux 5.x), 2.5 ms of full frames at 10 Gb/s.
	ringEntries = 2048

	// cpuMax is the highest CPU that an index of sorter.Queues, at most 254,
	// can name from indexCPU0 on.
	cpuMax = 253

	// indexPrimary and indexCPU0 are the adapter's queues for the sorter: this
	// CPU's stack, and CPU 0 of the cpumap. The programs see each one higher
	// (HWQ_CPU0 in sort_xdp.bpf.c).
	indexPrimary, indexCPU0 = 0, 1

	// mapName is the program's name of the cpumap, and that of its pin.
	mapName  = "frames_by_cpu"
	progName = "sort_xdp"
)

// Names of the attached programs, and of their pins. The sorter's tells how it
// is attached, so that whoever adopts it knows.
const (
	linkNative  = "sort"
	linkGeneric = "sort_generic"
	linkProve   = "prove"
	linkTurn    = "turn"
)

// Adapter drives one device.
type Adapter struct {
	spec receive.Spec
	near *setting.Host

	// ends guards the next four for Watch, which runs on another goroutine
	// than all else; moved tells it that the far end is another now.
	ends  sync.Mutex
	moved chan struct{}
	// far is the other end of a veth, nil when there is none or it is unseen.
	far     *setting.Host
	farNS   *netns.Handle
	farLink link.Link
	device  link.Link

	cpu     int // BULKDATA's
	sorter  *sorter.Sorter
	frames  *ebpf.Map
	adopted bool
	// generic says why the sorter is not in the driver; "" when it is.
	generic string
	base    sorter.Counters
	based   bool
}

// New looks at the device and the CPUs. It changes nothing.
func New(spec receive.Spec) (*Adapter, error) {
	a := &Adapter{spec: spec, moved: make(chan struct{}, 1)}
	if !spec.Sort {
		return nil, fmt.Errorf("device %q: the cpumap adapter sorts and does nothing else; ask for WORKLOADQ", spec.Device)
	}
	near, err := setting.Open(spec.NS)
	if err != nil {
		return nil, err
	}
	a.near = near
	if err = a.find(); err == nil {
		err = a.chooseCPU()
	}
	if err == nil && a.device.XDP != 0 && !pinned(spec.PinDir) {
		err = taken(a.device)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Name returns "cpumap".
func (a *Adapter) Name() string { return "cpumap" }

// pinned reports whether an earlier process left programs here.
func pinned(dir string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Stat(dir)
	return err == nil
}

// ErrTaken says that another program has the device's one place for XDP.
var ErrTaken = errors.New("has an XDP program that is not ours")

func taken(dev link.Link) error {
	return fmt.Errorf("device %q %w (number %d); take it off first, a device has room for one", dev.Name, ErrTaken, dev.XDP)
}

// find looks up the device and, of a veth, the other end. It is done anew at
// each Apply, because either may have been moved or made again.
func (a *Adapter) find() error {
	dev, err := a.near.Links().ByName(a.spec.Device)
	if errors.Is(err, syscall.ENODEV) {
		return goneError{fmt.Sprintf("there is no device %q in namespace %v", a.spec.Device, a.spec.NS)}
	}
	if err != nil {
		return err
	}
	switch {
	case dev.Loopback():
		return fmt.Errorf("device %q is the loopback: nothing comes in by it", a.spec.Device)
	case dev.Kind == "bridge":
		return fmt.Errorf("device %q is a bridge: traffic is sorted where it comes in; name its ports instead", a.spec.Device)
	case !dev.Up:
		return fmt.Errorf("device %q: %w; set it up first (ip link set %s up)", a.spec.Device, receive.ErrDown, a.spec.Device)
	}
	if dev.Kind != "veth" {
		a.ends.Lock()
		a.device = dev
		a.ends.Unlock()
		return nil
	}
	return a.findFar(dev)
}

// goneError is receive.ErrGone in words of its own.
type goneError struct{ text string }

func (e goneError) Error() string { return e.text }
func (e goneError) Unwrap() error { return receive.ErrGone }

// findFar looks for the other end of a veth. One that cannot be seen is no
// error: the sorter then stays out of the driver.
func (a *Adapter) findFar(dev link.Link) error {
	ns, far, err := a.near.Links().FarEnd(dev)
	unseen := errors.Is(err, link.ErrFarEndUnseen) || errors.Is(err, syscall.ENODEV)
	if err != nil && !unseen {
		return err
	}
	a.ends.Lock()
	defer a.ends.Unlock()
	a.device = dev
	if unseen {
		a.closeFar()
		return nil
	}
	if a.farNS != nil && a.farNS.Same(ns) {
		ns.Close()
		a.farLink = far
		return nil
	}
	host, err := setting.Open(ns)
	if err != nil {
		ns.Close()
		return err
	}
	a.closeFar()
	a.farNS, a.far, a.farLink = ns, host, far
	select {
	case a.moved <- struct{}{}:
	default: // it is told already
	}
	return nil
}

func (a *Adapter) closeFar() {
	if a.far != nil {
		a.far.Close()
		a.far = nil
	}
	if a.farNS != nil {
		a.farNS.Close()
		a.farNS = nil
	}
}

// chooseCPU gives BULKDATA the second of the CPUs it may have.
func (a *Adapter) chooseCPU() error {
	cpus := a.spec.CPUs
	if cpus.Empty() {
		var err error
		if cpus, err = cpu.Online(); err != nil {
			return err
		}
	}
	members := cpus.Members()
	if len(members) < 2 {
		return fmt.Errorf("device %q: the cpumap adapter sends bulk to a second CPU, and may use CPU %v alone", a.spec.Device, cpus)
	}
	a.cpu = members[1]
	if a.cpu > cpuMax {
		return fmt.Errorf("device %q: BULKDATA would be on CPU %d; choose CPUs up to %d", a.spec.Device, a.cpu, cpuMax)
	}
	return nil
}

// Apply makes the programs be attached and their conditions be met.
func (a *Adapter) Apply(ctx context.Context) error {
	if err := a.find(); err != nil {
		return err
	}
	if a.sorter == nil {
		if err := a.loadOrAdopt(); err != nil {
			return err
		}
	}
	if err := a.meetConditions(); err != nil {
		return err
	}
	if err := a.placeBulk(ctx); err != nil {
		return err
	}
	if err := receive.RefreshLocal(a.near.Links(), a.sorter); err != nil {
		return err
	}
	if err := a.attach(); err != nil {
		return err
	}
	if a.spec.PinDir != "" {
		if err := a.pin(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (a *Adapter) loadOrAdopt() error {
	if pinned(a.spec.PinDir) {
		err := a.adopt()
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w; run 'xlane reset' to remove what it left", err)
		}
		// a half-made set of pins is of no use to anybody
		if err := sorter.Unpin(a.spec.PinDir); err != nil {
			return err
		}
	}
	spec, err := loadSortXDP()
	if err != nil {
		return err
	}
	s, err := sorter.New(a.spec.Sorter)
	if err != nil {
		return err
	}
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		s.Close()
		return fmt.Errorf("count CPUs: %w", err)
	}
	ms := spec.Maps[mapName]
	ms.MaxEntries = uint32(possible)
	frames, err := ebpf.NewMap(ms)
	if err != nil {
		s.Close()
		return fmt.Errorf("make map %q: %w", mapName, err)
	}
	a.sorter, a.frames = s, frames
	return nil
}

func (a *Adapter) adopt() error {
	s, err := sorter.Adopt(a.spec.PinDir)
	if err != nil {
		return err
	}
	frames, err := ebpf.LoadPinnedMap(filepath.Join(a.spec.PinDir, mapName), nil)
	if err == nil && frames.Type() != ebpf.CPUMap {
		frames.Close()
		err = sorter.ErrLayout
	}
	if err != nil {
		s.Close()
		return fmt.Errorf("adopt map %q: %w", mapName, err)
	}
	a.sorter, a.frames, a.adopted = s, frames, true
	return s.Reconfigure(a.spec.Sorter)
}

// placeBulk makes BULKDATA's CPU take frames, and tells the sorter. Where a
// sorter was adopted that used another CPU, the connections come home first,
// so that none has frames on both.
func (a *Adapter) placeBulk(ctx context.Context) error {
	others, has, err := a.entries()
	if err != nil {
		return err
	}
	if len(others) > 0 {
		if err := receive.DrainSorter(ctx, a.sorter); err != nil {
			return fmt.Errorf("bring connections home from CPU %v: %w", others, err)
		}
		if err := a.sorter.Reconfigure(a.spec.Sorter); err != nil {
			return err
		}
	}
	if !has {
		// struct bpf_cpumap_val of linux/bpf.h: the ring's size, and no
		// program of its own on that CPU.
		value := [2]uint32{ringEntries, 0}
		if err := a.frames.Put(uint32(a.cpu), &value); err != nil {
			return fmt.Errorf("give BULKDATA CPU %d: %w", a.cpu, err)
		}
	}
	q := sorter.Queues{Index: map[model.QueueID]int{
		model.Primary: indexPrimary, model.BulkData: indexCPU0 + a.cpu, model.SysDist: -1, model.EE: -1,
	}}
	if err := a.sorter.Start(q); err != nil {
		return err
	}
	for _, c := range others {
		if err := a.frames.Delete(uint32(c)); err != nil {
			return fmt.Errorf("take BULKDATA from CPU %d: %w", c, err)
		}
	}
	return nil
}

// entries reads which CPUs take frames: others than BULKDATA's, and whether it
// is one of them.
func (a *Adapter) entries() (others []int, has bool, err error) {
	for c := range int(a.frames.MaxEntries()) {
		var value [2]uint32
		err := a.frames.Lookup(uint32(c), &value)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
		case err != nil:
			return nil, false, fmt.Errorf("read map %q: %w", mapName, err)
		case c == a.cpu:
			has = true
		default:
			others = append(others, c)
		}
	}
	return others, has, nil
}

// attach attaches what is not attached: the two observers first, because the
// sorter relies on what they note.
func (a *Adapter) attach() error {
	return a.spec.NS.Do(func() error {
		for _, p := range []struct {
			name string
			prog *ebpf.Program
			at   ebpf.AttachType
		}{
			{linkProve, a.sorter.Prove, ebpf.AttachTCXIngress},
			{linkTurn, a.sorter.Turn, ebpf.AttachTCXEgress},
		} {
			if a.sorter.AttachedTo(p.name, a.device.Index) {
				continue
			}
			if err := a.sorter.Attach(p.name, p.prog, p.at, a.device.Index); err != nil {
				return fmt.Errorf("device %q: %w", a.device.Name, err)
			}
		}
		return a.attachSort()
	})
}

// attachSort attaches the sorter, in the driver where that is possible.
func (a *Adapter) attachSort() error {
	if a.sorter.AttachedTo(linkNative, a.device.Index) {
		a.generic = ""
		return nil
	}
	if a.sorter.AttachedTo(linkGeneric, a.device.Index) {
		if a.generic == "" {
			a.generic = "it was found attached there"
		}
		return nil
	}
	if a.generic == "" {
		err := a.attachXDP(linkNative, xdplink.XDPDriverMode)
		if err == nil || errors.Is(err, ErrTaken) {
			return err
		}
		a.generic = fmt.Sprintf("the driver refuses it (%v)", errors.Unwrap(err))
	}
	return a.attachXDP(linkGeneric, xdplink.XDPGenericMode)
}

// program loads the sorter's XDP form. Before the stack it must not take frames
// in pieces: the kernel then copies a frame whose headroom is short, the copy
// has no mac_len (skb_pp_cow_data in net/core/skbuff.c), and a cpumap, which
// goes by that, delivers it from the wrong byte on (seen in Linux 6.18: each
// counts as IpInHdrErrors). Of any other program the frame is made linear
// where it is.
func (a *Adapter) program(mode xdplink.XDPAttachFlags) (*ebpf.Program, error) {
	spec, err := loadSortXDP()
	if err != nil {
		return nil, err
	}
	spec.Maps[mapName].MaxEntries = a.frames.MaxEntries()
	if mode == xdplink.XDPGenericMode {
		spec.Programs[progName].Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	}
	return a.sorter.LoadProgram(spec, progName, map[string]*ebpf.Map{mapName: a.frames})
}

func (a *Adapter) attachXDP(name string, mode xdplink.XDPAttachFlags) error {
	prog, err := a.program(mode)
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := xdplink.AttachXDP(xdplink.XDPOptions{Program: prog, Interface: a.device.Index, Flags: mode})
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EEXIST) {
		now, again := a.near.Links().ByIndex(a.device.Index)
		if again != nil {
			return again
		}
		return taken(now)
	}
	if err != nil {
		return fmt.Errorf("attach %q to device %q: %w", name, a.device.Name, err)
	}
	a.sorter.Keep(name, l)
	return nil
}

// pin keeps the cpumap and what the sorter has alive without this process. A
// directory without the cpumap is not adopted, so that goes first.
func (a *Adapter) pin() error {
	if err := os.MkdirAll(a.spec.PinDir, 0o700); err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	if !a.frames.IsPinned() {
		if err := a.frames.Pin(filepath.Join(a.spec.PinDir, mapName)); err != nil {
			return fmt.Errorf("pin map %q: %w", mapName, err)
		}
	}
	return a.sorter.Pin(a.spec.PinDir)
}

// Adopted says that the sorter was found at work.
func (a *Adapter) Adopted() bool { return a.adopted }

// Sorter returns the sorter; nil before the first Apply.
func (a *Adapter) Sorter() *sorter.Sorter { return a.sorter }

// SetHold returns errors.ErrUnsupported: a cpumap delivers at once.
func (a *Adapter) SetHold(id model.QueueID, _ model.Hold) error {
	return fmt.Errorf("hold %v of %q: %w: a cpumap has no timer", id, a.device.Name, errors.ErrUnsupported)
}

// Drain sends every connection home to PRIMARY.
func (a *Adapter) Drain(ctx context.Context) error { return receive.DrainSorter(ctx, a.sorter) }

// Detach takes the programs off: the sorter first, then its observers.
func (a *Adapter) Detach() error {
	var errs []error
	if a.sorter != nil {
		for _, name := range []string{linkNative, linkGeneric, linkTurn, linkProve} {
			errs = append(errs, a.sorter.Detach(name))
		}
	}
	if a.spec.PinDir != "" {
		errs = append(errs, sorter.Unpin(a.spec.PinDir))
	}
	return errors.Join(errs...)
}

// Close lets go. Pinned programs go on sorting.
func (a *Adapter) Close() {
	if a.sorter != nil {
		a.sorter.Close()
		a.sorter = nil
	}
	if a.frames != nil {
		a.frames.Close()
		a.frames = nil
	}
	a.ends.Lock()
	a.closeFar()
	a.ends.Unlock()
	if a.near != nil {
		a.near.Close()
		a.near = nil
	}
}

var _ receive.Adapter = (*Adapter)(nil)
