package display

import (
	"fmt"

	"xlane/internal/model"
)

// Columns of the DEVLINKS block, read off the published samples.
const (
	devlinksLeft   = 4
	devlinksSecond = 37
)

// Devlinks draws NETSTAT DEVLINKS: one record per interface that the filter
// keeps. A filter that keeps none gives a report of no records.
func Devlinks(s model.Snapshot, f Filter) string {
	var out sheet
	out.line("EZD0101I NETSTAT CS %s XLANE", orNA(s.Daemon.Version))
	chosen := f.chosen(s)
	for _, in := range chosen {
		out.devlinksOriginal(in)
		out.devlinksStatistics(in)
		out.devlinksOwn(in)
	}
	out.line("%d OF %d RECORDS DISPLAYED", len(chosen), len(chosen))
	out.line("END OF THE REPORT")
	return out.String()
}

// interfaceType is the INTERFACE statement's word: a Linux device carries both
// versions, so IPAQENET6 is said only of one that has IPv6 alone.
func interfaceType(in model.Interface) string {
	if v4, v6 := hasFamily(in); v6 && !v4 {
		return "IPAQENET6"
	}
	return "IPAQENET"
}

func (s *sheet) devlinksOriginal(in model.Interface) {
	pair := func(first, second string) {
		s.at(cell{devlinksLeft, first}, cell{devlinksSecond, second})
	}
	single := func(label, value string) { s.line("    %s: %s", label, value) }

	s.at(cell{0, "INTFNAME: " + in.Device}, cell{28, "INTFTYPE: " + interfaceType(in)},
		cell{49, "INTFSTATUS: " + orNA(string(in.State))})
	s.at(cell{4, "PORTNAME: " + na}, cell{24, "DATAPATH: " + na}, cell{43, "DATAPATHSTATUS: " + na})
	single("CHPIDTYPE", na)
	if in.SpeedMbps == 0 {
		single("SPEED", na)
	} else {
		single("SPEED", fmt.Sprintf("%010d", in.SpeedMbps))
	}
	single("IPBROADCASTCAPABILITY", orNA(string(in.Broadcast)))
	s.at(cell{4, "VMACADDR: " + hardwareAddress(in.MAC)}, cell{29, "VMACORIGIN: " + na},
		cell{47, "VMACROUTER: " + na})
	pair("ARPOFFLOAD: "+na, "ARPOFFLOADINFO: "+na)
	pair("CFGMTU: NONE", "ACTMTU: "+numberOrNA(in.MTU))
	if len(in.Addresses) == 0 {
		single("IPADDR", "NONE")
	}
	for _, a := range in.Addresses {
		single("IPADDR", a.String())
	}
	vlan := "NONE"
	if in.VLAN != 0 {
		vlan = fmt.Sprint(in.VLAN)
	}
	pair("VLANID: "+vlan, "VLANPRIORITY: "+na)
	single("READSTORAGE", na)
	single("INBPERF", in.INBPERF.String())
	if in.INBPERF == model.Dynamic {
		// The original shows this line under DYNAMIC alone: the other modes
		// have no queues to sort onto.
		s.line("      WORKLOADQUEUEING: %s", model.AnswerOf(in.WorkloadQ))
	}
	pair("CHECKSUMOFFLOAD: "+orNA(string(in.ChecksumOffload)),
		"SEGMENTATIONOFFLOAD: "+orNA(string(in.SegmentationOffload)))
	pair("SECCLASS: "+na, "MONSYSPLEX: "+na)
	pair("ISOLATE: "+na, "OPTLATENCYMODE: "+string(model.AnswerOf(in.OLM)))
	s.line("  MULTICAST SPECIFIC:")
	single("MULTICAST CAPABILITY", orNA(string(in.Multicast)))
}

func (s *sheet) devlinksStatistics(in model.Interface) {
	s.line("  INTERFACE STATISTICS:")
	// A device that is gone has no statistics; zeros would be a claim.
	read := func(n uint64) string { return countOrNA(model.Count{N: n, Known: in.Ifindex != 0}) }
	for _, row := range []struct{ label, value string }{
		{"BYTESIN", read(in.Link.RxBytes)},
		{"INBOUND PACKETS", read(in.Link.RxPackets)},
		{"INBOUND PACKETS IN ERROR", read(in.Link.RxErrors)},
		{"INBOUND PACKETS DISCARDED", read(in.Link.RxDropped)},
		{"INBOUND PACKETS WITH NO PROTOCOL", na},
		{"BYTESOUT", read(in.Link.TxBytes)},
		{"OUTBOUND PACKETS", read(in.Link.TxPackets)},
		{"OUTBOUND PACKETS IN ERROR", read(in.Link.TxErrors)},
		{"OUTBOUND PACKETS DISCARDED", read(in.Link.TxDropped)},
	} {
		s.line("    %-33s = %s", row.label, row.value)
	}
}

func (s *sheet) devlinksOwn(in model.Interface) {
	s.line("  XLANE SPECIFIC:")
	namespace := in.Netns
	if namespace == "" {
		namespace = "HOST"
	}
	s.at(cell{devlinksLeft, "ADAPTER: " + orNA(in.Adapter)},
		cell{devlinksSecond, "IFINDEX: " + numberOrNA(in.Ifindex)})
	s.line("    NETNS: %s", namespace)
	if in.Reason != "" {
		s.line("    STATUSREASON: %s", in.Reason)
	}
	s.devlinksQueues(in)
	s.cannot(devlinksLeft, "ADAPTER CANNOT:", in)
	if len(in.Changes) > 0 {
		s.line("    HOST CHANGES:")
	}
	for _, c := range in.Changes {
		s.line("      %s: %s -> %s", c.What, orNA(c.From), orNA(c.To))
	}
}

func (s *sheet) devlinksQueues(in model.Interface) {
	const row = "    %-5s %-8s %4s %6s %5s %5s %7s %7s %3s %s"
	if len(in.Queues) == 0 {
		s.line("    QUEUES: NONE")
		return
	}
	s.line(row, "QUEUE", "TYPE", "HWQ", "HOLDUS", "DEFER", "RING", "NAPIID", "THREAD", "CPU", "PRIORITY")
	s.line(row, "-----", "----", "---", "------", "-----", "----", "------", "------", "---", "--------")
	decided := false
	for _, q := range in.Queues {
		decided = decided || q.Decision.What != ""
		if q.Shares != 0 {
			s.line("    %-5s %-8s shares %s, the device has too few queues",
				nameOfQueue(q.ID), q.ID, nameOfQueue(q.Shares))
			continue
		}
		cpu := "ANY"
		if q.CPU >= 0 {
			cpu = fmt.Sprint(q.CPU)
		}
		s.line(row, nameOfQueue(q.ID), q.ID, fmt.Sprint(q.Hardware), microseconds(q.Hold),
			fmt.Sprint(q.DeferCount), numberOrNA(q.RingEntries), numberOrNA(uint64(q.NAPI)),
			numberOrNA(q.ThreadPID), cpu, orNA(q.Priority))
	}
	if !decided {
		return
	}
	s.line("    LAST DECISIONS:")
	for _, q := range in.Queues {
		if q.Decision.What != "" {
			s.line("      %s %s %s: %s", nameOfQueue(q.ID), stamp(q.Decision.When), q.Decision.What, q.Decision.Why)
		}
	}
}
