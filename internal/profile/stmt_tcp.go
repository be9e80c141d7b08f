package profile

import "fmt"

// Ranges of TCPCONFIG. CONNECTTIMEOUT's and CONNECTINITINTERVAL's are the
// original's (zos.md §1.5); the others hold every value that Linux could be
// given, and are on the statement's page.
const (
	bufferMin       = 256
	bufferMax       = 16 << 20
	minutesMax      = 35791 // the most milliseconds in 31 bits, as minutes
	probesMax       = 127   // TCP_KEEPCNT takes no more (include/net/tcp.h, MAX_TCP_KEEPCNT)
	intervalMax     = 32767 // MAX_TCP_KEEPINTVL, seconds
	finWaitMax      = 3600
	timeWaitMax     = 120
	duplicatesMax   = 2048
	connectMin      = 5
	connectMax      = 190
	initIntervalMin = 100
	initIntervalMax = 3000
	retransmitMax   = 999
	attemptsMax     = 255
	rttMax          = 999
)

func newTCP() *TCP {
	return &TCP{SendBuffer: 65536, ReceiveBuffer: 65536, ReceiveBufferMax: 256 << 10, SendBufferMax: 256 << 10, DelayAcks: "DELAYACKS",
		IntervalMin: 120, KeepAliveProbes: 10, KeepAliveProbeInterval: 75, FinWait2Time: 600, TimeWaitInterval: 60, FRRThreshold: 3,
		ConnectTimeout: 75, ConnectInitInterval: 3000, MaximumRetransmitTime: 120, RetransmitAttempts: 15,
		EphemeralFirst: 1024, EphemeralLast: portMax, Timestamp: true, Nagle: true}
}

func parseTCP(p *parser) {
	at := p.last()
	if p.cfg.TCP == nil {
		p.cfg.TCP = newTCP()
	}
	operands(p, tcpTable(), p.cfg.TCP)
	c := p.cfg.TCP
	if c.ReceiveBuffer > c.ReceiveBufferMax {
		p.errorf(at, "EZZ0616I", fmt.Sprintf("TCPRCVBUFRSIZE %s is larger than TCPMAXRCVBUFRSIZE %s", sizeText(uint64(c.ReceiveBuffer)), sizeText(uint64(c.ReceiveBufferMax))), "raise the maximum, or lower the size")
	}
	if c.SendBuffer > c.SendBufferMax {
		p.errorf(at, "", fmt.Sprintf("TCPSENDBFRSIZE %s is larger than TCPMAXSENDBUFRSIZE %s", sizeText(uint64(c.SendBuffer)), sizeText(uint64(c.SendBufferMax))), "raise the maximum, or lower the size")
	}
}

func tcpTable() []operand[TCP] {
	t := bytes("TCPSENDBfrsize", bufferMin, bufferMax, func(c *TCP) *uint32 { return &c.SendBuffer }, later, "the second value of tcp_wmem")
	t = append(t, bytes("TCPRCVBufrsize", bufferMin, bufferMax, func(c *TCP) *uint32 { return &c.ReceiveBuffer }, later, "the second value of tcp_rmem")...)
	t = append(t, bytes("TCPMAXRCVBufrsize", bufferMin, bufferMax, func(c *TCP) *uint32 { return &c.ReceiveBufferMax }, later, "the third value of tcp_rmem")...)
	t = append(t, bytes("TCPMAXSENDBufrsize", bufferMin, bufferMax, func(c *TCP) *uint32 { return &c.SendBufferMax }, later, "the third value of tcp_wmem")...)
	t = append(t, delayAcks()...)
	t = append(t, number("INTERVAL", 0, minutesMax, "minutes, 0 for none", func(c *TCP) *uint32 { return &c.IntervalMin }, later, "tcp_keepalive_time")...)
	t = append(t, number("KEEPALIVEPROBES", 1, probesMax, "", func(c *TCP) *uint32 { return &c.KeepAliveProbes }, later, "tcp_keepalive_probes")...)
	t = append(t, number("KEEPALIVEPROBEINTERVAL", 1, intervalMax, "seconds", func(c *TCP) *uint32 { return &c.KeepAliveProbeInterval }, later, "tcp_keepalive_intvl")...)
	t = append(t, number("FINWAIT2TIME", 1, finWaitMax, "seconds", func(c *TCP) *uint32 { return &c.FinWait2Time }, later, "tcp_fin_timeout")...)
	t = append(t, number("TIMEWAITINTERVAL", 0, timeWaitMax, "seconds", func(c *TCP) *uint32 { return &c.TimeWaitInterval }, noMeaning, "Linux keeps TIME-WAIT for 60 seconds")...)
	t = append(t, number("FRRTHRESHOLD", 1, duplicatesMax, "duplicate acknowledgements", func(c *TCP) *uint32 { return &c.FRRThreshold }, later, "tcp_reordering")...)
	t = append(t, number("CONNECTTIMEOUT", connectMin, connectMax, "seconds", func(c *TCP) *uint32 { return &c.ConnectTimeout }, later, "tcp_syn_retries")...)
	t = append(t, number("CONNECTINITINTERVAL", initIntervalMin, initIntervalMax, "milliseconds", func(c *TCP) *uint32 { return &c.ConnectInitInterval }, noMeaning, "Linux begins with one second")...)
	t = append(t, number("MAXIMUMRETRANSMITTIME", 1, retransmitMax, "seconds", func(c *TCP) *uint32 { return &c.MaximumRetransmitTime }, later, "tcp_rto_max_ms")...)
	t = append(t, number("RETRANSMITATTEMPTS", 0, attemptsMax, "", func(c *TCP) *uint32 { return &c.RetransmitAttempts }, later, "tcp_retries2")...)
	t = append(t, number("QUEUEDRTT", 0, rttMax, "milliseconds", func(c *TCP) *uint32 { return &c.QueuedRTT }, noMeaning, "Linux sizes send buffers by itself")...)
	t = append(t, ephemeralPorts())
	t = append(t, flag("SELECTIVEACK", "NOSELECTIVEACK", func(c *TCP) *bool { return &c.SelectiveAck }, later, "tcp_sack")...)
	t = append(t, flag("TCPTIMESTAMP", "NOTCPTIMESTAMP", func(c *TCP) *bool { return &c.Timestamp }, later, "tcp_timestamps")...)
	t = append(t, flag("NAGLE", "NONAGLE", func(c *TCP) *bool { return &c.Nagle }, noMeaning, "a program chooses with TCP_NODELAY")...)
	t = append(t, flag("RESTRICTLOWPORTS", "UNRESTRICTLOWPORTS", func(c *TCP) *bool { return &c.RestrictLowPorts }, later, "ip_unprivileged_port_start")...)
	t = append(t, operand[TCP]{word: "SENDGARBAGE", values: "TRUE, FALSE", effect: noMeaning, linux: "keepalive probes of Linux carry no data",
		take: func(p *parser, c *TCP) {
			if w, ok := p.oneOf("SENDGARBAGE", "TRUE", "FALSE"); ok {
				c.SendGarbage = w == "TRUE"
			}
		},
		show: func(c *TCP) string {
			if c.SendGarbage {
				return "SENDGARBAGE TRUE"
			}
			return "SENDGARBAGE FALSE"
		}})
	return append(t, flag("TTLS", "NOTTLS", func(c *TCP) *bool { return &c.TTLS }, noMeaning, "programs on Linux bring their own TLS")...)
}

func delayAcks() []operand[TCP] {
	var t []operand[TCP]
	for _, w := range []keyword{"DELAYAcks", "NODELAYAcks", "AUTODELAYAcks"} {
		o := operand[TCP]{word: w, group: "acks", effect: later, linux: "when acknowledgements are sent (quickack of the routes)",
			take: func(_ *parser, c *TCP) { c.DelayAcks = w.full() }}
		if w == "DELAYAcks" {
			o.show = func(c *TCP) string { return c.DelayAcks }
		}
		t = append(t, o)
	}
	return t
}

func ephemeralPorts() operand[TCP] {
	return operand[TCP]{word: "EPHEMERALPORTS", values: "first and last port, 1024 to 65535", effect: later, linux: "ip_local_port_range",
		take: func(p *parser, c *TCP) {
			first, ok := p.number("the first of EPHEMERALPORTS", bindFirstMin, portMax, "")
			if !ok {
				p.optionalNumber("the last of EPHEMERALPORTS", 0, limitMax, "")
				return
			}
			last, ok := p.number("the last of EPHEMERALPORTS", bindFirstMin, portMax, "")
			if ok && last < first {
				p.errorf(nil, "", fmt.Sprintf("EPHEMERALPORTS ends at %d, before it begins at %d", last, first), "write the lower port first")
				return
			}
			if ok {
				c.EphemeralFirst, c.EphemeralLast = first, last
			}
		},
		show: func(c *TCP) string { return fmt.Sprintf("EPHEMERALPORTS %d %d", c.EphemeralFirst, c.EphemeralLast) }}
}
