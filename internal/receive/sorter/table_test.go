package sorter

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"xlane/internal/model"
)

const (
	client4, server4 = "10.0.0.1:40000", "10.0.0.2:80"
	client6, server6 = "[fd00::1]:40000", "[fd00::2]:80"
)

func ip4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next,
		SrcIP: netip.MustParseAddr("fd00::1").AsSlice(), DstIP: netip.MustParseAddr("fd00::2").AsSlice()}
}

func udpTo(port uint16) *layers.UDP { return &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(port)} }

func cut(b []byte, n int) []byte { return append([]byte(nil), b[:n]...) }

func patched(b []byte, off int, v ...byte) []byte {
	c := append([]byte(nil), b...)
	copy(c[off:], v)
	return c
}

// ext6 builds an IPv6 packet by hand: gopacket reads extension headers but
// writes few of them.
func ext6(t testing.TB, first byte, exts []byte, l4 []byte) []byte {
	eth := frame(t, ether(layers.EthernetTypeIPv6), gopacket.Payload(nil))
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, first, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(exts)+len(l4)))
	copy(ip[8:], netip.MustParseAddr("fd00::1").AsSlice())
	copy(ip[24:], netip.MustParseAddr("fd00::2").AsSlice())
	return append(append(append(eth[:14:14], ip...), exts...), l4...)
}

func tcpBytes(payload int) []byte {
	b := make([]byte, 20+payload)
	binary.BigEndian.PutUint16(b[0:], 40000)
	binary.BigEndian.PutUint16(b[2:], 80)
	binary.BigEndian.PutUint32(b[4:], 1)
	b[12], b[13] = 5<<4, 0x10
	return b
}

// TestBPFPacketTable: every packet goes on (TCX_NEXT), to the queue and under
// the reason named, and moves no other counter. Malformed packets outnumber
// good ones.
//
// long: a table of packets, one a line.
func TestBPFPacketTable(t *testing.T) {
	arp := frame(t, ether(layers.EthernetTypeARP), &layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: 1, SourceHwAddress: make([]byte, 6), SourceProtAddress: make([]byte, 4), DstHwAddress: make([]byte, 6), DstProtAddress: make([]byte, 4)})
	c4, c6 := newConn(t, client4, server4), newConn(t, client6, server6)
	tcp4, tcp6 := c4.in(100), c6.in(100)
	one, two := newConn(t, client4, server4), newConn(t, client4, server4)
	one6 := newConn(t, client6, server6)
	one6.tags = []uint16{7}
	one.tags, two.tags = []uint16{7}, []uint16{7, 8}
	three := newConn(t, client4, server4)
	three.tags = []uint16{7, 8, 9}
	opts := newConn(t, client4, server4)
	opts.options = []layers.TCPOption{{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}
	ipopts := newConn(t, client4, server4)
	ipopts.ip4Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 8, OptionData: make([]byte, 6)}}
	fragment := ip4(layers.IPProtocolTCP)
	fragment.Flags = layers.IPv4MoreFragments
	later := ip4(layers.IPProtocolTCP)
	later.FragOffset = 100
	syn := func(c *conn) []byte { return c.packet(true, &layers.TCP{Seq: 1, SYN: true}, 0) }

	hop := []byte{6, 0, 1, 4, 0, 0, 0, 0}
	frag := []byte{6, 0, 0, 1, 0, 0, 0, 9}
	long := func(n int) []byte { // n destination-options headers, then TCP
		var b []byte
		for i := 0; i < n; i++ {
			next := byte(60)
			if i == n-1 {
				next = 6
			}
			b = append(b, next, 0, 1, 4, 0, 0, 0, 0)
		}
		return b
	}

	cases := []struct {
		name   string
		packet []byte
		queue  model.QueueID
		reason string
	}{
		{"ARP", arp, model.Primary, "not_ip"},
		{"an unknown ethertype", patched(tcp4, 12, 0x12, 0x34), model.Primary, "not_ip"},
		{"a tag and nothing else", cut(one.in(10), 18), model.Primary, "malformed"},
		{"IPv4 TCP with payload", tcp4, model.Primary, "interactive"},
		{"IPv6 TCP with payload", tcp6, model.Primary, "interactive"},
		{"IPv4 TCP without payload of an unknown connection", newConn(t, client4, server4).in(0), model.Primary, "tcp_untracked"},
		{"SYN", syn(newConn(t, client4, server4)), model.Primary, "tcp_untracked"},
		{"SYN with payload (fast open)", newConn(t, client4, server4).packet(true, &layers.TCP{Seq: 1, SYN: true}, 50), model.Primary, "tcp_untracked"},
		{"RST with payload", newConn(t, client4, server4).packet(true, &layers.TCP{Seq: 1, RST: true}, 5), model.Primary, "tcp_untracked"},
		{"TCP options", opts.in(10), model.Primary, "interactive"},
		{"IPv4 options", ipopts.in(10), model.Primary, "interactive"},
		{"one VLAN tag", one.in(10), model.Primary, "interactive"},
		{"two VLAN tags", two.in(10), model.Primary, "interactive"},
		{"three VLAN tags", three.in(10), model.Primary, "not_ip"},
		{"a VLAN tag cut in two", cut(one.in(10), 16), model.Primary, "malformed"},
		{"IPv4 header behind a tag cut by one byte", cut(one.in(10), 18+19), model.Primary, "malformed"},
		{"IPv4 with version 5", patched(tcp4, 14, 0x55), model.Primary, "malformed"},
		{"IPv4 header length of 4 words", patched(tcp4, 14, 0x44), model.Primary, "malformed"},
		{"IPv4 header length beyond the packet", patched(cut(tcp4, 54), 14, 0x4f, 0, 0, 40), model.Primary, "malformed"},
		{"IPv4 total length beyond the frame", patched(tcp4, 16, 0xff, 0xff), model.Primary, "malformed"},
		{"IPv4 total length shorter than its header", patched(tcp4, 16, 0, 19), model.Primary, "malformed"},
		{"IPv4 total length that cuts TCP", patched(tcp4, 16, 0, 39), model.Primary, "malformed"},
		{"IPv4 first fragment", frame(t, ether(layers.EthernetTypeIPv4), fragment, gopacket.Payload(tcpBytes(40))), model.Primary, "fragment"},
		{"IPv4 later fragment", frame(t, ether(layers.EthernetTypeIPv4), later, gopacket.Payload(make([]byte, 40))), model.Primary, "fragment"},
		{"TCP header cut by one byte", cut(tcp4, 14+20+19), model.Primary, "malformed"},
		{"TCP data offset of 4 words", patched(tcp4, 14+20+12, 0x40), model.Primary, "malformed"},
		{"TCP data offset beyond the packet", patched(newConn(t, client4, server4).in(0), 14+20+12, 0xf0), model.Primary, "malformed"},
		{"ICMP", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: 8 << 8}), model.Primary, "not_tcp"},
		{"ESP", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolESP), gopacket.Payload(make([]byte, 20))), model.Primary, "not_tcp"},
		{"UDP", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udpTo(53), gopacket.Payload("x")), model.Primary, "udp"},
		{"UDP header cut by one byte", cut(frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udpTo(53)), 41), model.Primary, "malformed"},
		{"UDP to the first EE port of a local address", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udpTo(12000), gopacket.Payload("x")), model.EE, "ee"},
		{"UDP to the last EE port", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udpTo(12004), gopacket.Payload("x")), model.EE, "ee"},
		{"UDP to the port before EE's", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udpTo(11999)), model.Primary, "udp"},
		{"UDP to the port after EE's", frame(t, ether(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udpTo(12005)), model.Primary, "udp"},
		{"UDP to an EE port over IPv6", frame(t, ether(layers.EthernetTypeIPv6), ip6(layers.IPProtocolUDP), udpTo(12002), gopacket.Payload("x")), model.EE, "ee"},
		{"UDP to an EE port of an address that is not local", frame(t, ether(layers.EthernetTypeIPv4),
			&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 77}}, udpTo(12000)), model.Primary, "udp"},
		{"TCP to an EE port", newConn(t, client4, "10.0.0.2:12000").in(10), model.Primary, "interactive"},
		{"TCP with payload to a distributed address", newConn(t, client4, "10.0.0.9:80").in(10), model.SysDist, "sysdist"},
		{"TCP to any port of a distributed address", newConn(t, client4, "10.0.0.9:1").in(10), model.SysDist, "sysdist"},
		{"SYN to a distributed address", syn(newConn(t, client4, "10.0.0.9:80")), model.SysDist, "sysdist"},
		{"TCP to a distributed IPv6 address", newConn(t, client6, "[fd00::9]:80").in(10), model.SysDist, "sysdist"},
		{"UDP to a distributed address", frame(t, ether(layers.EthernetTypeIPv4),
			&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 9}}, udpTo(80)), model.Primary, "udp"},
		{"IPv6 header behind a tag cut by one byte", cut(one6.in(10), 18+39), model.Primary, "malformed"},
		{"IPv6 with version 4", patched(tcp6, 14, 0x40), model.Primary, "malformed"},
		{"IPv6 payload length beyond the frame", patched(tcp6, 18, 0xff, 0xff), model.Primary, "malformed"},
		{"IPv6 payload length that cuts TCP", patched(tcp6, 18, 0, 19), model.Primary, "malformed"},
		{"IPv6 hop-by-hop, then TCP", ext6(t, 0, hop, tcpBytes(10)), model.Primary, "interactive"},
		{"IPv6 hop-by-hop cut short", cut(ext6(t, 0, hop, tcpBytes(10)), 14+40+4), model.Primary, "malformed"},
		{"IPv6 hop-by-hop longer than the packet", ext6(t, 0, patched(hop, 1, 0xff), tcpBytes(10)), model.Primary, "malformed"},
		{"IPv6 fragment", ext6(t, 44, frag, tcpBytes(10)), model.Primary, "fragment"},
		{"IPv6 fragment behind hop-by-hop", ext6(t, 0, append(patched(hop, 0, 44), frag...), tcpBytes(10)), model.Primary, "fragment"},
		{"IPv6 authentication header, then TCP", ext6(t, 51, append([]byte{6, 4}, make([]byte, 22)...), tcpBytes(10)), model.Primary, "interactive"},
		{"IPv6 with six extension headers", ext6(t, 60, long(6), tcpBytes(10)), model.Primary, "interactive"},
		{"IPv6 with seven extension headers", ext6(t, 60, long(7), tcpBytes(10)), model.Primary, "not_tcp"},
		{"IPv6 with no next header", ext6(t, 59, nil, nil), model.Primary, "not_tcp"},
		{"Ethernet padding behind a short packet", append(newConn(t, client4, server4).in(0), make([]byte, 6)...), model.Primary, "tcp_untracked"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{EEPortFirst: 12000, EEPortLast: 12004})
			if err := r.s.SetSysDist([]netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")}); err != nil {
				t.Fatal(err)
			}
			if err := r.s.SetLocal([]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}); err != nil {
				t.Fatal(err)
			}
			r.sort(c.packet)
			got := r.counters()
			for _, q := range model.AllQueues() {
				want := uint64(0)
				if q == c.queue {
					want = 1
				}
				if got.Packets[q] != want {
					t.Errorf("%v counts %d packets, want %d", q, got.Packets[q], want)
				}
			}
			for _, name := range Reasons() {
				want := uint64(0)
				if name == c.reason {
					want = 1
				}
				if got.Reason[name] != want {
					t.Errorf("reason %s counts %d, want %d", name, got.Reason[name], want)
				}
			}
			if got.Bytes[c.queue] != uint64(len(c.packet)) {
				t.Errorf("%v counts %d bytes, want %d", c.queue, got.Bytes[c.queue], len(c.packet))
			}
		})
	}
}
