package profile

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of PKTTRACE (zos.md §1.7).
const (
	protocolMax   = 255
	reasonMax     = 65535
	abbrevDefault = 200
	abbrevMax     = 65535
	tracesMax     = 256
)

func parseTrace(p *parser) {
	at := p.last()
	t := Trace{Action: "ON", Interface: "*", Protocol: "*", Addr: "*", Discard: "NONE"}
	operands(p, traceTable(), &t)
	if t.Port != 0 && (t.SrcPort != 0 || t.DestPort != 0) {
		p.errorf(at, "EZZ0356I", "PORTNUM excludes SRCPORT and DESTPORT", "use PORTNUM for either, or the two for each")
	}
	if p.cfg.Traces = append(p.cfg.Traces, t); len(p.cfg.Traces) == tracesMax+1 {
		p.errorf(at, "", fmt.Sprintf("more than %d PKTTRACE statements", tracesMax), "join some of them")
	}
}

func traceTable() []operand[Trace] {
	var t []operand[Trace]
	for _, w := range []keyword{"ON", "OFF", "CLEAR"} {
		o := operand[Trace]{word: w, group: "action", linux: "begins, ends, or forgets filters", take: func(_ *parser, t *Trace) { t.Action = w.full() }}
		if w == "ON" {
			o.show = func(t *Trace) string { return t.Action }
		}
		t = append(t, o)
	}
	for _, w := range []keyword{"INTFName", "LINKName"} {
		o := operand[Trace]{word: w, group: "interface", values: "*, or an interface's name", linux: "the device that is traced", take: takeTraceInterface}
		if w == "INTFName" {
			o.show = func(t *Trace) string { return "INTFNAME " + plain(t.Interface) }
		}
		t = append(t, o)
	}
	t = append(t,
		operand[Trace]{word: "PROT", values: "*, TCP, UDP, ICMP, ICMPV6, or 0 to 255", linux: "a filter", take: takeProtocol, show: func(t *Trace) string { return "PROT " + t.Protocol }},
		operand[Trace]{word: "IPaddr", values: "*, a, a/n, or a and a mask", linux: "a filter", take: takeTraceAddress, show: func(t *Trace) string { return "IPADDR " + t.Addr }})
	for _, o := range []struct {
		word  keyword
		field func(*Trace) *uint32
	}{
		{"PORTNUM", func(t *Trace) *uint32 { return &t.Port }},
		{"SRCPort", func(t *Trace) *uint32 { return &t.SrcPort }},
		{"DESTport", func(t *Trace) *uint32 { return &t.DestPort }},
	} {
		t = append(t, tracePort(o.word, o.field))
	}
	return append(t,
		operand[Trace]{word: "DISCard", values: "NONE, ALL, *, or a reason's number", linux: "packets that were dropped, and why", take: takeDiscard, show: func(t *Trace) string { return "DISCARD " + t.Discard }},
		operand[Trace]{word: "FULL", group: "length", linux: "the default: whole packets", take: func(_ *parser, t *Trace) { t.Length = 0 }},
		operand[Trace]{word: "ABBREV", group: "length", equals: true, values: fmt.Sprintf("nothing (%d), or =n with 1 to %d bytes", abbrevDefault, abbrevMax), linux: "the first bytes of each packet", take: takeAbbrev,
			show: func(t *Trace) string {
				if t.Length == 0 {
					return "FULL"
				}
				return fmt.Sprintf("ABBREV=%d", t.Length)
			}})
}

func takeTraceInterface(p *parser, t *Trace) {
	word := p.last().spelled
	if p.optional("*") != "" {
		t.Interface = "*"
		return
	}
	where := p.peek()
	if n, ok := p.name(word, nameMax); ok {
		t.Interface = n
		if !p.known.has(n) {
			p.notDefined(where, n)
		}
	}
}

func takeProtocol(p *parser, t *Trace) {
	if w := p.optional("*", "TCP", "UDP", "ICMP", "ICMPV6"); w != "" {
		t.Protocol = w
		return
	}
	if n, ok := p.number("PROT", 0, protocolMax, "or *, TCP, UDP, ICMP, ICMPV6"); ok {
		t.Protocol = strconv.FormatUint(uint64(n), 10)
	}
}

func takeTraceAddress(p *parser, t *Trace) {
	if p.optional("*") != "" {
		t.Addr = "*"
		return
	}
	a, bits, ok := p.prefixed("IPADDR", anyVersion)
	if !ok {
		return
	}
	if bits < 0 {
		bits = a.BitLen()
	}
	t.Addr = fmt.Sprintf("%v/%d", a, bits)
}

func tracePort(word keyword, field func(*Trace) *uint32) operand[Trace] {
	return operand[Trace]{word: word, values: "*, or 1 to 65535", linux: "a filter",
		take: func(p *parser, t *Trace) {
			if p.optional("*") != "" {
				*field(t) = 0
			} else if n, ok := p.number(word.full(), 1, portMax, "or *"); ok {
				*field(t) = n
			}
		},
		show: func(t *Trace) string {
			if *field(t) == 0 {
				return word.full() + " *"
			}
			return fmt.Sprintf("%s %d", word.full(), *field(t))
		}}
}

func takeDiscard(p *parser, t *Trace) {
	switch w := p.optional("NONE", "ALL", "*"); w {
	case "":
		if n, ok := p.number("DISCARD", 1, reasonMax, "or NONE, ALL, *"); ok {
			t.Discard = strconv.FormatUint(uint64(n), 10)
		}
	case "*":
		t.Discard = "ALL"
	default:
		t.Discard = w
	}
}

// takeAbbrev reads the length from the operand itself: ABBREV=80.
func takeAbbrev(p *parser, t *Trace) {
	self := p.last()
	t.Length = abbrevDefault
	_, length, given := strings.Cut(self.word, "=")
	if !given {
		return
	}
	n, err := strconv.ParseUint(length, 10, 32)
	if err != nil || n < 1 || n > abbrevMax {
		p.wrong(self, "the length in", "use "+ranged(1, abbrevMax, "bytes"))
		return
	}
	t.Length = uint32(n)
}
