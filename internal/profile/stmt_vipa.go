package profile

import (
	"fmt"
	"net/netip"
	"strings"
)

// Limits of VIPADYNAMIC (zos.md §1.6).
const (
	dvipasMax = 1024
	rangesMax = 4096
	rankMax   = 254
	safMax    = 246 // a RACF profile's name
	passMax   = 64
	// The defaults of VIPASMPARMS are unconfirmed; these are the sheet's.
	smGroup = "224.0.1.2"
	smPort  = 1637
)

func parseVIPA(p *parser) {
	if p.cfg.VIPA == nil {
		p.cfg.VIPA = &VIPADynamic{}
	}
	p.block("ENDVIPADYNAMIC", vipaEntries())
}

func vipaEntries() []entry {
	return []entry{
		{"VIPADEFine", func(p *parser) { p.dvipa(false) }},
		{"VIPABackup", func(p *parser) { p.dvipa(true) }},
		{"VIPARange", parseVIPARange},
		{"VIPADELete", parseVIPADelete},
		{"VIPADISTribute", parseDistribute},
		{"VIPAROUTE", parseVIPARoute},
		{"VIPASMparms", parseServiceManager},
	}
}

// dvipa reads VIPADEFINE or VIPABACKUP, whose operands have a fixed order.
func (p *parser) dvipa(backup bool) {
	d := DVIPA{Backup: backup, Moveable: "IMMEDIATE", Bits: -1}
	if backup {
		d.Rank, d.Moveable = 1, ""
		if n, given := p.optionalRank(); given {
			d.Rank = n
		}
	}
	p.tier(&d)
	activates := !backup
	if p.optional("MOVEable") != "" {
		activates = true
		if w, ok := p.oneOf("MOVEABLE", "IMMEDiate", "WHENIDLE"); ok {
			d.Moveable = w
		}
	}
	if p.optional("SERVICEMGR") != "" {
		d.ServiceMgr = true
		if !activates {
			p.errorf(nil, "", "SERVICEMGR needs MOVEABLE on a backup", "write MOVEABLE IMMEDIATE before it")
		}
	}
	if late := p.optional("TIER1", "TIER2", "CPCSCOPE", "MOVEable"); late != "" {
		p.errorf(nil, "", late+" comes too late", "the order is TIER1 or TIER2, CPCSCOPE, MOVEABLE, SERVICEMGR, then the addresses")
		p.skip()
		return
	}
	if p.isVIPAName() {
		p.dvipa6(d)
		return
	}
	if activates {
		if t := p.peek(); isAddress(t) && strings.Contains(t.word, ":") {
			p.errorf(t, "", "an IPv6 address without the name of its interface", "write a name of your choice before the address")
			p.skip()
			return
		}
		bits, ok := p.mask("the address mask")
		if !ok {
			p.skip()
			return
		}
		d.Bits = bits
	}
	p.dvipa4(d)
}

// optionalRank reads a backup's rank, which is a plain number before all else.
func (p *parser) optionalRank() (uint32, bool) {
	if isAddress(p.peek()) {
		return 0, false
	}
	return p.optionalNumber("the rank", 1, rankMax, "")
}

func (p *parser) tier(d *DVIPA) {
	for {
		switch w := p.optional("TIER1", "TIER2", "CPCSCOPE"); w {
		case "":
			if d.Tier == 1 && d.CPCScope {
				p.errorf(nil, "EZZ0356I", "CPCSCOPE and TIER1 exclude each other", "take one out")
			}
			return
		case "CPCSCOPE":
			d.CPCScope = true
		default:
			if d.Tier != 0 {
				p.errorf(nil, "EZZ0356I", "TIER1 and TIER2 exclude each other", "take one out")
			}
			d.Tier = uint32(w[len(w)-1] - '0')
		}
	}
}

// isVIPAName reports whether the name of an IPv6 virtual interface comes next.
func (p *parser) isVIPAName() bool {
	t := p.peek()
	return !p.closed(t) && !isAddress(t)
}

func (p *parser) dvipa6(d DVIPA) {
	name, ok := p.name("the interface's name", nameMax)
	if !ok {
		p.skip()
		return
	}
	d.Name = name
	if d.Moveable == "WHENIDLE" {
		p.errorf(nil, "EZZ0737I", "MOVEABLE WHENIDLE is not supported for IPv6", "write MOVEABLE IMMEDIATE")
	}
	if d.ServiceMgr {
		p.errorf(nil, "EZZ0737I", "SERVICEMGR is not supported for IPv6", "take it out")
	}
	a, bits, ok := p.prefixed("the address", v6)
	if !ok {
		p.skip()
		return
	}
	d.Addr, d.Bits = a, bits
	p.addDVIPA(d)
}

func (p *parser) dvipa4(d DVIPA) {
	for n := 0; ; n++ {
		if t := p.peek(); n > 0 && (p.closed(t) || !isAddress(t)) {
			return
		}
		if a, ok := p.address("the address", v4); ok {
			d.Addr = a
			p.addDVIPA(d)
		} else if p.closed(p.peek()) {
			return
		}
	}
}

// addDVIPA adds one address to the configuration, if it may be there.
func (p *parser) addDVIPA(d DVIPA) {
	p.hostAddress(d.Addr)
	v := p.cfg.VIPA
	if len(v.DVIPAs) > dvipasMax {
		return // said already
	}
	for _, old := range v.DVIPAs {
		switch {
		case old.Addr == d.Addr && old.Backup == d.Backup:
			p.errorf(nil, "", fmt.Sprintf("%v is in another %s already", d.Addr, p.statement), fmt.Sprintf("write VIPADELETE %v before, or take one out", d.Addr))
			return
		case old.Addr == d.Addr:
			p.errorf(nil, "", fmt.Sprintf("%v is in VIPADEFINE and in VIPABACKUP", d.Addr), "a host owns an address or backs it up; take one out")
			return
		case d.Name != "" && old.Name == d.Name:
			p.errorf(nil, "", fmt.Sprintf("%s is the name of %v already", d.Name, old.Addr), "give it another name")
		}
	}
	if len(v.DVIPAs) == dvipasMax {
		p.errorf(nil, "", fmt.Sprintf("more than %d virtual addresses", dvipasMax), "share them out among the members")
	}
	v.DVIPAs = append(v.DVIPAs, d)
	p.known.add(d.Addr.String())
}

func parseVIPARange(p *parser) {
	r := VIPARange{Moveable: "NONDISRUPTIVE"}
	r.Delete = p.optional("DEFINE", "DELEte") == "DELETE"
	if p.optional("MOVEable") != "" {
		if w, ok := p.oneOf("MOVEABLE", "NONDISRUPTive", "DISRUPTive"); ok {
			r.Moveable = w
		}
	}
	var a netip.Addr
	var bits int
	var ok bool
	if p.isVIPAName() {
		if r.Name, ok = p.name("the interface's name", nameMax); ok {
			a, bits, ok = p.prefixed("VIPARANGE", v6)
		}
	} else if t := p.peek(); t != nil && strings.Contains(t.word, ":") {
		p.errorf(t, "", "an IPv6 subnet without the name of its interface", "write a name of your choice before the address")
	} else if bits, ok = p.mask("the address mask"); ok {
		a, ok = p.address("VIPARANGE", v4)
	}
	if !ok {
		p.skip()
		return
	}
	if bits < 0 {
		bits = a.BitLen()
	}
	r.Subnet = netip.PrefixFrom(a, bits).Masked()
	inOrder(p, []operand[VIPARange]{
		{word: "SAF", take: func(p *parser, r *VIPARange) { r.SAF, _ = p.name("SAF", safMax) }},
		{word: "ZCX", take: func(_ *parser, r *VIPARange) { r.ZCX = true }},
	}, &r)
	v := p.cfg.VIPA
	if len(v.Ranges) == rangesMax {
		p.errorf(nil, "", fmt.Sprintf("more than %d ranges", rangesMax), "join some of them")
	}
	if len(v.Ranges) <= rangesMax {
		v.Ranges = append(v.Ranges, r)
	}
}

// parseVIPADelete takes addresses away, so that they may be defined again.
func parseVIPADelete(p *parser) {
	for n := 0; ; n++ {
		t := p.peek()
		if p.closed(t) {
			if n == 0 {
				p.errorf(nil, "", "VIPADELETE names no address", "write one or more after it")
			}
			return
		}
		if !isAddress(t) {
			name, ok := p.name("VIPADELETE", nameMax)
			if ok {
				p.deleteVIPA(name, func(d DVIPA) bool { return d.Name == name })
			}
			continue
		}
		if a, ok := p.address("the address", anyVersion); ok {
			p.deleteVIPA(a.String(), func(d DVIPA) bool { return d.Addr == a })
		}
	}
}

func (p *parser) deleteVIPA(what string, is func(DVIPA) bool) {
	v, found := p.cfg.VIPA, false
	kept := v.DVIPAs[:0]
	for _, d := range v.DVIPAs {
		if is(d) {
			found = true
			p.known.remove(d.Addr.String())
			continue
		}
		kept = append(kept, d)
	}
	v.DVIPAs = kept
	if !found && !p.known.has(what) {
		p.warnf(nil, "", what+" is not defined before", "take it out of a first profile")
	}
	p.known.remove(what)
	v.Deleted = append(v.Deleted, what)
}

func parseVIPARoute(p *parser) {
	var r VIPARoute
	var ok bool
	r.Delete = p.optional("DEFINE", "DELEte") == "DELETE"
	if r.DestXCF, ok = p.address("the target's XCF address", anyVersion); !ok {
		p.skip()
		return
	}
	if r.Target, ok = p.address("the address to send to", anyVersion); !ok {
		p.skip()
		return
	}
	if r.DestXCF.Is4() != r.Target.Is4() {
		p.errorf(nil, "", fmt.Sprintf("%v and %v are of different IP versions", r.DestXCF, r.Target), "use two of one version")
		return
	}
	for _, old := range p.cfg.VIPA.Routes {
		if old.DestXCF == r.DestXCF && old.Delete == r.Delete {
			p.errorf(nil, "", fmt.Sprintf("%v has a VIPAROUTE already", r.DestXCF), "take one out")
			return
		}
	}
	p.cfg.VIPA.Routes = append(p.cfg.VIPA.Routes, r)
}

func parseServiceManager(p *parser) {
	s := newServiceManager()
	operands(p, serviceTable(), s)
	p.cfg.VIPA.ServiceMgr = s
}

func newServiceManager() *ServiceManager {
	return &ServiceManager{Group: netip.MustParseAddr(smGroup), Port: smPort}
}

func serviceTable() []operand[ServiceManager] {
	t := []operand[ServiceManager]{{word: "SMMCAST", values: "a multicast IPv4 address", linux: "nothing: there is no such service manager any more",
		take: func(p *parser, s *ServiceManager) {
			a, ok := p.address("SMMCAST", v4)
			if ok && !a.IsMulticast() {
				p.wrong(p.last(), "SMMCAST", "use a multicast address")
			} else if ok {
				s.Group = a
			}
		},
		show: func(s *ServiceManager) string { return "SMMCAST " + s.Group.String() }}}
	t = append(t, number("SMPORT", 1, portMax, "", func(s *ServiceManager) *uint32 { return &s.Port }, inEffect, "as SMMCAST")...)
	return append(t, operand[ServiceManager]{word: "SMPASS", values: "a password, as written", linux: "as SMMCAST",
		take: func(p *parser, s *ServiceManager) {
			s.Password, _ = p.asWritten("SMPASS", "a password", passMax)
		},
		show: func(s *ServiceManager) string { return withWord("SMPASS", s.Password) }})
}
