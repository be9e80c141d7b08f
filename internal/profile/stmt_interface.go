package profile

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"xlane/internal/model"
)

// Ranges of INTERFACE (zos.md §1.2; the MTU and VLAN ranges are unconfirmed
// there and are kept as they stand).
const (
	nameMax    = 16
	mtu4Min    = 576
	mtu6Min    = 1280
	mtu4Max    = 8992
	mtu6Max    = 9000
	vlanMax    = 4094
	classMax   = 255
	detectMax  = 255
	namespaces = 255 // NAME_MAX (linux/limits.h); a path to one is as short
	cpuListMax = 64
	adapterMax = 15

	// addressesMax of one interface, chosen: addresses are compared with each other.
	addressesMax = 256
)

// parseInterface reads INTERFACE name DEFINE …, DELETE, or a change of IPv6
// addresses.
func parseInterface(p *parser) {
	p.words = interfaceVerbs
	name, ok := p.name("the interface's name", nameMax)
	p.words = nil
	if !ok {
		p.skip()
		return
	}
	at := p.last()
	const want = "DEFINE IPAQENET, DEFINE IPAQENET6 or DELETE"
	switch p.optional(interfaceVerbs...) {
	case "DEFINE":
		p.define(at, name)
	case "DELETE":
		p.deleteDevice(name)
	case "ADDADDR":
		p.changeAddresses(name, addAddress)
	case "DELADDR":
		p.changeAddresses(name, deleteAddress)
	case "DEPRADDR":
		p.changeAddresses(name, deprecateAddress)
	default:
		t := p.peek()
		p.known.add(name) // so that this is the only error about it
		if p.closed(t) {
			p.errorf(at, "", "it does not say what to do with "+name, "write "+want+" after the name")
			return
		}
		instead := "use " + want
		if near := p.guess(t.word, fullWords(interfaceVerbs)); near != "" {
			instead = "did you mean " + near + "?"
		}
		p.errorf(t, "", fmt.Sprintf("%q is not known after the interface's name", t.raw), instead)
		p.skip()
	}
}

var interfaceVerbs = []keyword{"DEFINE", "DELETE", "ADDADDR", "DELADDR", "DEPRADDR"}

// skip leaves out the rest of a statement or entry whose beginning makes no sense.
func (p *parser) skip() {
	for !p.closed(p.peek()) {
		p.next()
	}
}

func newDevice(name string, six bool) Device {
	d := Device{Name: name, IPv6: six, ChpidType: "OSD", Router: "NONROUTER", INBPERF: model.Balanced,
		ReadStorage: "GLOBAL", SecClass: classMax}
	if six {
		d.DupAddrDet, d.TempPrefix = 1, "ALL"
	}
	return d
}

func (p *parser) define(at *token, name string) {
	kind := p.peek()
	p.known.add(name)
	if kind != nil && strings.HasPrefix(kind.word, "EQENET") {
		p.errorf(kind, "", kind.word+" is a network express interface", "use IPAQENET or IPAQENET6, which stand for any Linux device")
		p.skip()
		return
	}
	word, ok := p.oneOf("DEFINE", "IPAQENET", "IPAQENET6")
	if !ok {
		p.skip()
		return
	}
	d := newDevice(name, word == "IPAQENET6")
	d.token = at
	if i := p.device(name); i >= 0 {
		p.errorf(at, "", fmt.Sprintf("%s is defined already, at line %d", name, p.cfg.Devices[i].token.pos.Line), "give it another name, or write INTERFACE "+name+" DELETE before")
	}
	operands(p, deviceTable(d.IPv6), &d)
	p.checkDevice(at, &d)
	for _, a := range d.Addresses {
		p.own[a.Addr] = name
	}
	p.cfg.Devices = append(p.cfg.Devices, d)
}

// device returns the place of an interface in the configuration, or -1.
func (p *parser) device(name string) int {
	for i := range p.cfg.Devices {
		if p.cfg.Devices[i].Name == name {
			return i
		}
	}
	return -1
}

func (p *parser) deleteDevice(name string) {
	if i := p.device(name); i >= 0 {
		p.cfg.Devices = append(p.cfg.Devices[:i], p.cfg.Devices[i+1:]...)
	} else {
		if !p.known.has(name) {
			p.notDefined(p.last(), name)
		}
		p.cfg.Deleted = append(p.cfg.Deleted, name)
	}
	p.known.remove(name)
}

// deviceTable is every operand of IPAQENET, or of IPAQENET6.
func deviceTable(six bool) []operand[Device] {
	mtuMin, mtuMax := uint64(mtu4Min), uint64(mtu4Max)
	if six {
		mtuMin, mtuMax = mtu6Min, mtu6Max
	}
	t := []operand[Device]{
		{word: "PORTNAME", values: "the Linux device, 1 to 15 characters, case as on the host", linux: "the device that is managed",
			take: takePortName, show: func(d *Device) string { return withWord("PORTNAME", d.PortName) }},
	}
	t = append(t, choice("CHPIDTYPE", func(d *Device) *string { return &d.ChpidType }, noMeaning, "Linux has no channel paths", "OSD", "OSX", "OSH")...)
	t = append(t, operand[Device]{word: "CHPID", values: "two hexadecimal digits", effect: noMeaning, linux: "Linux has no channel paths",
		take: func(p *parser, _ *Device) { p.hex("CHPID", 2) }})
	t = append(t, addressOperands(six)...)
	t = append(t, number("MTU", mtuMin, mtuMax, "bytes", func(d *Device) *uint32 { return &d.MTU }, later, "sets the device's MTU")...)
	t = append(t, number("VLANID", 1, vlanMax, "", func(d *Device) *uint32 { return &d.VLANID }, later, "tags what the interface sends; the sorter reads tagged frames already")...)
	t = append(t, vmacOperand())
	t = append(t, routerOperands()...)
	t = append(t, operand[Device]{word: "INBPERF", values: "BALANCED, MINCPU, MINLATENCY, DYNAMIC, DYNAMIC NOWORKLOADQ, DYNAMIC WORKLOADQ",
		linux: "how long inbound queues are held; WORKLOADQ sorts traffic onto several", take: takeInbperf, show: showInbperf})
	t = append(t, misplacedWorkloadQ("WORKLOADQ"), misplacedWorkloadQ("NOWORKLOADQ"))
	t = append(t, flag("OLM", "NOOLM", func(d *Device) *bool { return &d.OLM }, inEffect, "busy-polls the primary queue, and makes INBPERF DYNAMIC")...)
	t = append(t, flag("ISOLATE", "NOISOLATE", func(d *Device) *bool { return &d.Isolate }, noMeaning, "no adapter is shared between stacks; use a bridge's port isolation")...)
	t = append(t, flag("MONSYSPLEX", "NOMONSYSPLEX", func(d *Device) *bool { return &d.MonSysplex }, later, "the interface counts for SYSPLEXMONITOR MONINTERFACE")...)
	t = append(t, named("SOURCEVIPAINTerface", nameMax, func(d *Device) *string { return &d.SourceVIPA }, later, "chooses the source address of connections that leave here")...)
	t = append(t, choice("READSTORAGE", func(d *Device) *string { return &d.ReadStorage }, later, "sets the length of the receive rings", "GLOBAL", "MAX", "AVG", "MIN")...)
	t = append(t, number("SECCLASS", 1, classMax, "", func(d *Device) *uint32 { return &d.SecClass }, noMeaning, "packet filters on Linux match the device by its name")...)
	t = append(t, flag("DYNVLANREG", "NODYNVLANREG", func(d *Device) *bool { return &d.DynVLANReg }, noMeaning, "VLAN registration is the switch's or a GVRP program's matter")...)
	return append(t, linuxOperands()...)
}

// addressOperands are those in which the two IP versions differ. A word of the
// other version is in the table so that it can be said what is wrong.
func addressOperands(six bool) []operand[Device] {
	const other = "it is for %s alone"
	refuse := func(word keyword, kind string) operand[Device] {
		return operand[Device]{word: word, linux: "for " + kind + " alone", take: func(p *parser, _ *Device) {
			t := p.last()
			p.errorf(t, "EZZ0737I", fmt.Sprintf("%s is not supported here: "+other, word.full(), kind), "take it out")
			for !p.taken(p.peek()) {
				p.next()
			}
		}}
	}
	bcast := flag("IPBCAST", "", func(d *Device) *bool { return &d.Broadcast }, noMeaning, "Linux devices that can broadcast always do")
	temp := flag("TEMPIP", "", func(d *Device) *bool { return &d.TempIP }, later, "the device is up without an address, for a DHCP client")
	if !six {
		temp[0].group = "IPADDR"
		return append(append(bcast, temp...),
			operand[Device]{word: "IPADDR", group: "IPADDR", values: "a, a/n, or a and a mask", effect: later, linux: "the address is added to the device; without it the device's own are used",
				take: takeIPAddr, show: showIPAddr},
			refuse("INTFID", "IPAQENET6"), refuse("DUPADDRDET", "IPAQENET6"), refuse("TEMPPREFIX", "IPAQENET6"))
	}
	t := []operand[Device]{
		{word: "IPADDR", values: "one or more of a or a/n", effect: later, linux: "the addresses are added to the device; without it the device's own are used", take: takeIPAddrs, show: showIPAddr},
		{word: "INTFID", values: "four groups of hexadecimal digits, a:b:c:d", effect: later, linux: "the lower half of addresses that the host makes itself",
			take: takeInterfaceID, show: func(d *Device) string { return withWord("INTFID", d.InterfaceID) }},
		refuse("TEMPIP", "IPAQENET"), refuse("IPBCAST", "IPAQENET"),
	}
	t = append(t, number("DUPADDRDET", 0, detectMax, "probes", func(d *Device) *uint32 { return &d.DupAddrDet }, later, "dad_transmits of the device")...)
	return append(t, choice("TEMPPREFIX", func(d *Device) *string { return &d.TempPrefix }, later, "use_tempaddr of the device", "ALL", "NONE")...)
}

// linuxOperands are xlane's own: what the flags of run say for every device.
func linuxOperands() []operand[Device] {
	text := func(word keyword, want string, max int, field func(*Device) *string, linux string) operand[Device] {
		return operand[Device]{word: word, values: want, linux: linux,
			take: func(p *parser, d *Device) {
				if s, ok := p.asWritten(word.full(), want, max); ok {
					*field(d) = s
				}
			},
			show: func(d *Device) string { return withWord(word, *field(d)) }}
	}
	t := []operand[Device]{
		text("NETNS", "a network namespace's name or path", namespaces, func(d *Device) *string { return &d.Netns }, "the namespace that the device lives in (xlane's own operand)"),
		{word: "CPUS", values: "a list of CPUs such as 0-3,8", linux: "the CPUs that may deliver the queues (xlane's own operand)", take: takeCPUs,
			show: func(d *Device) string { return withWord("CPUS", d.CPUs) }},
		text("ADAPTER", "an adapter's name such as veth or cpumap", adapterMax, func(d *Device) *string { return &d.Adapter }, "forces an adapter (xlane's own operand)"),
	}
	t = append(t, number("BULKTHRESHOLD", 1, 1<<32-1, "bytes", func(d *Device) *uint32 { return &d.BulkThreshold }, inEffect, "one-way payload that makes a connection bulk; 180000 when not written (xlane's own operand)")...)
	return append(t, number("FLOWSMAX", flowsLeast, flowsMost, "and a power of two", func(d *Device) *uint32 { return &d.FlowsMax }, inEffect, "connections tracked at one time; 65536 when not written (xlane's own operand)")...)
}

func takePortName(p *parser, d *Device) {
	d.portWritten = true
	t, ok := p.value("PORTNAME", "the name of a Linux device")
	if !ok {
		return
	}
	if badDevice(t.text) {
		p.wrong(t, "PORTNAME", fmt.Sprintf("use the name of a Linux device: 1 to %d characters without blanks and slashes", deviceMax))
		return
	}
	d.PortName = t.text
}

func takeCPUs(p *parser, d *Device) {
	const want = "a list of CPUs such as 0-3,8"
	t, ok := p.value("CPUS", want)
	if !ok {
		return
	}
	if len(t.text) > cpuListMax || !isCPUList(t.text) {
		p.wrong(t, "CPUS", "use "+want)
		return
	}
	d.CPUs = t.text
}

// isCPUList checks the form of a list; which CPUs there are is the host's matter.
func isCPUList(s string) bool {
	for _, part := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return false
		}
		if last, err := strconv.ParseUint(to, 10, 16); isRange && (err != nil || last < first) {
			return false
		}
	}
	return true
}

func takeIPAddr(p *parser, d *Device) {
	if a, bits, ok := p.prefixed("IPADDR", v4); ok {
		p.hostAddress(a)
		d.Addresses = []Address{{Addr: a, Bits: bits}}
	}
}

func takeIPAddrs(p *parser, d *Device) {
	for {
		if a, bits, ok := p.prefixed("IPADDR", v6); ok {
			p.hostAddress(a)
			p.addAddress(d, Address{Addr: a, Bits: bits})
		}
		if !isAddress(p.peek()) {
			return
		}
	}
}

// hostAddress refuses what no host can have on a device.
func (p *parser) hostAddress(a netip.Addr) {
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		p.errorf(nil, "EZZ0638I", fmt.Sprintf("%v is no address that a host can have", a), "use a unicast address")
	}
}

func showIPAddr(d *Device) string {
	if len(d.Addresses) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("IPADDR")
	for _, a := range d.Addresses {
		b.WriteByte(' ')
		b.WriteString(a.Addr.String())
		if a.Bits >= 0 {
			fmt.Fprintf(&b, "/%d", a.Bits)
		}
	}
	return b.String()
}

func takeInterfaceID(p *parser, d *Device) {
	const want = "four groups of hexadecimal digits, such as 0:0:0:1"
	t, ok := p.value("INTFID", want)
	if !ok {
		return
	}
	if !isInterfaceID(t.text) {
		p.wrong(t, "INTFID", "use "+want)
		return
	}
	d.InterfaceID = t.text
}

func isInterfaceID(s string) bool {
	groups := strings.Split(s, ":")
	for _, g := range groups {
		if _, err := strconv.ParseUint(g, 16, 16); err != nil || len(g) > 4 {
			return false
		}
	}
	return len(groups) == 4
}

// hex reads exactly n hexadecimal digits.
func (p *parser) hex(what string, n int) (string, bool) {
	want := fmt.Sprintf("%d hexadecimal digits", n)
	t, ok := p.value(what, want)
	if !ok {
		return "", false
	}
	if _, err := strconv.ParseUint(t.text, 16, 64); err != nil || len(t.text) != n {
		p.wrong(t, what, "use "+want)
		return "", false
	}
	return fold(t.text), true
}

func vmacOperand() operand[Device] {
	return operand[Device]{word: "VMAC", values: "nothing or 12 hexadecimal digits; then ROUTEALL or ROUTELCL", effect: inEffect,
		linux: "the device's own address; giving it another is not in effect yet",
		take: func(p *parser, d *Device) {
			d.VMAC, d.VMACRoute = true, "ALL"
			if t := p.peek(); t != nil && len(t.word) == 12 && !p.taken(t) {
				p.takeMAC(d)
			}
			if w := p.optional("ROUTEALL", "ROUTELCL"); w != "" {
				d.VMACRoute = strings.TrimPrefix(w, "ROUTE")
			}
		},
		show: func(d *Device) string {
			if !d.VMAC {
				return ""
			}
			return strings.Join(append(strings.Fields("VMAC "+d.MAC), "ROUTE"+d.VMACRoute), " ")
		}}
}

// takeMAC reads the address of VMAC: the two lowest bits of its first byte say
// locally administered, and unicast.
func (p *parser) takeMAC(d *Device) {
	mac, ok := p.hex("VMAC", 12)
	if !ok {
		return
	}
	first, err := strconv.ParseUint(mac[:2], 16, 8)
	if err != nil || first&3 != 2 {
		p.wrong(p.last(), "VMAC", "use a locally administered unicast address: its second digit is 2, 6, A or E")
		return
	}
	d.MAC = mac
	p.last().spelled = mac
	p.pending(p.last(), "INTERFACE VMAC with an address", "gives the device that address")
}

func routerOperands() []operand[Device] {
	var t []operand[Device]
	for _, w := range []keyword{"NONROUTER", "PRIROUTER", "SECROUTER"} {
		o := operand[Device]{word: w, group: "router", linux: "the default",
			take: func(_ *parser, d *Device) { d.Router = w.full() }}
		if w == "NONROUTER" {
			o.show = func(d *Device) string {
				if d.Router == "NONROUTER" {
					return ""
				}
				return d.Router
			}
		} else {
			o.effect, o.linux = noMeaning, "a Linux device has an address of its own, and receives what is sent to it"
		}
		t = append(t, o)
	}
	return t
}

func takeInbperf(p *parser, d *Device) {
	word, ok := p.oneOf("INBPERF", "BALANCED", "MINCPU", "MINLATENCY", "DYNAMIC")
	if !ok {
		p.optional("WORKLOADQ", "NOWORKLOADQ")
		return
	}
	mode, err := model.ParseINBPERF(word)
	if err != nil {
		p.errorf(nil, "", err.Error(), "use another")
		return
	}
	d.INBPERF, d.WorkloadQ, d.modeWritten = mode, false, true
	switch p.optional("WORKLOADQ", "NOWORKLOADQ") {
	case "WORKLOADQ":
		d.WorkloadQ = mode == model.Dynamic
		if !d.WorkloadQ {
			p.errorf(nil, "EZZ0326I", fmt.Sprintf("WORKLOADQ conflicts with INBPERF %v", mode), "write INBPERF DYNAMIC WORKLOADQ, or leave WORKLOADQ out")
		}
	case "NOWORKLOADQ":
		if mode != model.Dynamic {
			p.warnf(nil, "", fmt.Sprintf("NOWORKLOADQ says nothing beside INBPERF %v", mode), "leave it out")
		}
	}
}

// misplacedWorkloadQ is in the table so that it can be said where it belongs.
func misplacedWorkloadQ(word keyword) operand[Device] {
	return operand[Device]{word: word, linux: "stands behind INBPERF DYNAMIC alone", take: func(p *parser, _ *Device) {
		p.errorf(nil, "", word.full()+" stands behind INBPERF DYNAMIC alone", "write INBPERF DYNAMIC "+word.full())
	}}
}

func showInbperf(d *Device) string {
	s := "INBPERF " + d.INBPERF.String()
	if d.INBPERF == model.Dynamic {
		if d.WorkloadQ {
			return s + " WORKLOADQ"
		}
		return s + " NOWORKLOADQ"
	}
	return s
}

// How INTERFACE name ADDADDR and its like change an IPv6 interface.
type addressChange func(p *parser, d *Device, a Address)

func addAddress(p *parser, d *Device, a Address) {
	p.addAddress(d, a)
	p.own[a.Addr] = d.Name
}

// addAddress adds one address to an interface, if it may have it.
func (p *parser) addAddress(d *Device, a Address) {
	if len(d.Addresses) > addressesMax {
		return // said already
	}
	for _, old := range d.Addresses {
		if old.Addr == a.Addr {
			p.errorf(nil, "", fmt.Sprintf("%s has %v already", d.Name, a.Addr), "take it out")
			return
		}
	}
	if d.Addresses = append(d.Addresses, a); len(d.Addresses) > addressesMax {
		p.errorf(nil, "", fmt.Sprintf("%s has more than %d addresses", d.Name, addressesMax), "take some out")
	}
}

func deleteAddress(p *parser, d *Device, a Address) {
	for i, old := range d.Addresses {
		if old.Addr == a.Addr {
			d.Addresses = append(d.Addresses[:i], d.Addresses[i+1:]...)
			return
		}
	}
	p.errorf(nil, "", fmt.Sprintf("%s has no address %v", d.Name, a.Addr), "name one of its addresses")
}

func deprecateAddress(p *parser, d *Device, a Address) {
	for i, old := range d.Addresses {
		if old.Addr == a.Addr {
			d.Addresses[i].Deprecated = true
			return
		}
	}
	p.errorf(nil, "", fmt.Sprintf("%s has no address %v", d.Name, a.Addr), "name one of its addresses")
}

func (p *parser) changeAddresses(name string, change addressChange) {
	i := p.device(name)
	switch {
	case i < 0:
		p.notDefined(p.last(), name)
		p.skip()
		return
	case !p.cfg.Devices[i].IPv6:
		p.errorf(nil, "", name+" is an IPAQENET interface, which has one address", "define it again with another IPADDR")
		p.skip()
		return
	}
	verb := p.last().word
	p.pending(p.last(), "INTERFACE "+verb, "changes the addresses of the device")
	for {
		if a, bits, ok := p.prefixed(verb, v6); ok {
			change(p, &p.cfg.Devices[i], Address{Addr: a, Bits: bits})
		}
		if !isAddress(p.peek()) {
			return
		}
	}
}

// checkDevice is what can be said of one INTERFACE alone.
func (p *parser) checkDevice(at *token, d *Device) {
	if !d.portWritten {
		p.errorf(at, "", "PORTNAME is missing", "write PORTNAME and the name of the Linux device")
	}
	if d.OLM && d.INBPERF != model.Dynamic {
		if d.modeWritten {
			p.warnf(at, "EZZ0326I", fmt.Sprintf("OLM makes INBPERF DYNAMIC, not %v", d.INBPERF), "write INBPERF DYNAMIC")
		}
		d.INBPERF = model.Dynamic // zos.md §1.2: OLM overrides INBPERF
	}
	if d.WorkloadQ && !d.VMAC {
		p.errorf(at, "", "WORKLOADQ needs VMAC", "add VMAC; without an address it stands for the device's own")
	}
	if d.MAC != "" && d.VMACRoute == "ALL" && d.Router != "NONROUTER" {
		p.warnf(at, "", d.Router+" is ignored beside VMAC ROUTEALL", "leave it out")
	}
	if d.TempIP && len(d.Addresses) > 0 {
		d.Addresses = nil // said by the table
	}
}
