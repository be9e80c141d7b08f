package display

// Field says what one field of a report is on Linux. Tests check that every
// field a report prints is described here, and that every *NA* is one of these.
type Field struct {
	// Report is DEVLINKS, OSAINFO or TNSTATS; Name the field's label in it.
	Report, Name string
	// Linux is what stands in the field; "" means that the field has no meaning
	// here and always says *NA*.
	Linux string
}

// Reference returns every field of every report, in the order of the reports.
func Reference() []Field {
	var all []Field
	for _, f := range devlinksFields {
		all = append(all, Field{"DEVLINKS", f[0], f[1]})
	}
	for _, f := range osainfoFields {
		all = append(all, Field{"OSAINFO", f[0], f[1]})
	}
	for _, c := range tnCounters {
		all = append(all, Field{"TNSTATS", c.Name, c.Linux})
	}
	for _, f := range tnOwnFields {
		all = append(all, Field{"TNSTATS", f[0], f[1]})
	}
	return all
}

var devlinksFields = [][2]string{
	{"INTFNAME", "the device's name in its namespace"},
	{"INTFTYPE", "IPAQENET; IPAQENET6 when the device has IPv6 addresses alone"},
	{"INTFSTATUS", "READY, RECOVERING or NOT ACTIVE; STATUSREASON says why"},
	{"PORTNAME", ""},
	{"DATAPATH", ""},
	{"DATAPATHSTATUS", ""},
	{"CHPIDTYPE", ""},
	{"SPEED", "Mb/s as the driver claims it (a veth claims 10000); *NA* if it does not"},
	{"IPBROADCASTCAPABILITY", "the link's BROADCAST flag"},
	{"VMACADDR", "the device's MAC address"},
	{"VMACORIGIN", ""},
	{"VMACROUTER", ""},
	{"ARPOFFLOAD", ""},
	{"ARPOFFLOADINFO", ""},
	{"CFGMTU", "always NONE: the MTU is the host's and is not configured here"},
	{"ACTMTU", "the device's MTU in bytes"},
	{"IPADDR", "each unicast address with its prefix length, or NONE"},
	{"VLANID", "the tag that the device itself adds and strips, or NONE"},
	{"VLANPRIORITY", ""},
	{"READSTORAGE", ""},
	{"INBPERF", "the mode in effect"},
	{"WORKLOADQUEUEING", "whether inbound traffic is sorted; shown under DYNAMIC alone"},
	{"CHECKSUMOFFLOAD", "the device's receive checksum feature, as it is now"},
	{"SEGMENTATIONOFFLOAD", "the device's TCP segmentation feature, as it is now"},
	{"SECCLASS", ""},
	{"MONSYSPLEX", ""},
	{"ISOLATE", ""},
	{"OPTLATENCYMODE", "whether the primary queue is polled while applications wait"},
	{"MULTICAST SPECIFIC", "heading; the table of groups is not shown"},
	{"MULTICAST CAPABILITY", "the link's MULTICAST flag"},
	{"INTERFACE STATISTICS", "heading; the kernel's 64-bit statistics of the device"},
	{"BYTESIN", "rx_bytes"},
	{"INBOUND PACKETS", "rx_packets"},
	{"INBOUND PACKETS IN ERROR", "rx_errors"},
	{"INBOUND PACKETS DISCARDED", "rx_dropped"},
	{"INBOUND PACKETS WITH NO PROTOCOL", ""},
	{"BYTESOUT", "tx_bytes"},
	{"OUTBOUND PACKETS", "tx_packets"},
	{"OUTBOUND PACKETS IN ERROR", "tx_errors"},
	{"OUTBOUND PACKETS DISCARDED", "tx_dropped"},
	{"XLANE SPECIFIC", "heading; what follows is not in the original"},
	{"ADAPTER", "what feeds the device's queues: veth, cpumap"},
	{"IFINDEX", "the device's number in its namespace"},
	{"NETNS", "the device's namespace, or HOST for the host's own"},
	{"STATUSREASON", "why the interface is not READY"},
	{"QUEUES", "NONE, or a table: type, hardware queue, hold in us, empty polls the hold outlasts, ring entries, NAPI id, thread, CPU and the thread's priority"},
	{"LAST DECISIONS", "the last decision about each queue: when, what, and why"},
	{"ADAPTER CANNOT", "what the adapter is unable to do"},
	{"HOST CHANGES", "each setting that was changed: from what to what"},
}

var osainfoFields = [][2]string{
	{"TCPIP Name", "always XLANE"},
	{"IntfName", "the device's name in its namespace"},
	{"PortName", ""},
	{"PortNum", ""},
	{"Datapath", ""},
	{"RealAddr", ""},
	{"PCHID", ""},
	{"CHPID", ""},
	{"CHPID Type", ""},
	{"OSA code level", ""},
	{"Gen", ""},
	{"Active speed/mode", "Mb/s as the driver claims it"},
	{"Media", ""},
	{"Jumbo frames", "Yes if the MTU is above 1500"},
	{"Isolate", ""},
	{"PhysicalMACAddr", "the device's MAC address"},
	{"LocallyCfgMACAddr", ""},
	{"Queues defined Out", ""},
	{"In", "inbound queues that have a hardware queue of their own"},
	{"Ancillary queues in use", "those of them that are not PRIMARY"},
	{"Connection Mode", "always Layer 2: the host makes the Ethernet headers"},
	{"IPv4", "whether the device has an address of this version"},
	{"IPv6", "whether the device has an address of this version"},
	{"SAPSup", ""},
	{"SAPEna", ""},
	{"IPv4 attributes", "heading, if the device has an IPv4 address"},
	{"IPv6 attributes", "heading, if the device has an IPv6 address"},
	{"VLAN ID", "the tag that the device itself adds and strips, or None"},
	{"VMAC Active", ""},
	{"VMAC Addr", ""},
	{"VMAC Origin", ""},
	{"VMAC Router", ""},
	{"AsstParmsEna", ""},
	{"OutCkSumEna", ""},
	{"InCkSumEna", ""},
	{"Registered Addresses", "heading; multicast addresses are not shown"},
	{"IPv4 Unicast Addresses", "heading"},
	{"IPv6 Unicast Addresses", "heading"},
	{"ARP", ""},
	{"Addr", "an address of the device, or one that a queue is sorted by"},
	{"Total number of IPv4 addresses", "how many are in the list above"},
	{"Total number of IPv6 addresses", "how many are in the list above"},
	{"Ancillary Input Queue Routing Variables", "heading; the sorting rules in force, or None"},
	{"Queue Type", "the queue that the rules below sort onto"},
	{"Queue ID", "its number, n of RD/n"},
	{"Protocol", "the IP protocol of the rules"},
	{"Src", "the far end of a registered connection"},
	{"VLAN", "the tags that are part of the rule, the outer one first; absent if none"},
	{"Dst", "this host's end of the connection"},
	{"Since", "when the connection was registered (not in the original)"},
	{"Packets", "packets sorted onto the queue since then (not in the original)"},
	{"Bytes", "bytes of those packets (not in the original)"},
	{"Total number of IPv4 connections", "how many are registered, listed or not"},
	{"Total number of IPv6 connections", "how many are registered, listed or not"},
	{"Ports", "the UDP ports of the EE rule (not in the original)"},
	{"Xlane Information", "heading; what follows is not in the original"},
	{"Adapter", "what feeds the device's queues: veth, cpumap"},
	{"Status", "READY, RECOVERING or NOT ACTIVE"},
	{"Status reason", "why the interface is not READY"},
	{"Flows in table", "connections that the sorter watches, of how many it can"},
	{"Refused", "connections for which the table had no room"},
	{"Evicted", "connections that were forgotten to make room"},
	{"Moves done", "changes of queue completed"},
	{"Moves pending", "changes of queue that wait for older packets to leave"},
	{"Packets by reason", "heading; why packets went where they went, in the sorter's words"},
	{"The adapter cannot", "what the adapter is unable to do"},
}

var tnOwnFields = [][2]string{
	{"TIME", "when the snapshot was taken: hhmmss and hundredths"},
	{"DATE", "when the snapshot was taken: yyddd"},
	{"ID", "the device's name"},
	{"DEV", "the device's name"},
	{"DIR", "the queue"},
	{"HOLDUS", "the queue's hold now, in us (not in the original)"},
	{"DEFERCNT", "empty polls in a row that the hold outlasts (not in the original)"},
	{"HWQUEUE", "the receive queue's index, from 0 (not in the original)"},
	{"RINGENT", "packets that the queue's ring takes (not in the original)"},
	{"THRUNUS", "how long the queue's thread has run, in us (not in the original)"},
	{"THWAKES", "how often it was woken (not in the original)"},
}
