package lab

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-14 -target bpfel -type fault_reason -cflags "-O2 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu" fault fault.bpf.c

const (
	// laneHoldDefault holds a reordered frame back behind about 80 full frames
	// at 1 Gb/s, well over the three after which TCP takes it for lost.
	laneHoldDefault = time.Millisecond
	// laneTimeMax bounds how long the lane keeps a frame.
	laneTimeMax = 10 * time.Second
)

// Faults is what goes wrong in one direction of a link. The zero value is a
// perfect link. Frames are numbered per direction from the moment the faults
// were set, and what happens to frame n depends on Seed and n alone.
type Faults struct {
	// Loss is the share of frames that is dropped, 0 to 1.
	Loss float64
	// Delay holds every frame; Jitter spreads it evenly over ±Jitter, which is
	// at most Delay. Neither changes the order of frames.
	Delay, Jitter time.Duration
	// Reorder is the share of frames, 0 to 1, that is held back for
	// ReorderHold longer and so falls behind those that were sent after it.
	Reorder float64
	// ReorderHold is that time; zero means 1 ms.
	ReorderHold time.Duration
	// Seed chooses which frames are hit.
	Seed uint64
}

func (f Faults) check() error {
	for name, p := range map[string]float64{"loss": f.Loss, "reorder": f.Reorder} {
		if !(p >= 0 && p <= 1) { // also refuses NaN
			return fmt.Errorf("%s of %v is not a share; use 0 to 1", name, p)
		}
	}
	if f.Delay < 0 || f.Jitter < 0 || f.ReorderHold < 0 {
		return errors.New("a negative delay, jitter or hold is not possible")
	}
	if f.Jitter > f.Delay {
		return fmt.Errorf("jitter %v exceeds the delay %v", f.Jitter, f.Delay)
	}
	if total := f.Delay + f.Jitter + f.ReorderHold; total > laneTimeMax {
		return fmt.Errorf("a frame would be held for %v; the limit is %v", total, laneTimeMax)
	}
	return nil
}

// threshold turns a share into what 32 random bits are compared with.
func threshold(share float64) uint64 {
	return uint64(math.Round(share * (1 << 32)))
}

// draw returns the random bits of frame number; fault.bpf.c has the same. The
// upper 32 decide loss, the lower 32 reordering.
func draw(seed, number uint64) uint64 {
	z := seed + (number+1)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// Loses reports whether the n-th frame, counted from 0, is dropped.
func (f Faults) Loses(n uint64) bool { return draw(f.Seed, n)>>32 < threshold(f.Loss) }

// FaultStats counts frames of one direction since faults were first set there.
type FaultStats struct {
	// Passed frames were left alone; Exempt ones are ARP, neighbour discovery
	// and MLD.
	Passed, Exempt uint64
	// Lost frames were dropped on purpose.
	Lost uint64
	// Diverted frames took the slow lane, and Returned ones have left it again.
	Diverted, Returned uint64
	// Reordered is how many of the diverted were held back behind others.
	Reordered uint64
	// Overflowed frames were dropped because the lane was full.
	Overflowed uint64
}

// faultPath is the program of one direction and its lane.
type faultPath struct {
	objects faultObjects
	attach  link.Link
	lane    *lane // nil until something is to be delayed
}

// SetFaults replaces the faults of one direction of the host's link, also
// while traffic runs. Frames that are in the lane at that moment come back as
// they were going to. A link on which faults were never set has no program.
func (h *Host) SetFaults(d Direction, f Faults) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("set faults: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("set faults of %q %v: %w", h.Name, d, errClosed)
	}
	if h.faults[d] == nil {
		if f == (Faults{Seed: f.Seed}) {
			return nil
		}
		path, err := h.loadFaults(d)
		if err != nil {
			return fmt.Errorf("set faults of %q %v: %w", h.Name, d, err)
		}
		h.faults[d] = path
	}
	if err := h.applyFaults(d, f); err != nil {
		return fmt.Errorf("set faults of %q %v: %w", h.Name, d, err)
	}
	return nil
}

// loadFaults loads and attaches the program of one direction, in front of any
// other, so that nobody behind it sees a frame that is lost or comes later.
func (h *Host) loadFaults(d Direction) (*faultPath, error) {
	far, err := h.wire.nl.LinkByName(h.FarDev)
	if err != nil {
		return nil, fmt.Errorf("find %q: %w", h.FarDev, err)
	}
	spec, err := loadFault()
	if err != nil {
		return nil, err
	}
	// A frame from the host comes back as if it had just arrived at the
	// adapter; one to the host leaves it again, past all that is attached.
	var flags uint32
	attach := ebpf.AttachTCXEgress
	if d == Out {
		flags, attach = unix.BPF_F_INGRESS, ebpf.AttachTCXIngress
	}
	err = errors.Join(spec.Variables["return_ifindex"].Set(uint32(far.Attrs().Index)),
		spec.Variables["return_flags"].Set(flags))
	if err != nil {
		return nil, err
	}
	spec.Programs["fault_path"].AttachType = attach
	f := &faultPath{}
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		return nil, err
	}
	err = h.wire.Do(func() error {
		f.attach, err = link.AttachTCX(link.TCXOptions{
			Interface: far.Attrs().Index,
			Program:   f.objects.FaultPath,
			Attach:    attach,
			Anchor:    link.Head(),
		})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach to %q: %w", h.FarDev, err), f.objects.Close())
	}
	return f, nil
}

// applyFaults tells the lane first, so that it is ready for what the program
// then sends.
func (h *Host) applyFaults(d Direction, f Faults) error {
	path := h.faults[d]
	if f.ReorderHold == 0 {
		f.ReorderHold = laneHoldDefault
	}
	all := f.Delay > 0 || f.Jitter > 0
	settings := faultFaultSettings{Seed: f.Seed, Loss: threshold(f.Loss), Reorder: threshold(f.Reorder)}
	if all {
		settings.DivertAll = 1
	}
	if path.lane == nil && (all || f.Reorder > 0) {
		l, err := openLane(h.wire, d.String()+"-"+h.Name, h.spec.MTU, path.objects.LaneReturn)
		if err != nil {
			return err
		}
		path.lane = l
	}
	if path.lane != nil {
		path.lane.set(laneSettings{
			delay: f.Delay, jitter: f.Jitter, hold: f.ReorderHold,
			seed: f.Seed, reorder: threshold(f.Reorder), all: all,
		})
		settings.LaneIfindex = uint32(path.lane.ifindex)
	}
	zero := uint32(0)
	if err := path.objects.FrameNumber.Put(zero, uint64(0)); err != nil {
		return fmt.Errorf("restart numbering: %w", err)
	}
	if err := path.objects.Settings.Put(zero, settings); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// FaultStats returns the counters of one direction; all are zero where faults
// were never set.
func (h *Host) FaultStats(d Direction) (FaultStats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return FaultStats{}, fmt.Errorf("read fault counters of %q %v: %w", h.Name, d, errClosed)
	}
	path := h.faults[d]
	if path == nil {
		return FaultStats{}, nil
	}
	var sums [faultFaultReasonFAULT_REASON_MAX]uint64
	for reason := range sums {
		var perCPU []uint64
		if err := path.objects.Reasons.Lookup(uint32(reason), &perCPU); err != nil {
			return FaultStats{}, fmt.Errorf("read fault counters of %q %v: %w", h.Name, d, err)
		}
		for _, n := range perCPU {
			sums[reason] += n
		}
	}
	stats := FaultStats{
		Passed:   sums[faultFaultReasonFAULT_PASSED],
		Exempt:   sums[faultFaultReasonFAULT_EXEMPT],
		Lost:     sums[faultFaultReasonFAULT_LOST],
		Diverted: sums[faultFaultReasonFAULT_DIVERTED],
		Returned: sums[faultFaultReasonFAULT_RETURNED],
	}
	if path.lane != nil {
		full, err := path.lane.refused()
		if err != nil {
			return FaultStats{}, fmt.Errorf("read lane counters of %q %v: %w", h.Name, d, err)
		}
		stats.Reordered = path.lane.reordered.Load()
		stats.Overflowed = full
	}
	return stats, nil
}

func (f *faultPath) close() error {
	err := f.attach.Close()
	if f.lane != nil {
		err = errors.Join(err, f.lane.close())
	}
	return errors.Join(err, f.objects.Close())
}
