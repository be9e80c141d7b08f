package display

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"xlane/internal/model"
)

// linesPerConnection is what one registered connection takes up, which is how
// the trailer knows the lines of those that MAX left out.
const linesPerConnection = 3

// Osainfo draws DISPLAY OSAINFO: one report per interface that the filter
// keeps; none gives "". At most f.Max connections are listed of each, IPv4
// before IPv6; totals are always those of all registered connections.
func Osainfo(s model.Snapshot, f Filter) string {
	var out strings.Builder
	for _, in := range f.chosen(s) {
		var report sheet
		report.osainfoBase(in)
		report.osainfoAddresses(in)
		shown, registered := report.routingVariables(in, f.Max)
		report.osainfoOwn(in)
		lines := report.lines

		var frame sheet
		frame.line("EZD0031I TCP/IP CS %s TCPIP Name: XLANE  %s", orNA(s.Daemon.Version), s.Taken.Format("15:04:05"))
		out.WriteString(frame.String())
		out.WriteString(report.String())
		frame = sheet{}
		if shown < registered {
			frame.line("%d of %d connections displayed (MAX=%s)", shown, registered, f.maxText())
		}
		frame.line("%d of %d Lines Displayed", lines, lines+linesPerConnection*(registered-shown))
		frame.line("End of report")
		out.WriteString(frame.String())
	}
	return out.String()
}

func (s *sheet) osainfoBase(in model.Interface) {
	s.line("Display OSAINFO results for IntfName: %s", in.Device)
	s.line("PortName: %s  PortNum: %s  Datapath: %s  RealAddr: %s", na, na, na, na)
	s.line("PCHID: %s  CHPID: %s  CHPID Type: %s  OSA code level: %s", na, na, na, na)
	speed, jumbo := na, na
	if in.SpeedMbps != 0 {
		speed = fmt.Sprintf("%d Mb/s", in.SpeedMbps)
	}
	if in.MTU != 0 {
		jumbo = yesNo(in.MTU > ethernetMTU)
	}
	s.line("Gen: %s  Active speed/mode: %s", na, speed)
	s.line("Media: %s  Jumbo frames: %s  Isolate: %s", na, jumbo, na)
	s.line("PhysicalMACAddr: %s  LocallyCfgMACAddr: %s", hardwareAddress(in.MAC), na)

	inbound, ancillary := 0, 0
	for _, q := range in.Queues {
		if q.Shares != 0 {
			continue
		}
		inbound++
		if q.ID != model.Primary {
			ancillary++
		}
	}
	s.line("Queues defined Out: %s In: %d  Ancillary queues in use: %d", na, inbound, ancillary)
	v4, v6 := hasFamily(in)
	s.line("Connection Mode: Layer 2  IPv4: %s  IPv6: %s", yesNo(v4), yesNo(v6))
	s.line("SAPSup: %s  SAPEna: %s", na, na)
	if v4 {
		s.osainfoAttributes("IPv4", in)
	}
	if v6 {
		s.osainfoAttributes("IPv6", in)
	}
}

// ethernetMTU is the largest payload of a plain Ethernet frame (IEEE 802.3):
// beyond it a frame is a jumbo frame.
const ethernetMTU = 1500

func yesNo(is bool) string {
	if is {
		return "Yes"
	}
	return "No"
}

func (s *sheet) osainfoAttributes(version string, in model.Interface) {
	vlan := "None"
	if in.VLAN != 0 {
		vlan = fmt.Sprint(in.VLAN)
	}
	s.line("%s attributes:", version)
	s.line("  VLAN ID: %s  VMAC Active: %s", vlan, na)
	s.line("  VMAC Addr: %s  VMAC Origin: %s  VMAC Router: %s", na, na, na)
	s.line("  AsstParmsEna: %s  OutCkSumEna: %s  InCkSumEna: %s", na, na, na)
}

func (s *sheet) osainfoAddresses(in model.Interface) {
	s.line("Registered Addresses:")
	if len(in.Addresses) == 0 {
		s.line("  None")
	}
	for _, family := range families {
		total := 0
		for _, a := range in.Addresses {
			if a.Addr().Is4() != family.is4 {
				continue
			}
			if total == 0 {
				s.line("  %s Unicast Addresses:", family.name)
			}
			total++
			if family.is4 {
				s.line("    ARP: %s  Addr: %s", na, a.Addr())
			} else {
				s.line("    Addr: %s", a.Addr())
			}
		}
		if total > 0 {
			s.total(family, "addresses", total)
		}
	}
}

// families is the order in which reports list the versions: IPv6 apart, after IPv4.
var families = []family{{"IPv4", true}, {"IPv6", false}}

type family struct {
	name string
	is4  bool
}

func (s *sheet) total(f family, things string, n int) {
	s.line("    Total number of %s %s: %6d", f.name, things, n)
}

func (s *sheet) queueType(id model.QueueID, protocol string) {
	s.line("  Queue Type: %-8s  Queue ID: %2d  Protocol: %s", id, uint8(id), protocol)
}

// routingVariables writes the sorting rules that are registered, each IP
// version in a block of its own, and returns how many connections it listed of
// how many there are.
func (s *sheet) routingVariables(in model.Interface, limit int) (shown, registered int) {
	s.line("Ancillary Input Queue Routing Variables:")
	before := s.lines
	for _, f := range families {
		listed, total := s.bulkConnections(in.Rules, f, limit-shown, limit == All)
		shown, registered = shown+listed, registered+total
	}
	for _, f := range families {
		if addresses := ofFamily(in.Rules.SysDist, f); len(addresses) > 0 {
			s.queueType(model.SysDist, "TCP")
			s.addresses(f, addresses)
		}
	}
	for _, f := range families {
		if addresses := ofFamily(in.Rules.EELocal, f); len(addresses) > 0 {
			s.queueType(model.EE, "UDP")
			s.addresses(f, addresses)
			s.line("    Ports: %s", portRanges(in.Rules.EEPorts))
		}
	}
	if s.lines == before {
		s.line("  None")
	}
	return shown, registered
}

func (s *sheet) addresses(f family, list []netip.Addr) {
	for _, a := range list {
		s.line("    Addr: %s", a.WithZone(""))
	}
	s.total(f, "addresses", len(list))
}

func ofFamily(list []netip.Addr, f family) []netip.Addr {
	var kept []netip.Addr
	for _, a := range list {
		if a.Is4() == f.is4 {
			kept = append(kept, a)
		}
	}
	return kept
}

// bulkConnections lists one version's connections, at most limit unless all.
func (s *sheet) bulkConnections(r model.Rules, f family, limit int, all bool) (listed, total int) {
	total = r.Bulk6Total
	if f.is4 {
		total = r.Bulk4Total
	}
	var list []model.BulkConnection
	for _, c := range r.Bulk {
		if c.Source.Addr().Is4() == f.is4 {
			list = append(list, c)
		}
	}
	total = max(total, len(list))
	if total == 0 {
		return 0, 0
	}
	if !all {
		list = list[:min(len(list), max(limit, 0))]
	}
	s.queueType(model.BulkData, "TCP")
	for _, c := range list {
		s.line("    Src: %s%s", socket(c.Source), vlanTags(c.VLANs))
		s.line("    Dst: %s", socket(c.Destination))
		s.line("      Since: %s  Packets: %d  Bytes: %d", stamp(c.Since), c.Packets, c.Bytes)
	}
	s.total(f, "connections", total)
	return len(list), total
}

func vlanTags(tags []uint16) string {
	if len(tags) == 0 {
		return ""
	}
	words := make([]string, len(tags))
	for i, t := range tags {
		words[i] = strconv.Itoa(int(t))
	}
	return "  VLAN: " + strings.Join(words, ".")
}

// portRanges writes ports in order, neighbours as a range: 12000-12004.
func portRanges(ports []uint16) string {
	if len(ports) == 0 {
		return na
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(ports)))
	var words []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		word := fmt.Sprint(sorted[i])
		if j > i {
			word += fmt.Sprintf("-%d", sorted[j])
		}
		words = append(words, word)
		i = j + 1
	}
	return strings.Join(words, ", ")
}

func (s *sheet) osainfoOwn(in model.Interface) {
	s.line("Xlane Information:")
	s.line("  Adapter: %s  Status: %s", orNA(in.Adapter), orNA(string(in.State)))
	if in.Reason != "" {
		s.line("  Status reason: %s", in.Reason)
	}
	sorter := in.Sorter
	s.line("  Flows in table: %d of %d  Refused: %d  Evicted: %d",
		sorter.Flows, sorter.FlowCapacity, sorter.FlowsRefused, sorter.FlowsEvicted)
	s.line("  Moves done: %d  Moves pending: %d", sorter.MovesDone, sorter.MovesPending)
	if reasons := reasonsInOrder(sorter); len(reasons) > 0 {
		s.line("  Packets by reason:")
		for _, reason := range reasons {
			s.line("    %-40s %20d", plain(reason), sorter.Reasons[reason])
		}
	}
	s.cannot(2, "The adapter cannot:", in)
}

// reasonsInOrder lists the sorter's reasons in the sorter's order; a reason that
// the order forgot comes last, by name, and none is lost.
func reasonsInOrder(s model.Sorter) []string {
	var list []string
	seen := map[string]bool{}
	for _, reason := range s.ReasonOrder {
		if _, counted := s.Reasons[reason]; counted && !seen[reason] {
			list = append(list, reason)
			seen[reason] = true
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
		if !seen[reason] {
			list = append(list, reason)
		}
	}
	return list
}
