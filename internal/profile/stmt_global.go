package profile

import (
	"fmt"
	"strconv"
	"strings"
)

// Ranges of GLOBALCONFIG. Those that zos.md §1.3 does not give are chosen so
// that no sensible value is refused, and are on the statement's page.
const (
	limitMax       = 1<<32 - 1
	recordsMax     = 65535
	timerSecsMin   = 10
	timerSecsMax   = 3600
	pollSecsMax    = 180
	groupMin       = 2
	groupMax       = 31
	bindFirstMin   = 1024
	bindCountMax   = 64512
	portMax        = 65535
	ioPriorities   = 4
	controlForward = "FWD"
)

func newGlobal() *Global {
	return &Global{AdjustDVIPAMSS: "AUTO", AutoIQDX: "ALLTRAFFIC", MaxRecs: 100, SysplexWLMPoll: 60, Monitor: newMonitor()}
}

func newMonitor() SysplexMonitor { return SysplexMonitor{TimerSecs: 60, Join: "NODELAYJOIN"} }

func parseGlobal(p *parser) {
	at := p.last()
	if p.cfg.Global == nil {
		p.cfg.Global = newGlobal()
	}
	operands(p, globalTable(), p.cfg.Global)
	g := p.cfg.Global
	if g.ZIIPMultiWrite && !g.IQDMultiWrite {
		p.warnf(at, "", "ZIIP IQDIOMULTIWRITE does nothing without IQDMULTIWRITE", "add IQDMULTIWRITE")
	}
	if m := g.Monitor; m.AutoRejoin && !m.Recovery {
		p.errorf(at, "", "SYSPLEXMONITOR AUTOREJOIN needs RECOVERY", "add RECOVERY, or write NOAUTOREJOIN")
	}
	if m := g.Monitor; m.DynRoute && !m.MonInterface {
		p.errorf(at, "", "SYSPLEXMONITOR DYNROUTE needs MONINTERFACE", "add MONINTERFACE, or write NODYNROUTE")
	}
}

func globalTable() []operand[Global] {
	const noXCF = "Linux has no HiperSockets"
	t := choice("ADJUSTDVipamss", func(g *Global) *string { return &g.AdjustDVIPAMSS }, later, "lowers the MSS of connections whose packets get a GRE header", "AUTO", "ALL", "NONE")
	t = append(t, autoIQDX()...)
	t = append(t, limitOperand("ECSALimit", func(g *Global) *uint32 { return &g.ECSALimit }))
	t = append(t, explicitBind()...)
	t = append(t, flag("IQDMULTIWRITE", "NOIQDMULTIWRITE", func(g *Global) *bool { return &g.IQDMultiWrite }, noMeaning, noXCF)...)
	t = append(t, number("IQDVLANid", 1, vlanMax, "", func(g *Global) *uint32 { return &g.IQDVLANID }, noMeaning, noXCF)...)
	t = append(t, operand[Global]{word: "MAXRECS", values: fmt.Sprintf("1 to %d, or * for all", recordsMax), effect: later, linux: "how many records a display shows",
		take: func(p *parser, g *Global) {
			if p.optional("*") != "" {
				g.MaxRecs = 0
			} else if n, ok := p.number("MAXRECS", 1, recordsMax, "records, or *"); ok {
				g.MaxRecs = n
			}
		},
		show: func(g *Global) string {
			if g.MaxRecs == 0 {
				return "MAXRECS *"
			}
			return fmt.Sprintf("MAXRECS %d", g.MaxRecs)
		}})
	t = append(t, flag("MLSCHKTERMinate", "NOMLSCHKTERMinate", func(g *Global) *bool { return &g.MLSCheckTerminate }, noMeaning, "Linux has no multilevel security of this kind")...)
	t = append(t, limitOperand("POOLLimit", func(g *Global) *uint32 { return &g.PoolLimit }))
	t = append(t, flag("SEGMENTATIONOFFLoad", "NOSEGMENTATIONOFFLoad", func(g *Global) *bool { return &g.SegmentationOffload }, later, "large send; IPCONFIG and IPCONFIG6 say it per IP version")...)
	t = append(t, monitorOperand())
	t = append(t, number("SYSPLEXWLMPoll", 1, pollSecsMax, "seconds", func(g *Global) *uint32 { return &g.SysplexWLMPoll }, later, "how often the members' weights are asked for")...)
	t = append(t, flag("TCPIPStatistics", "NOTCPIPStatistics", func(g *Global) *bool { return &g.TCPIPStatistics }, noMeaning, "statistics are shown by netstat at any time")...)
	t = append(t, priorityOperands()...)
	t = append(t, operand[Global]{word: "XCFGRPid", values: fmt.Sprintf("%d to %d", groupMin, groupMax), effect: later, linux: "names the group that this host joins",
		take: func(p *parser, g *Global) {
			if n, ok := p.number("XCFGRPID", groupMin, groupMax, ""); ok {
				g.XCFGroupID = fmt.Sprintf("%02d", n)
			}
		},
		show: func(g *Global) string { return withWord("XCFGRPID", g.XCFGroupID) }})
	t = append(t, flag("ZERT", "NOZERT", func(g *Global) *bool { return &g.ZERT }, noMeaning, "Linux has no such discovery of encrypted connections")...)
	return append(t, ziipOperand())
}

// limitOperand is a limit of storage: a number with K or M, 0K for none.
func limitOperand(word keyword, field func(*Global) *uint32) operand[Global] {
	return operand[Global]{word: word, values: "a size with K or M; 0K is no limit", effect: noMeaning, linux: "the kernel limits socket memory by itself (net.ipv4.tcp_mem)",
		take: func(p *parser, g *Global) {
			if n, ok := p.size(word.full(), 0, limitMax); ok {
				*field(g) = n
			}
		},
		show: func(g *Global) string {
			if n := *field(g); n%1024 == 0 && n != 0 {
				return word.full() + " " + sizeText(uint64(n))
			}
			return word.full() + " 0K"
		}}
}

func autoIQDX() []operand[Global] {
	const why = "Linux has no HiperSockets"
	return []operand[Global]{
		{word: "AUTOIQDX", group: "AUTOIQDX", values: "ALLTRAFFIC, NOLARGEDATA", effect: noMeaning, linux: why,
			take: func(p *parser, g *Global) {
				g.AutoIQDX = "ALLTRAFFIC"
				if w := p.optional("ALLTRAFFIC", "NOLARGEDATA"); w != "" {
					g.AutoIQDX = w
				}
			},
			show: func(g *Global) string {
				if g.AutoIQDX == "NO" {
					return "NOAUTOIQDX"
				}
				return "AUTOIQDX " + g.AutoIQDX
			}},
		{word: "NOAUTOIQDX", group: "AUTOIQDX", effect: noMeaning, linux: why, take: func(_ *parser, g *Global) { g.AutoIQDX = "NO" }},
	}
}

func explicitBind() []operand[Global] {
	return []operand[Global]{
		{word: "EXPLICITBINDPORTRANGE", group: "bind", values: fmt.Sprintf("first port %d to %d, count 1 to %d", bindFirstMin, portMax, bindCountMax),
			effect: later, linux: "ports that all members of a group share out",
			take: func(p *parser, g *Global) {
				first, ok := p.number("EXPLICITBINDPORTRANGE first port", bindFirstMin, portMax, "")
				if !ok {
					p.optionalNumber("count", 0, limitMax, "")
					return
				}
				count, ok := p.number("EXPLICITBINDPORTRANGE count", 1, bindCountMax, "ports")
				if !ok {
					return
				}
				if first+count-1 > portMax {
					p.errorf(nil, "", fmt.Sprintf("%d ports from %d on go beyond %d", count, first, portMax), fmt.Sprintf("use a count of at most %d", portMax-first+1))
					return
				}
				g.BindFirst, g.BindCount = first, count
			},
			show: func(g *Global) string {
				if g.BindCount == 0 {
					return "NOEXPLICITBINDPORTRANGE"
				}
				return fmt.Sprintf("EXPLICITBINDPORTRANGE %d %d", g.BindFirst, g.BindCount)
			}},
		{word: "NOEXPLICITBINDPORTRANGE", group: "bind", linux: "the opposite", take: func(_ *parser, g *Global) { g.BindFirst, g.BindCount = 0, 0 }},
	}
}

func ziipOperand() operand[Global] {
	return operand[Global]{word: "ZIIP", values: "IPSECURITY, NOIPSECURITY, IQDIOMULTIWRITE, NOIQDIOMULTIWRITE", effect: noMeaning, linux: "all CPUs of a Linux host are alike",
		take: func(p *parser, g *Global) { suboperands(p, ziipTable(), g) },
		show: func(g *Global) string { return "ZIIP " + strings.Join(shown(ziipTable(), g, g), " ") }}
}

func ziipTable() []operand[Global] {
	t := flag("IPSECURITY", "NOIPSECURITY", func(g *Global) *bool { return &g.ZIIPIPSecurity }, inEffect, "nothing")
	return append(t, flag("IQDIOMULTIWRITE", "NOIQDIOMULTIWRITE", func(g *Global) *bool { return &g.ZIIPMultiWrite }, inEffect, "nothing")...)
}

func monitorOperand() operand[Global] {
	return operand[Global]{word: "SYSPLEXMONitor", values: "the suboperands below", effect: later, linux: "what this host does when it finds itself unfit for its virtual addresses",
		take: func(p *parser, g *Global) { suboperands(p, monitorTable(), &g.Monitor) },
		show: func(g *Global) string {
			return "SYSPLEXMONITOR " + strings.Join(shown(monitorTable(), &g.Monitor, &g.Monitor), " ")
		}}
}

func monitorTable() []operand[SysplexMonitor] {
	t := number("TIMERSECS", timerSecsMin, timerSecsMax, "seconds", func(m *SysplexMonitor) *uint32 { return &m.TimerSecs }, inEffect, "how long a fault may last")
	t = append(t, flag("RECOVERY", "NORECOVERY", func(m *SysplexMonitor) *bool { return &m.Recovery }, inEffect, "leave the group, so that another member takes over")...)
	t = append(t, flag("AUTOREJOIN", "NOAUTOREJOIN", func(m *SysplexMonitor) *bool { return &m.AutoRejoin }, inEffect, "join again when the fault is over; needs RECOVERY")...)
	for _, w := range []keyword{"NODELAYJOIN", "DELAYJOIN", "NOJOIN"} {
		o := operand[SysplexMonitor]{word: w, group: "join", linux: "when the group is joined at the start", take: func(_ *parser, m *SysplexMonitor) { m.Join = w.full() }}
		if w == "NODELAYJOIN" {
			o.show = func(m *SysplexMonitor) string { return m.Join }
		}
		t = append(t, o)
	}
	t = append(t, flag("MONINTERFACE", "NOMONINTERFACE", func(m *SysplexMonitor) *bool { return &m.MonInterface }, inEffect, "all interfaces with MONSYSPLEX down is a fault")...)
	t = append(t, flag("DYNROUTE", "NODYNROUTE", func(m *SysplexMonitor) *bool { return &m.DynRoute }, inEffect, "no learned route over them is a fault; needs MONINTERFACE")...)
	t = append(t, flag("DELAYJOINIPSEC", "NODELAYJOINIPSEC", func(m *SysplexMonitor) *bool { return &m.DelayJoinIPSec }, inEffect, "join when IPsec is ready")...)
	return append(t, flag("MONIPSEC", "NOMONIPSEC", func(m *SysplexMonitor) *bool { return &m.MonIPSec }, inEffect, "no IPsec is a fault")...)
}

// defaultPriorities is the map when WLMPRIORITYQ is written alone (zos.md §1.3).
func defaultPriorities() PriorityQ {
	return PriorityQ{"0": 1, "1": 2, "2": 3, "3": 3, "4": 4, "5": 4, "6": 4, controlForward: 4}
}

func controlValues() []keyword { return []keyword{"0", "1", "2", "3", "4", "5", "6", controlForward} }

func priorityOperands() []operand[Global] {
	return []operand[Global]{
		{word: "WLMPRIORITYQ", group: "wlm", values: "IOPRI1 to IOPRI4, each with control values 0 to 6 and FWD", effect: later, linux: "which of four outbound bands traffic goes to",
			take: takePriorities, show: showPriorities},
		{word: "NOWLMPRIORITYQ", group: "wlm", linux: "the opposite", take: func(_ *parser, g *Global) { g.PriorityQ = nil }},
	}
}

// takePriorities reads IOPRI1 to IOPRI4. A value that an explicit map leaves out
// goes to queue 4: what the original does with it is not known.
func takePriorities(p *parser, g *Global) {
	given, first := PriorityQ{}, map[string]*token{}
	queues := map[string]*token{}
	for {
		t := p.peek()
		if t == nil || !strings.HasPrefix(t.word, "IOPRI") {
			break
		}
		p.next()
		t.spelled = t.word
		queue, err := strconv.Atoi(strings.TrimPrefix(t.word, "IOPRI"))
		if err != nil || queue < 1 || queue > ioPriorities || len(t.word) != len("IOPRI")+1 {
			p.errorf(t, "", t.raw+" is no queue", "use IOPRI1, IOPRI2, IOPRI3 or IOPRI4")
		}
		if before := queues[t.word]; before != nil {
			p.errorf(t, "", fmt.Sprintf("%s is written twice, first at line %d", t.word, before.pos.Line), "put its values together")
		}
		queues[t.word] = t
		p.controls(t, queue, given, first)
	}
	if len(queues) == 0 {
		g.PriorityQ = defaultPriorities()
		return
	}
	for _, k := range controlValues() {
		if given[k.full()] == 0 {
			given[k.full()] = ioPriorities
		}
	}
	g.PriorityQ = given
}

// controls reads the control values of one queue.
func (p *parser) controls(queue *token, n int, given PriorityQ, first map[string]*token) {
	read := 0
	for {
		w := p.optional(controlValues()...)
		if w == "" {
			t := p.peek()
			isNumber := t != nil && t.word != "" && t.word[0] >= '0' && t.word[0] <= '9'
			if !isNumber && (read > 0 || p.taken(t) || strings.HasPrefix(t.word, "IOPRI")) {
				break
			}
			p.next()
			p.wrong(t, queue.word, "use control values 0 to 6 and FWD")
			read++
			continue
		}
		read++
		if before := first[w]; before != nil {
			p.errorf(nil, "", fmt.Sprintf("control value %s is given to two queues, first at line %d", w, before.pos.Line), "give each value once")
			continue
		}
		first[w], given[w] = p.last(), n
	}
	if read == 0 {
		p.errorf(queue, "", queue.word+" has no control values", "write values of 0 to 6 and FWD after it")
	}
}

func showPriorities(g *Global) string {
	if g.PriorityQ == nil {
		return "NOWLMPRIORITYQ"
	}
	s := "WLMPRIORITYQ"
	for q := 1; q <= ioPriorities; q++ {
		values := ""
		for _, k := range controlValues() {
			if g.PriorityQ[k.full()] == q {
				values += " " + k.full()
			}
		}
		if values != "" {
			s += fmt.Sprintf(" IOPRI%d%s", q, values)
		}
	}
	return s
}
