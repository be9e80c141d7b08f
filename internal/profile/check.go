package profile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"xlane/internal/model"
)

// vlansMax is how many VLANs an IP version may have on one device (zos.md §9.3).
const vlansMax = 32

// devicesMax is what one daemon manages.
const devicesMax = 64

// check is what can be said only when all statements are read.
func (p *parser) check() {
	p.statement = "INTERFACE"
	p.sameAddresses()
	for _, group := range p.byDevice() {
		p.checkVLANs(group)
		p.checkOneDevice(group)
	}
	p.cfg.Deleted = slices.DeleteFunc(p.cfg.Deleted, func(n string) bool { return p.device(n) >= 0 })
	slices.Sort(p.cfg.Deleted)
	p.cfg.Deleted = slices.Compact(p.cfg.Deleted)
}

// sameAddresses refuses one address on two interfaces of a namespace.
func (p *parser) sameAddresses() {
	type place struct {
		netns string
		addr  netip.Addr
	}
	owner := map[place]string{}
	for i := range p.cfg.Devices {
		d := &p.cfg.Devices[i]
		for _, a := range d.Addresses {
			at := place{d.Netns, a.Addr}
			if name, taken := owner[at]; taken && name != d.Name {
				p.errorf(d.token, "", fmt.Sprintf("%v is an address of %s too", a.Addr, name), "give each interface its own")
			}
			owner[at] = d.Name
		}
	}
}

// byDevice groups interfaces by the Linux device they are on, in order.
func (p *parser) byDevice() [][]*Device {
	var order [][]*Device
	place := map[[2]string]int{}
	for i := range p.cfg.Devices {
		d := &p.cfg.Devices[i]
		if d.PortName == "" {
			continue // said already
		}
		key := [2]string{d.Netns, d.PortName}
		at, known := place[key]
		if !known {
			at = len(order)
			place[key] = at
			order = append(order, nil)
			if len(order) == devicesMax+1 {
				p.errorf(d.token, "", fmt.Sprintf("more than %d devices", devicesMax), "share them out among daemons")
			}
		}
		order[at] = append(order[at], d)
	}
	return order
}

// checkVLANs applies the rules for several interfaces of one IP version on one
// device (zos.md §9.3): each is a VLAN of its own.
func (p *parser) checkVLANs(group []*Device) {
	for _, six := range []bool{false, true} {
		var same []*Device
		for _, d := range group {
			if d.IPv6 == six {
				same = append(same, d)
			}
		}
		if len(same) < 2 {
			continue
		}
		for i, d := range same[:min(len(same), vlansMax)] {
			p.checkVLAN(d, same[:i])
		}
		if len(same) > vlansMax {
			p.vlanError(same[vlansMax], "EXCEEDED MAXIMUM NUMBER OF VLANS", fmt.Sprintf("%d interfaces of one IP version on %s", len(same), same[0].PortName), fmt.Sprintf("use at most %d", vlansMax))
		}
	}
}

// vlanError is EZZ0618I with the reason that EZD0044I gives.
func (p *parser) vlanError(d *Device, reason, what, instead string) {
	p.errorf(d.token, "EZZ0618I, EZD0044I "+reason, d.Name+": "+what, instead)
}

func (p *parser) checkVLAN(d *Device, before []*Device) {
	const several = "several interfaces share %s, and this one has no %s"
	if d.VLANID == 0 {
		p.vlanError(d, "NO VLAN ID", fmt.Sprintf(several, d.PortName, "VLANID"), "give each of them a VLANID, or merge them")
	}
	if !d.VMAC || d.VMACRoute != "ALL" {
		p.vlanError(d, "NOT VMAC ROUTEALL", fmt.Sprintf(several, d.PortName, "VMAC ROUTEALL"), "add VMAC ROUTEALL")
	}
	if !d.IPv6 && !d.TempIP && (len(d.Addresses) == 0 || d.Addresses[0].Bits <= 0) {
		p.vlanError(d, "NO SUBNET MASK", fmt.Sprintf(several, d.PortName, "subnet mask"), "write IPADDR a/n")
	}
	for _, old := range before {
		if d.VLANID != 0 && d.VLANID == old.VLANID {
			p.vlanError(d, "VLAN ID NOT UNIQUE", fmt.Sprintf("VLANID %d is that of %s", d.VLANID, old.Name), "give each its own")
		}
		if d.MAC != "" && d.MAC == old.MAC {
			p.errorf(d.token, "EZZ0618I", fmt.Sprintf("%s: VMAC %s is that of %s", d.Name, d.MAC, old.Name), "give each its own, or leave the address out")
		}
		if x, y, overlap := overlapping(d, old); overlap {
			p.vlanError(d, "SUBNET NOT UNIQUE", fmt.Sprintf("subnet %v overlaps %v of %s", x, y, old.Name), "give each its own subnet")
		}
	}
}

func overlapping(a, b *Device) (x, y netip.Prefix, overlap bool) {
	for _, m := range a.Addresses {
		for _, n := range b.Addresses {
			if m.Bits <= 0 || n.Bits <= 0 {
				continue
			}
			x, y = netip.PrefixFrom(m.Addr, m.Bits).Masked(), netip.PrefixFrom(n.Addr, n.Bits).Masked()
			if x.Overlaps(y) {
				return x, y, true
			}
		}
	}
	return x, y, false
}

// checkOneDevice holds interfaces on one Linux device to one way of handling
// its queues, and the object that run would use to that object's own rules.
func (p *parser) checkOneDevice(group []*Device) {
	first := group[0]
	for _, d := range group[1:] {
		for _, c := range []struct {
			operand     string
			mine, first any
		}{
			{"INBPERF", showInbperf(d), showInbperf(first)},
			{"OLM", d.OLM, first.OLM}, {"CPUS", d.CPUs, first.CPUs}, {"ADAPTER", d.Adapter, first.Adapter},
			{"BULKTHRESHOLD", d.BulkThreshold, first.BulkThreshold}, {"FLOWSMAX", d.FlowsMax, first.FlowsMax},
		} {
			if c.mine != c.first {
				p.errorf(d.token, "", fmt.Sprintf("%s differs from that of %s, which is on the same device %s", c.operand, first.Name, d.PortName), "write the same on both: a Linux device has one set of queues")
			}
		}
	}
	in := first.asInterface()
	err := in.Check()
	for _, e := range unjoined(err) {
		what, instead, _ := strings.Cut(e.Error(), "; ")
		p.errorf(first.token, "", what, instead)
	}
}

// unjoined is the list of errors that errors.Join made one of.
func unjoined(err error) []error {
	var many interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return many.Unwrap()
	}
	return []error{err}
}

func (d *Device) asInterface() Interface {
	return Interface{Device: d.PortName, Netns: d.Netns, INBPERF: d.INBPERF, WorkloadQ: d.WorkloadQ, OLM: d.OLM,
		CPUs: d.CPUs, Adapter: d.Adapter, ThresholdBytes: d.BulkThreshold, FlowsMax: d.FlowsMax, Names: []string{d.Name}}
}

// Interfaces returns one object for each device that run is to manage: those
// of the INTERFACE statements that no STOP names. Statements on the same device
// (IPv4 and IPv6, or several VLANs) make one object. Under WORKLOADQ it has the
// addresses that VIPADISTRIBUTE distributes.
func (c *Config) Interfaces() []Interface {
	var out []Interface
	place := map[[2]string]int{}
	for i := range c.Devices {
		d := &c.Devices[i]
		if slices.Contains(c.Stopped, d.Name) {
			continue
		}
		key := [2]string{d.Netns, d.PortName}
		if at, known := place[key]; known {
			out[at].Names = append(out[at].Names, d.Name)
			continue
		}
		place[key] = len(out)
		in := d.asInterface()
		if in.OLM {
			in.INBPERF = model.Dynamic
		}
		if in.WorkloadQ {
			in.SysDist = c.distributedAddresses()
		}
		out = append(out, in)
	}
	return out
}

func (c *Config) distributedAddresses() []netip.Addr {
	var out []netip.Addr
	if c.VIPA == nil {
		return nil
	}
	for _, d := range c.VIPA.Distributions {
		if d.Delete {
			out = slices.DeleteFunc(out, func(a netip.Addr) bool { return a == d.Addr })
		} else if !slices.Contains(out, d.Addr) {
			out = append(out, d.Addr)
		}
	}
	return out
}
