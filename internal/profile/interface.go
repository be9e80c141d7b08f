// Package profile is what an operator asks for: PROFILE text becomes statements
// and a checked configuration, and its INTERFACE statements the same objects
// that flags make. It decides what may be written and what fits together, and
// says all that is wrong in one go. It knows nothing of the host that it will
// be asked of, reads no file itself, and leaves obeying to the stack.
package profile

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"xlane/internal/model"
)

// Interface is one device that xlane is to manage: what INTERFACE … DEFINE
// IPAQENET says, as far as Linux has a meaning for it.
type Interface struct {
	// Device is the kernel's name, and Netns the namespace it lives in: a name,
	// a path, or "" for the daemon's own.
	Device string
	Netns  string
	// INBPERF is how the inbound timers are set.
	INBPERF model.INBPERF
	// WorkloadQ sorts inbound traffic onto queues by workload. Only under DYNAMIC.
	WorkloadQ bool
	// OLM busy-polls the primary queue. It makes INBPERF DYNAMIC.
	OLM bool
	// CPUs is the list of CPUs that may deliver queues ("0-3,8"); "" = all.
	CPUs string
	// Adapter forces an adapter by name; "" chooses by device.
	Adapter string
	// SysDist are distributed addresses: their TCP goes to SYSDIST.
	SysDist []netip.Addr
	// ThresholdBytes of one-way payload make a connection bulk; 0 = the default.
	ThresholdBytes uint32
	// FlowsMax connections are tracked at one time, a power of two; 0 = the default.
	FlowsMax uint32
	// Names are the INTERFACE statements that the device comes from; none when
	// it comes from flags.
	Names []string
}

// deviceMax is IFNAMSIZ-1 (linux/if.h).
const deviceMax = 15

// The sizes that the sorter's table of connections can have (receive/sorter).
const (
	flowsLeast = 64
	flowsMost  = 1 << 22
)

// badDevice reports that the kernel would not take a device's name.
func badDevice(name string) bool {
	return name == "" || len(name) > deviceMax || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n")
}

// Check refuses what contradicts itself, and applies what follows from OLM.
// Everything wrong is in the one error.
func (in *Interface) Check() error {
	var errs []error
	if badDevice(in.Device) {
		errs = append(errs, fmt.Errorf("device %q is not a name; use 1 to %d characters without blanks or slashes", in.Device, deviceMax))
	}
	if in.OLM {
		in.INBPERF = model.Dynamic // zos.md §1.2: OLM overrides INBPERF
	}
	if in.WorkloadQ && in.INBPERF != model.Dynamic && in.INBPERF != model.DIM {
		errs = append(errs, fmt.Errorf("WORKLOADQ needs INBPERF DYNAMIC, not %v; leave one of them out", in.INBPERF))
	}
	if in.OLM && !in.WorkloadQ {
		errs = append(errs, errors.New("OLM without WORKLOADQ would busy-poll bulk traffic too; add WORKLOADQ or leave OLM out"))
	}
	if len(in.SysDist) > 0 && !in.WorkloadQ {
		errs = append(errs, errors.New("distributed addresses need WORKLOADQ; add it or leave them out"))
	}
	if n := in.FlowsMax; n != 0 && (n < flowsLeast || n > flowsMost || n&(n-1) != 0) {
		errs = append(errs, fmt.Errorf("a table of %d connections cannot be made; use a power of two from %d to %d", n, flowsLeast, flowsMost))
	}
	return errors.Join(errs...)
}
