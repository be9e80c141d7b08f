package profile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Limits of VIPADISTRIBUTE (zos.md §1.6).
const (
	portsMax    = 64
	targetsMax  = 32
	shareMax    = 99
	costMax     = 100
	ilMax       = 3
	weightMax   = 99
	affinityMax = 9999
	optLocalMax = 16

	weightDefault = 10
)

// The names of DISTMETHOD that rules are about.
const (
	hotStandby     = "HOTSTANDBY"
	weightedActive = "WEIGHTEDACTIVE"
	targControlled = "TARGCONTROLLED"
)

func parseDistribute(p *parser) {
	at := p.last()
	d := Distribution{Method: "BASEWLM", OptLocal: -1}
	operandsBefore(p, distributeTable(), &d)
	if late := p.peek(); p.closed(late) {
		p.errorf(at, "", "the address is missing", "write the virtual address after the options")
		p.skipDistribute()
		return
	}
	var ok bool
	if d.Addr, ok = p.distributed(); !ok {
		p.skipDistribute()
		return
	}
	if p.optional("PORT") != "" {
		p.distributedPorts(&d)
	}
	done := p.optional("DESTIP") != ""
	if done {
		p.targets(&d)
	} else if t := p.peek(); !d.Delete && (t == nil || t.word != "PORT") && p.closed(t) {
		p.errorf(at, "", "DESTIP is missing", "write DESTIP ALL, or DESTIP and the targets' XCF addresses")
	}
	p.late(&d, done)
	p.checkDistribution(at, &d)
	p.cfg.VIPA.Distributions = append(p.cfg.VIPA.Distributions, d)
}

// late says what is wrong with words that are left over.
func (p *parser) late(d *Distribution, done bool) {
	t := p.peek()
	if p.closed(t) && (done || t == nil || t.word != "PORT") {
		return
	}
	if i := find(distributeTable(), t); i >= 0 {
		p.errorf(t, "", t.raw+" comes too late", "write it before the address")
	} else if t.word == "PORT" {
		p.errorf(t, "", "PORT comes too late", "write it right behind the address")
	} else {
		p.unknown(t, "an operand here", []keyword{"PORT", "DESTIP"})
	}
	p.skipDistribute()
	d.AllTargets = true // so that missing targets are not said as well
}

// skipDistribute is skip, for an entry that has PORT as an operand.
func (p *parser) skipDistribute() {
	for p.skip(); p.optional("PORT") != ""; p.skip() {
	}
}

// operandsBefore reads the options that come before the address, in any order.
func operandsBefore[T any](p *parser, table []operand[T], c *T) {
	readOperands(p, table, c, false, false)
}

// distributed reads the virtual address, or the interface's name of an IPv6 one.
func (p *parser) distributed() (netip.Addr, bool) {
	t := p.peek()
	if isAddress(t) {
		return p.address("the virtual address", anyVersion)
	}
	name, ok := p.name("the virtual address", nameMax)
	if !ok {
		return netip.Addr{}, false
	}
	var names []string
	for _, d := range p.cfg.VIPA.DVIPAs {
		if d.Name == name {
			return d.Addr, true
		}
		if d.Name != "" {
			names = append(names, d.Name)
		}
	}
	for _, k := range distributeTable() {
		names = append(names, k.word.full())
	}
	instead := "write its address, or the name that its VIPADEFINE has"
	if near := p.guess(name, names); near != "" {
		instead = "did you mean " + near + "?"
	}
	p.errorf(t, "", fmt.Sprintf("%q is neither an option nor a virtual address", t.raw), instead)
	return netip.Addr{}, false
}

func distributeTable() []operand[Distribution] {
	t := []operand[Distribution]{
		{word: "DEFINE", group: "verb", linux: "the default", take: func(_ *parser, d *Distribution) { d.Delete = false }},
		{word: "DELEte", group: "verb", linux: "ends the distribution", take: func(_ *parser, d *Distribution) { d.Delete = true },
			show: func(d *Distribution) string {
				if d.Delete {
					return "DELETE"
				}
				return "DEFINE"
			}},
		{word: "TIER1", group: "tier", values: "nothing, GRE or ENCAP", linux: "targets may be other systems, reached through a tunnel",
			take: func(p *parser, d *Distribution) { d.Tier, d.TierKind = 1, p.optional("GRE", "ENCAP") },
			show: func(d *Distribution) string {
				if d.Tier == 0 {
					return ""
				}
				return strings.TrimRight(fmt.Sprintf("TIER%d %s", d.Tier, d.TierKind), " ")
			}},
		{word: "TIER2", group: "tier", linux: "requests come from tier 1 targets", take: func(_ *parser, d *Distribution) { d.Tier = 2 }},
		{word: "DISTMethod", values: "BASEWLM, ROUNDROBIN, SERVERWLM, WEIGHTEDACTIVE, TARGCONTROLLED, HOTSTANDBY and their suboperands", linux: "how a target is chosen for a new connection",
			take: takeMethod, show: showMethod},
		{word: "SYSPLEXPorts", linux: "source ports of the address are shared out among the targets", take: func(_ *parser, d *Distribution) { d.SysplexPorts = true },
			show: func(d *Distribution) string {
				if d.SysplexPorts {
					return "SYSPLEXPORTS"
				}
				return ""
			}},
	}
	t = append(t, number("TIMEDAFFinity", 0, affinityMax, "seconds", func(d *Distribution) *uint32 { return &d.TimedAffinity }, inEffect, "a client returns to its target for so long")...)
	return append(t,
		operand[Distribution]{word: "OPTLOCAL", group: "optlocal", values: "nothing (1), or 0 to 16", linux: "connections from a target stay on it",
			take: func(p *parser, d *Distribution) {
				d.OptLocal = 1
				// The address that follows begins with a digit too.
				if t := p.peek(); t != nil && !isAddress(t) {
					if n, given := p.optionalNumber("OPTLOCAL", 0, optLocalMax, ""); given {
						d.OptLocal = int(n)
					}
				}
			},
			show: func(d *Distribution) string {
				if d.OptLocal < 0 {
					return "NOOPTLOCAL"
				}
				return fmt.Sprintf("OPTLOCAL %d", d.OptLocal)
			}},
		operand[Distribution]{word: "NOOPTLOCAL", group: "optlocal", linux: "the opposite", take: func(_ *parser, d *Distribution) { d.OptLocal = -1 }})
}

func takeMethod(p *parser, d *Distribution) {
	w, ok := p.oneOf("DISTMETHOD", "BASEWLM", "ROUNDROBIN", "SERVERWLM", "WEIGHTEDActive", targControlled, hotStandby)
	if !ok {
		return
	}
	d.Method = w
	d.AutoSwitchBack, d.HealthSwitch = w == hotStandby, w == hotStandby
	suboperands(p, methodTable(), d)
}

// methodTable has the suboperands of all methods, so that one that belongs to
// another method is told from one that does not exist.
func methodTable() []operand[Distribution] {
	only := func(o operand[Distribution], method, code string) operand[Distribution] {
		take := o.take
		o.take = func(p *parser, d *Distribution) {
			if d.Method != method {
				p.errorf(nil, code, fmt.Sprintf("%s is for DISTMETHOD %s, not %s", p.last().spelled, method, d.Method), "take it out")
			}
			take(p, d)
		}
		return o
	}
	processors := func(word keyword, linux string, lo, hi uint64, kinds ...keyword) operand[Distribution] {
		return operand[Distribution]{word: word, group: string(word), linux: linux, values: fmt.Sprintf("%s, each with %d to %d", strings.Join(fullWords(kinds), ", "), lo, hi),
			take: func(p *parser, d *Distribution) { p.processors(d, word.full(), lo, hi, kinds) }}
	}
	t := []operand[Distribution]{
		only(processors("PROCTYPE", "the shares of processor types in the weight", 0, shareMax, "CP", "ZAAP", "ZIIP"), "BASEWLM", ""),
		only(processors("PROCXCOST", "the cost of work on another processor type", 1, costMax, "ZAAP", "ZIIP"), "SERVERWLM", ""),
	}
	il := number("ILWEIGHTING", 0, ilMax, "", func(d *Distribution) *uint32 { return &d.ILWeighting }, inEffect, "how much capacity at lower importance counts")[0]
	t = append(t, only(il, "SERVERWLM", ""))
	for _, o := range flag("AUTOSWITCHBACK", "NOAUTOSWITCHBACK", func(d *Distribution) *bool { return &d.AutoSwitchBack }, inEffect, "the preferred target gets new connections again when it is back") {
		t = append(t, only(o, hotStandby, "EZZ0831I"))
	}
	for _, o := range flag("HEALTHSWITCH", "NOHEALTHSWITCH", func(d *Distribution) *bool { return &d.HealthSwitch }, inEffect, "a target in poor health is left") {
		t = append(t, only(o, hotStandby, "EZZ0831I"))
	}
	return t
}

func fullWords(ks []keyword) []string {
	var out []string
	for _, k := range ks {
		out = append(out, k.full())
	}
	return out
}

func (p *parser) processors(d *Distribution, word string, lo, hi uint64, kinds []keyword) {
	d.Proc = map[string]uint32{}
	for {
		kind := p.optional(kinds...)
		if kind == "" {
			break
		}
		if _, twice := d.Proc[kind]; twice {
			p.errorf(nil, "", fmt.Sprintf("%s of %s is written twice", kind, word), "take one out")
		}
		n, _ := p.number(kind, lo, hi, "")
		d.Proc[kind] = n
	}
	if len(d.Proc) == 0 {
		p.errorf(nil, "", word+" names no processor type", "write "+listOf(fullWords(kinds))+" and a number after it")
	}
}

func showMethod(d *Distribution) string {
	s := "DISTMETHOD " + d.Method
	var kinds []string
	for k := range d.Proc {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	if len(kinds) > 0 {
		s += map[string]string{"BASEWLM": " PROCTYPE", "SERVERWLM": " PROCXCOST"}[d.Method]
	}
	for _, k := range kinds {
		s += fmt.Sprintf(" %s %d", k, d.Proc[k])
	}
	switch d.Method {
	case "SERVERWLM":
		s += fmt.Sprintf(" ILWEIGHTING %d", d.ILWeighting)
	case hotStandby:
		for _, o := range methodTable() {
			if o.show != nil && o.word != "ILWEIGHTING" {
				s += " " + o.show(d)
			}
		}
	}
	return s
}

// distributedPorts reads p and p-p, up to 64 ports in all.
func (p *parser) distributedPorts(d *Distribution) {
	at, count := p.last(), uint32(0)
	for {
		t := p.peek()
		if t == nil || t.word == "" || t.word[0] < '0' || t.word[0] > '9' || isAddress(t) {
			break
		}
		p.next()
		from, to, isRange := strings.Cut(t.word, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || first == 0 || last < first {
			p.wrong(t, "PORT", "use ports of 1 to 65535, such as 80 or 8080-8083")
			continue
		}
		r := PortRange{uint32(first), uint32(last)}
		count += r.Last - r.First + 1
		if len(d.Ports) > portsMax {
			continue // said below
		}
		for _, old := range d.Ports {
			if old.First <= r.Last && r.First <= old.Last {
				p.errorf(t, "", fmt.Sprintf("PORT %s is in the list already", t.raw), "take it out")
			}
		}
		d.Ports = append(d.Ports, r)
	}
	switch {
	case count == 0 && len(d.Ports) == 0 && p.taken(p.peek()):
		p.errorf(at, "", "PORT has no value", "write one or more ports after it")
	case count > portsMax:
		p.errorf(at, "", fmt.Sprintf("PORT has %d ports", count), fmt.Sprintf("use at most %d, or leave PORT out to distribute all", portsMax))
	}
}

// targets reads what follows DESTIP.
func (p *parser) targets(d *Distribution) {
	at := p.last()
	if p.optional("ALL") != "" {
		d.AllTargets = true
		return
	}
	for {
		t := p.peek()
		if !isAddress(t) {
			break
		}
		target := Target{}
		a, ok := p.address("DESTIP", anyVersion)
		target.Addr = a
		p.targetOperands(d, &target)
		if !ok {
			continue
		}
		if a.Is4() != d.Addr.Is4() {
			p.errorf(t, "", fmt.Sprintf("%v is of another IP version than %v", a, d.Addr), "use the target's address of the same version")
		}
		if len(d.Targets) > targetsMax {
			continue // said already
		}
		p.sameTarget(t, d, target)
		d.Targets = append(d.Targets, target)
		if len(d.Targets) == targetsMax+1 {
			code := ""
			if d.Method == hotStandby {
				code = "EZZ0829I"
			}
			p.errorf(t, code, fmt.Sprintf("DESTIP has more than %d targets", targetsMax), "take some out")
		}
	}
	if len(d.Targets) == 0 && p.closed(p.peek()) && !p.saidAt(p.last()) {
		p.errorf(at, "", "DESTIP has no value", "write ALL, or the targets' XCF addresses, after it")
	}
}

func (p *parser) sameTarget(t *token, d *Distribution, target Target) {
	for _, old := range d.Targets {
		if old.Addr != target.Addr {
			continue
		}
		if d.Method == hotStandby {
			p.errorf(t, "EZZ0830I", fmt.Sprintf("%v is there twice, as preferred target or backup", target.Addr), "name each target once")
		} else {
			p.errorf(t, "", fmt.Sprintf("%v is there twice", target.Addr), "name each target once")
		}
		return
	}
}

// targetOperands reads what follows a target: a weight, or its part in HOTSTANDBY.
func (p *parser) targetOperands(d *Distribution, target *Target) {
	if d.Method == weightedActive {
		target.Weight = weightDefault
	}
	switch w := p.optional("WEIGHT", "PREFERRED", "BACKUP"); w {
	case "WEIGHT":
		if d.Method != weightedActive {
			p.errorf(nil, "", "WEIGHT is for DISTMETHOD WEIGHTEDACTIVE, not "+d.Method, "take it out")
		}
		if n, ok := p.number("WEIGHT", 1, weightMax, ""); ok {
			target.Weight = n
		}
	case "PREFERRED", "BACKUP":
		if d.Method != hotStandby {
			p.errorf(nil, "EZZ0831I", fmt.Sprintf("%s is for DISTMETHOD HOTSTANDBY, not %s", w, d.Method), "take it out")
		}
		target.Preferred, target.Backup = w == "PREFERRED", w == "BACKUP"
		if target.Backup {
			target.Rank = 1
			if t := p.peek(); t != nil && !isAddress(t) {
				if n, given := p.optionalNumber("BACKUP", 1, rankMax, ""); given {
					target.Rank = n
				}
			}
		}
	}
}

// checkDistribution is what can be said once all of a VIPADISTRIBUTE is read.
func (p *parser) checkDistribution(at *token, d *Distribution) {
	if d.Delete {
		return
	}
	if !p.known.has(d.Addr.String()) {
		p.errorf(at, "", fmt.Sprintf("%v is not defined before", d.Addr), "write a VIPADEFINE or VIPABACKUP for it above")
	}
	if d.Method == hotStandby {
		p.checkHotStandby(at, d)
	}
	switch {
	case d.Method == targControlled && d.Tier != 1:
		p.errorf(at, "", "DISTMETHOD TARGCONTROLLED needs TIER1", "add TIER1, or choose another method")
	case d.TierKind != "" && (d.Method == "BASEWLM" || d.Method == "SERVERWLM"):
		p.errorf(at, "", fmt.Sprintf("DISTMETHOD %s cannot weigh TIER1 %s targets", d.Method, d.TierKind), "use ROUNDROBIN, WEIGHTEDACTIVE or TARGCONTROLLED")
	}
	for _, old := range p.cfg.VIPA.Distributions {
		if old.Addr != d.Addr || old.Delete {
			continue
		}
		if old.SysplexPorts != d.SysplexPorts && d.SysplexPorts {
			p.errorf(at, "", fmt.Sprintf("SYSPLEXPORTS is not on the first VIPADISTRIBUTE of %v", d.Addr), "write it there")
		}
		return
	}
}

func (p *parser) checkHotStandby(at *token, d *Distribution) {
	if d.AllTargets {
		p.errorf(at, "EZZ0165I", "DESTIP ALL cannot be used with DISTMETHOD HOTSTANDBY", "name one PREFERRED target and the BACKUP targets")
		return
	}
	preferred, backups := 0, 0
	for _, t := range d.Targets {
		if t.Preferred {
			preferred++
		} else if t.Backup {
			backups++
		} else {
			p.errorf(at, "EZZ0826I", fmt.Sprintf("%v is neither PREFERRED nor BACKUP", t.Addr), "say which it is")
		}
	}
	if len(d.Targets) > 0 && (preferred != 1 || backups == 0) {
		p.errorf(at, "EZZ0827I", fmt.Sprintf("HOTSTANDBY has %d PREFERRED and %d BACKUP targets", preferred, backups), "name exactly one PREFERRED and at least one BACKUP")
	}
}

func (p *parser) saidAt(t *token) bool {
	for _, m := range p.msgs.List {
		if m.order == t.order && m.Severity == Error && m.Pos == t.pos {
			return true
		}
	}
	return false
}
