package profile

import "fmt"

const jobMax = 8

// parsePort reads the entries of PORT; each begins with a number or UNRSV.
func parsePort(p *parser) {
	p.ports(func(t *token) {
		if t.word == "UNRSV" {
			p.next()
			p.begin(t, "UNRSV", roleEntry)
			p.unreserved(t)
			return
		}
		t.role = roleEntry
		n, ok := p.number("the port", 1, portMax, "")
		e := Port{First: n, Count: 1, DelayAcks: true, token: t}
		p.portEntry(e, ok)
	}, "UNRSV")
}

func parsePortRange(p *parser) {
	p.ports(func(t *token) {
		t.role = roleEntry
		p.words = []keyword{"TCP", "UDP"}
		first, ok := p.number("the first port", 1, portMax, "")
		count, counted := p.number("the number of ports", 1, portMax, "")
		p.words = nil
		if ok && counted && first+count-1 > portMax {
			p.errorf(t, "", fmt.Sprintf("%d ports from %d on go beyond %d", count, first, portMax), fmt.Sprintf("use at most %d", portMax-first+1))
			counted = false
		}
		p.portEntry(Port{Range: true, First: first, Count: count, DelayAcks: true, token: t}, ok && counted)
	})
}

// ports reads entries up to the next statement. What begins no entry is one
// error, and skipped up to the next entry.
func (p *parser) ports(read func(*token), others ...keyword) {
	begins := func(t *token) bool {
		if t.word == "" {
			return false
		}
		for _, k := range others {
			if k.is(t.word) {
				return true
			}
		}
		return t.word[0] >= '0' && t.word[0] <= '9' || t.unresolved
	}
	for n := 0; ; n++ {
		t := p.peek()
		if p.closed(t) {
			if n == 0 {
				p.errorf(nil, "", p.statement+" has no entries", "write a port, TCP or UDP, and a program's name")
			}
			return
		}
		if !p.count(t) {
			p.skip()
			return
		}
		if begins(t) {
			read(t)
		} else {
			p.next()
			names := []keyword{"TCP", "UDP"}
			for _, o := range portTable() {
				names = append(names, o.word)
			}
			p.unknown(t, "an entry of "+p.statement, append(names, others...))
		}
		for t := p.peek(); !p.closed(t) && !begins(t); t = p.peek() {
			if !p.saidAt(p.last()) {
				p.unknown(t, "an operand here", tableWords(portTable()))
			}
			p.next()
		}
	}
}

// tableWords lists the words of a table.
func tableWords[T any](table []operand[T]) []keyword {
	var out []keyword
	for _, o := range table {
		out = append(out, o.word)
	}
	return out
}

// portEntry reads what is common to PORT and PORTRANGE after the numbers.
func (p *parser) portEntry(e Port, ok bool) {
	var known bool
	if e.Protocol, known = p.oneOf("the protocol", "TCP", "UDP"); !known {
		return
	}
	if e.Job, known = p.name("the program's name", jobMax); !known {
		return
	}
	if e.Job == "AUTHPORT" && !e.Range {
		p.errorf(nil, "", "AUTHPORT is for PORTRANGE", "name a program, or write RESERVED")
	}
	p.portOptions(&e)
	if e.Protocol == "UDP" && e.Share != "" {
		p.errorf(e.token, "", e.Share+" is for TCP", "take it out")
	}
	if ok && !p.overlaps(&e) {
		p.cfg.Ports = append(p.cfg.Ports, e)
	}
}

// portOptions reads the options, which have a fixed order.
func (p *parser) portOptions(e *Port) { suboperandsInOrder(p, portTable(), e) }

func suboperandsInOrder[T any](p *parser, table []operand[T], c *T) {
	readOperands(p, table, c, false, true)
}

func portTable() []operand[Port] {
	t := []operand[Port]{{word: "NOAUTOLog", linux: "AUTOLOG does not restart a program for this port",
		take: func(_ *parser, e *Port) { e.NoAutolog = true },
		show: func(e *Port) string {
			if e.NoAutolog {
				return "NOAUTOLOG"
			}
			return ""
		}}}
	t = append(t, flag("DELAYAcks", "NODELAYAcks", func(e *Port) *bool { return &e.DelayAcks }, inEffect, "acknowledgements of the port's connections")...)
	for _, w := range []keyword{"SHAREPORT", "SHAREPORTWLM"} {
		o := operand[Port]{word: w, group: "share", linux: "several listeners share the port", take: func(_ *parser, e *Port) { e.Share = w.full() }}
		if w == "SHAREPORT" {
			o.show = func(e *Port) string { return e.Share }
		}
		t = append(t, o)
	}
	t = append(t, operand[Port]{word: "BIND", values: "an address", linux: "a bind to any address becomes one to this",
		take: func(p *parser, e *Port) { e.Bind, _ = p.address("BIND", anyVersion) },
		show: func(e *Port) string {
			if !e.Bind.IsValid() {
				return ""
			}
			return "BIND " + e.Bind.String()
		}})
	t = append(t, named("SAF", jobMax, func(e *Port) *string { return &e.SAF }, inEffect, "Linux has no such security product; use file capabilities")...)
	for _, w := range []keyword{"NOSMC", "SMC"} {
		o := operand[Port]{word: w, group: "smc", linux: "nothing: connections speak TCP", take: func(_ *parser, e *Port) { e.SMC = w.full() }}
		if w == "NOSMC" {
			o.show = func(e *Port) string { return e.SMC }
		}
		t = append(t, o)
	}
	return t
}

// overlaps reports that a port is taken by an entry of the other statement:
// what is written first stays (zos.md §1.7).
func (p *parser) overlaps(e *Port) bool {
	for i := range p.cfg.Ports {
		old := &p.cfg.Ports[i]
		if old.Unreserved || old.Protocol != e.Protocol || old.First >= e.First+e.Count || e.First >= old.First+old.Count {
			continue
		}
		switch {
		case old.Range != e.Range || e.Range:
			p.errorf(e.token, "", fmt.Sprintf("%s %d is reserved at line %d already", e.Protocol, max(old.First, e.First), old.token.pos.Line), "take it out of one of the two")
			return true
		case old.Job == e.Job && old.Bind == e.Bind:
			p.errorf(e.token, "", fmt.Sprintf("%s %d for %s is there already, at line %d", e.Protocol, e.First, e.Job, old.token.pos.Line), "take one out")
			return true
		}
	}
	return false
}

// unreserved reads UNRSV: who may use ports that no entry reserves.
func (p *parser) unreserved(t *token) {
	e := Port{Unreserved: true, DelayAcks: true, token: t}
	var ok bool
	if e.Protocol, ok = p.oneOf("UNRSV", "TCP", "UDP"); !ok {
		return
	}
	if p.optional("*") != "" {
		e.Job = "*"
	} else if e.Job, ok = p.name("the program's name", jobMax); !ok {
		return
	}
	e.When = "WHENLISTEN"
	if e.Protocol == "UDP" {
		e.When = "WHENBIND"
	}
	suboperandsInOrder(p, unreservedTable(), &e)
	if e.Deny && e.SAF != "" {
		p.errorf(t, "EZZ0356I", "DENY and SAF exclude each other", "take one out")
	}
	if e.Protocol == "UDP" && e.When == "WHENLISTEN" {
		p.errorf(t, "", "WHENLISTEN is for TCP: UDP has no listen", "write WHENBIND, or leave it out")
		return
	}
	for _, old := range p.cfg.Ports {
		if old.Unreserved && old.Protocol == "TCP" && e.Protocol == "TCP" && old.When != e.When {
			p.errorf(t, "EZZ0147I", fmt.Sprintf("UNRSV TCP is %s here and %s at line %d", e.When, old.When, old.token.pos.Line), "use one of the two on all UNRSV TCP entries")
			break
		}
	}
	p.cfg.Ports = append(p.cfg.Ports, e)
}

func unreservedTable() []operand[Port] {
	t := []operand[Port]{
		{word: "DENY", linux: "the program may not", take: func(_ *parser, e *Port) { e.Deny = true },
			show: func(e *Port) string {
				if e.Deny {
					return "DENY"
				}
				return ""
			}}}
	t = append(t, named("SAF", jobMax, func(e *Port) *string { return &e.SAF }, inEffect, "as for a port")...)
	for _, w := range []keyword{"WHENLISTEN", "WHENBIND"} {
		o := operand[Port]{word: w, group: "when", linux: "what is checked: listen or bind", take: func(_ *parser, e *Port) { e.When = w.full() }}
		if w == "WHENLISTEN" {
			o.show = func(e *Port) string { return e.When }
		}
		t = append(t, o)
	}
	return t
}
