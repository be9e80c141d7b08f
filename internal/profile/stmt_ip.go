package profile

import (
	"fmt"
	"strings"
)

// Ranges of IPCONFIG and IPCONFIG6. ARPTO's is the original's; the others are
// those of the protocols' fields, or chosen so that no sensible value is
// refused (they are on the statements' pages).
const (
	arpMin       = 60
	arpMax       = 86400
	ttlMax       = 255
	secondsMax   = 86400
	errorRateMax = 20
	qdioMax      = 4
	metricMax    = 14 // a RIP metric below "unreachable", which is 16 with the hop to it
	prefHoursMax = 7 * 24
	validHours   = 90 * 24
)

func newIP() *IP {
	return &IP{ARPTimeout: 1200, ChecksumOffload: true, Forward: "NOFWDMULTIPATH", DevRetryDuration: 90, Format: "SHORT",
		Multipath: "NO", ReassemblyTimeout: 60, TTL: 64}
}

func newIP6() *IP6 {
	return &IP6{ChecksumOffload: true, Forward: "NOFWDMULTIPATH", HopLimit: 255, ICMPErrorLimit: 3, OSMSecClass: classMax,
		Multipath: "NO", PrefLifetime: 24, ValidLifetime: 7 * 24}
}

func parseIP(p *parser) {
	at := p.last()
	if p.cfg.IP == nil {
		p.cfg.IP = newIP()
	}
	operands(p, ipTable(), p.cfg.IP)
	ip := p.cfg.IP
	if ip.QDIOAccelerator > 0 && ip.IQDIORouting > 0 {
		p.errorf(at, "EZZ0707I", "QDIOACCELERATOR and IQDIOROUTING exclude each other", "take one out")
	}
	if ip.QDIOAccelerator > 0 && ip.Forward == "NO" {
		p.warnf(at, "", "QDIOACCELERATOR with NODATAGRAMFWD forwards distributed connections alone", "write DATAGRAMFWD to forward other traffic too")
	}
}

func parseIP6(p *parser) {
	at := p.last()
	if p.cfg.IP6 == nil {
		p.cfg.IP6 = newIP6()
	}
	operands(p, ip6Table(), p.cfg.IP6)
	if ip := p.cfg.IP6; ip.PrefLifetime > ip.ValidLifetime {
		p.errorf(at, "", fmt.Sprintf("PREFLIFETIME %d is longer than VALIDLIFETIME %d", ip.PrefLifetime, ip.ValidLifetime), "make it at most as long")
	}
}

func ipTable() []operand[IP] {
	t := number("ARPTO", arpMin, arpMax, "seconds", func(c *IP) *uint32 { return &c.ARPTimeout }, later, "how long a neighbour's address is kept")
	t = append(t, flag("CHECKSUMOFFLoad", "NOCHECKSUMOFFLoad", func(c *IP) *bool { return &c.ChecksumOffload }, later, "the device's checksum offloads")...)
	t = append(t, forward(func(c *IP) *string { return &c.Forward })...)
	t = append(t, number("DEVRETRYDURation", 0, secondsMax, "seconds, 0 for ever", func(c *IP) *uint32 { return &c.DevRetryDuration }, noMeaning, "Linux devices come back by themselves")...)
	t = append(t, dynamicXCF(func(c *IP) **DynamicXCF { return &c.DynamicXCF }, v4)...)
	t = append(t, choice("FORMat", func(c *IP) *string { return &c.Format }, noMeaning, "displays lay themselves out", "LONG", "SHORT")...)
	t = append(t, flag("IGNORERedirect", "", func(c *IP) *bool { return &c.IgnoreRedirect }, later, "accept_redirects is turned off")...)
	t = append(t, flag("IPSECURITY", "", func(c *IP) *bool { return &c.IPSecurity }, noMeaning, "use nftables and the kernel's IPsec")...)
	t = append(t, accelerator("IQDIORouting", func(c *IP) *uint32 { return &c.IQDIORouting }, noMeaning, "Linux has no HiperSockets, and QDIOACCELERATOR does the same for its devices")...)
	t = append(t, multipath(func(c *IP) *string { return &c.Multipath })...)
	t = append(t, flag("PATHMTUDISCovery", "NOPATHMTUDISCovery", func(c *IP) *bool { return &c.PathMTUDiscovery }, later, "ip_no_pmtu_disc")...)
	t = append(t, accelerator("QDIOACCELerator", func(c *IP) *uint32 { return &c.QDIOAccelerator }, later, "forwards in XDP, before the stack")...)
	t = append(t, number("REASSEMBLytimeout", 1, secondsMax, "seconds", func(c *IP) *uint32 { return &c.ReassemblyTimeout }, later, "ipfrag_time")...)
	t = append(t, flag("SEGMENTATIONOFFLoad", "NOSEGMENTATIONOFFLoad", func(c *IP) *bool { return &c.SegmentationOffload }, later, "large send")...)
	t = append(t, flag("SOURCEVIPA", "NOSOURCEVIPA", func(c *IP) *bool { return &c.SourceVIPA }, later, "connections leave with a virtual address")...)
	t = append(t, flag("SYSPLEXRouting", "NOSYSPLEXRouting", func(c *IP) *bool { return &c.SysplexRouting }, later, "this host's weight is told to the distributor")...)
	t = append(t, operand[IP]{word: "TCPSTACKSOURCEVipa", group: "stack source", values: "an IPv4 address", effect: later, linux: "the source address of connections that choose none",
		take: func(p *parser, c *IP) {
			if a, ok := p.address("TCPSTACKSOURCEVIPA", v4); ok {
				c.TCPStackSourceVIPA = a.String()
			}
		},
		show: func(c *IP) string { return orWord("TCPSTACKSOURCEVIPA", c.TCPStackSourceVIPA, "NOTCPSTACKSOURCEVIPA") }})
	t = append(t, operand[IP]{word: "NOTCPSTACKSOURCEVipa", group: "stack source", linux: "the opposite", take: func(_ *parser, c *IP) { c.TCPStackSourceVIPA = "" }})
	return append(t, number("TTL", 1, ttlMax, "hops", func(c *IP) *uint32 { return &c.TTL }, later, "ip_default_ttl")...)
}

func ip6Table() []operand[IP6] {
	t := flag("CHECKSUMOFFLoad", "NOCHECKSUMOFFLoad", func(c *IP6) *bool { return &c.ChecksumOffload }, later, "the device's checksum offloads")
	t = append(t, forward(func(c *IP6) *string { return &c.Forward })...)
	t = append(t, dynamicXCF(func(c *IP6) **DynamicXCF { return &c.DynamicXCF }, v6)...)
	t = append(t, number("HOPLimit", 1, ttlMax, "hops", func(c *IP6) *uint32 { return &c.HopLimit }, later, "hop_limit")...)
	t = append(t, number("ICMPErrorlimit", 1, errorRateMax, "messages a second", func(c *IP6) *uint32 { return &c.ICMPErrorLimit }, later, "icmp.ratelimit")...)
	t = append(t, flag("IGNORERedirect", "", func(c *IP6) *bool { return &c.IgnoreRedirect }, later, "accept_redirects is turned off")...)
	t = append(t, flag("IGNOREROUTERHoplimit", "NOIGNOREROUTERHoplimit", func(c *IP6) *bool { return &c.IgnoreRouterHopLimit }, later, "accept_ra_min_hop_limit")...)
	t = append(t, flag("IPSECURITY", "", func(c *IP6) *bool { return &c.IPSecurity }, noMeaning, "use nftables and the kernel's IPsec")...)
	t = append(t, number("OSMSECCLASS", 1, classMax, "", func(c *IP6) *uint32 { return &c.OSMSecClass }, noMeaning, "Linux has no such management network")...)
	t = append(t, multipath(func(c *IP6) *string { return &c.Multipath })...)
	t = append(t, flag("R1COMPLIANCE", "NOR1COMPLIANCE", func(c *IP6) *bool { return &c.R1Compliance }, noMeaning, "Linux decides its conformance itself")...)
	t = append(t, flag("SEGMENTATIONOFFLoad", "NOSEGMENTATIONOFFLoad", func(c *IP6) *bool { return &c.SegmentationOffload }, later, "large send")...)
	t = append(t, flag("SOURCEVIPA", "NOSOURCEVIPA", func(c *IP6) *bool { return &c.SourceVIPA }, later, "connections leave with a virtual address")...)
	t = append(t, operand[IP6]{word: "TCPSTACKSOURCEVipa", group: "stack source", values: "an interface's name", effect: later, linux: "the source address of connections that choose none",
		take: func(p *parser, c *IP6) {
			if n, ok := p.name("TCPSTACKSOURCEVIPA", nameMax); ok {
				c.TCPStackSourceVIPA = n
			}
		},
		show: func(c *IP6) string { return orWord("TCPSTACKSOURCEVIPA", c.TCPStackSourceVIPA, "NOTCPSTACKSOURCEVIPA") }})
	t = append(t, operand[IP6]{word: "NOTCPSTACKSOURCEVipa", group: "stack source", linux: "the opposite", take: func(_ *parser, c *IP6) { c.TCPStackSourceVIPA = "" }})
	return append(t, temporaryAddresses()...)
}

func temporaryAddresses() []operand[IP6] {
	return []operand[IP6]{
		{word: "TEMPADDRS", group: "temporary", values: fmt.Sprintf("PREFLIFETIME 1 to %d hours, VALIDLIFETIME 2 to %d hours", prefHoursMax, validHours), effect: later, linux: "use_tempaddr and its lifetimes",
			take: func(p *parser, c *IP6) {
				c.TempAddrs = true
				suboperands(p, lifetimeTable(), c)
			},
			show: func(c *IP6) string {
				if !c.TempAddrs {
					return "NOTEMPADDRS"
				}
				return "TEMPADDRS " + strings.Join(shown(lifetimeTable(), c, c), " ")
			}},
		{word: "NOTEMPADDRS", group: "temporary", linux: "the opposite", take: func(_ *parser, c *IP6) { c.TempAddrs = false }},
	}
}

func lifetimeTable() []operand[IP6] {
	t := number("PREFLIFETIME", 1, prefHoursMax, "hours", func(c *IP6) *uint32 { return &c.PrefLifetime }, inEffect, "how long a temporary address is preferred")
	return append(t, number("VALIDLIFETIME", 2, validHours, "hours", func(c *IP6) *uint32 { return &c.ValidLifetime }, inEffect, "how long it is valid")...)
}

func orWord(word keyword, value, without string) string {
	if value == "" {
		return without
	}
	return word.full() + " " + plain(value)
}

// forward is DATAGRAMFWD and its opposite.
func forward[T any](field func(*T) *string) []operand[T] {
	return []operand[T]{
		{word: "DATAGRamfwd", group: "forward", values: "NOFWDMULTIPATH, FWDMULTIPATH PERPACKET", effect: later, linux: "the host forwards packets (ip_forward); distributed connections are forwarded in any case",
			take: func(p *parser, c *T) {
				*field(c) = "NOFWDMULTIPATH"
				if w := p.optional("NOFWDMULTipath", "FWDMULTipath"); w != "" {
					*field(c) = w
				}
				if *field(c) == "FWDMULTIPATH" {
					p.optional("PERPacket")
				}
			},
			show: func(c *T) string {
				switch *field(c) {
				case "NO":
					return "NODATAGRAMFWD"
				case "FWDMULTIPATH":
					return "DATAGRAMFWD FWDMULTIPATH PERPACKET"
				}
				return "DATAGRAMFWD NOFWDMULTIPATH"
			}},
		{word: "NODATAGRamfwd", group: "forward", linux: "the opposite", take: func(_ *parser, c *T) { *field(c) = "NO" }},
	}
}

func multipath[T any](field func(*T) *string) []operand[T] {
	return []operand[T]{
		{word: "MULTIPATH", group: "multipath", values: "PERCONNECTION, PERPACKET", effect: later, linux: "equal routes are shared by connection, or by packet",
			take: func(p *parser, c *T) {
				*field(c) = "PERCONNECTION"
				if w := p.optional("PERConnection", "PERPacket"); w != "" {
					*field(c) = w
				}
			},
			show: func(c *T) string {
				if *field(c) == "NO" {
					return "NOMULTIPATH"
				}
				return "MULTIPATH " + *field(c)
			}},
		{word: "NOMULTIPATH", group: "multipath", linux: "the opposite", take: func(_ *parser, c *T) { *field(c) = "NO" }},
	}
}

// accelerator is QDIOACCELERATOR and IQDIOROUTING, with their opposites.
func accelerator(word keyword, field func(*IP) *uint32, e effect, linux string) []operand[IP] {
	return []operand[IP]{
		{word: word, group: word.full(), values: "QDIOPRIORITY 1 to 4", effect: e, linux: linux,
			take: func(p *parser, c *IP) {
				*field(c) = 1
				if p.optional("QDIOPriority") != "" {
					if n, ok := p.number("QDIOPRIORITY", 1, qdioMax, ""); ok {
						*field(c) = n
					}
				}
			},
			show: func(c *IP) string {
				if *field(c) == 0 {
					return "NO" + word.full()
				}
				return fmt.Sprintf("%s QDIOPRIORITY %d", word.full(), *field(c))
			}},
		{word: "NO" + word, group: word.full(), linux: "the opposite", take: func(_ *parser, c *IP) { *field(c) = 0 }},
	}
}

func dynamicXCF[T any](field func(*T) **DynamicXCF, v version) []operand[T] {
	values := "an address and a mask, or a/n; the cost 0 to 14; then SECCLASS, SMCD, NOSMCD, SOURCEVIPAINTERFACE"
	if v == v6 {
		values = "a or a/n; then INTFID, SECCLASS, SMCD, NOSMCD, SOURCEVIPAINTERFACE"
	}
	return []operand[T]{
		{word: "DYNAMICXCF", group: "xcf", values: values, effect: later, linux: "the address by which members of the group reach this host",
			take: func(p *parser, c *T) {
				if x, ok := takeXCF(p, v); ok {
					*field(c) = x
				}
			},
			show: func(c *T) string { return showXCF(*field(c), v) }},
		{word: "NODYNAMICXCF", group: "xcf", linux: "the opposite", take: func(_ *parser, c *T) { *field(c) = nil }},
	}
}

func takeXCF(p *parser, v version) (*DynamicXCF, bool) {
	x := &DynamicXCF{SecClass: classMax}
	var ok bool
	x.Addr, x.Bits, ok = p.prefixed("DYNAMICXCF", v)
	if ok && v == v4 {
		if x.Bits < 0 {
			p.errorf(nil, "", "DYNAMICXCF has no mask", "write a mask, or a prefix length, after the address")
			ok = false
		}
		n, costed := p.number("the cost of DYNAMICXCF", 0, metricMax, "")
		x.CostMetric, ok = n, ok && costed
	}
	if ok {
		p.hostAddress(x.Addr)
	}
	suboperands(p, xcfTable(v), x)
	return x, ok
}

func showXCF(x *DynamicXCF, v version) string {
	if x == nil {
		return "NODYNAMICXCF"
	}
	s := "DYNAMICXCF " + x.Addr.String()
	if x.Bits >= 0 {
		s += fmt.Sprintf("/%d", x.Bits)
	}
	if v == v4 {
		s += fmt.Sprintf(" %d", x.CostMetric)
	}
	return s + " " + strings.Join(shown(xcfTable(v), x, &DynamicXCF{SecClass: classMax}), " ")
}

func xcfTable(v version) []operand[DynamicXCF] {
	t := number("SECCLASS", 1, classMax, "", func(x *DynamicXCF) *uint32 { return &x.SecClass }, noMeaning, "packet filters on Linux match the device by its name")
	t = append(t, flag("SMCD", "NOSMCD", func(x *DynamicXCF) *bool { return &x.SMCD }, noMeaning, "members speak TCP")...)
	t = append(t, named("SOURCEVIPAINTerface", nameMax, func(x *DynamicXCF) *string { return &x.SourceVIPA }, inEffect, "")...)
	if v == v6 {
		t = append(t, operand[DynamicXCF]{word: "INTFID", take: func(p *parser, x *DynamicXCF) {
			var d Device
			takeInterfaceID(p, &d)
			x.IntfID = d.InterfaceID
		}, show: func(x *DynamicXCF) string { return withWord("INTFID", x.IntfID) }})
	}
	return t
}
