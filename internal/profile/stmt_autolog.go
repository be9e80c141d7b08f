package profile

import "fmt"

// Limits of AUTOLOG (zos.md §1.7).
const (
	waitMax      = 30
	waitDefault  = 5
	parmMax      = 115
	programsMax  = 256
	programNames = 8
)

// parseAutolog reads AUTOLOG; its entries begin with a program's name.
func parseAutolog(p *parser) {
	open := p.last()
	a := p.cfg.Autolog
	if a == nil {
		a = &Autolog{}
		p.cfg.Autolog = a
	}
	a.WaitMin = waitDefault
	if n, given := p.optionalNumber("the wait", 0, waitMax, "minutes"); given {
		a.WaitMin = n
	}
	p.end = "ENDAUTOLOG"
	defer func() { p.end = "" }()
	for {
		t := p.peek()
		switch {
		case t == nil || p.statementOf(t) != nil:
			if p.missingEnd(open, t) {
				return
			}
		case p.end.is(t.word):
			p.next()
			p.begin(t, p.end, roleEnd)
			return
		default:
			t.role = roleEntry
			if !p.count(t) {
				p.at = len(p.tokens)
				return
			}
			p.program(a)
		}
	}
}

func (p *parser) program(a *Autolog) {
	at := p.peek()
	for _, o := range procedureTable() {
		if o.word.is(at.word) {
			p.errorf(at, "", at.raw+" comes without a program's name before it", "write the program's name first")
			p.next()
			for t := p.peek(); t != nil && !p.closed(t) && t.quoted; t = p.peek() {
				p.next()
			}
			return
		}
	}
	var r Procedure
	name, ok := p.name("the program's name", programNames)
	if !ok {
		return
	}
	r.Name = name
	suboperands(p, procedureTable(), &r)
	for _, old := range a.Programs {
		if old.Name == r.Name && old.Job == r.Job {
			p.errorf(at, "", r.Name+" is in the list already", "take it out, or give it another JOBNAME")
		}
	}
	if len(a.Programs) == programsMax {
		p.errorf(at, "", fmt.Sprintf("more than %d programs", programsMax), "leave starting them to systemd")
	}
	a.Programs = append(a.Programs, r)
}

func procedureTable() []operand[Procedure] {
	t := named("JOBNAME", programNames, func(r *Procedure) *string { return &r.Job }, inEffect, "the name by which ports are reserved")
	return append(t,
		operand[Procedure]{word: "PARMSTRING", values: fmt.Sprintf("a quoted string of up to %d bytes, case as written", parmMax), linux: "arguments of the program",
			take: func(p *parser, r *Procedure) {
				t, ok := p.value("PARMSTRING", "a quoted string")
				switch {
				case !ok:
				case !t.quoted:
					p.wrong(t, "PARMSTRING", `put it in quotes: "`+t.raw+`"`)
				case len(t.text) > parmMax:
					p.errorf(t, "", fmt.Sprintf("PARMSTRING has %d bytes", len(t.text)), fmt.Sprintf("use at most %d", parmMax))
				default:
					r.Parameters = t.text
				}
			},
			show: func(r *Procedure) string {
				if r.Parameters == "" {
					return ""
				}
				return `PARMSTRING "` + r.Parameters + `"`
			}},
		operand[Procedure]{word: "DELAYSTART", values: "nothing (DVIPA), DVIPA, TTLS or both", linux: "the program is started when virtual addresses, or TLS, are ready",
			take: func(p *parser, r *Procedure) {
				for w := p.optional("DVIPA", "TTLS"); w != ""; w = p.optional("DVIPA", "TTLS") {
					r.DelayDVIPA, r.DelayTTLS = r.DelayDVIPA || w == "DVIPA", r.DelayTTLS || w == "TTLS"
				}
				// Unconfirmed in zos.md §1.7: alone, it waits for virtual addresses.
				r.DelayDVIPA = r.DelayDVIPA || !r.DelayTTLS
			},
			show: func(r *Procedure) string {
				s := ""
				if r.DelayDVIPA {
					s += " DVIPA"
				}
				if r.DelayTTLS {
					s += " TTLS"
				}
				if s == "" {
					return ""
				}
				return "DELAYSTART" + s
			}})
}
