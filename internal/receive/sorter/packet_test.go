package sorter

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

// frame builds one Ethernet frame with gopacket, which is not ours.
func frame(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var network gopacket.NetworkLayer
	for _, l := range ls {
		switch v := l.(type) {
		case *layers.IPv4:
			network = v
		case *layers.IPv6:
			network = v
		case *layers.TCP:
			v.SetNetworkLayerForChecksum(network)
		case *layers.UDP:
			v.SetNetworkLayerForChecksum(network)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func ether(typ layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: typ,
	}
}

func vlan(id uint16, next layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: id, Type: next}
}

// conn is one TCP connection whose packets the tests make.
type conn struct {
	t             testing.TB
	remote, local netip.AddrPort
	tags          []uint16
	seq, ack      uint32 // of the remote's next packet
	options       []layers.TCPOption
	ip4Options    []layers.IPv4Option
}

func newConn(t testing.TB, remote, local string) *conn {
	return &conn{t: t, remote: netip.MustParseAddrPort(remote), local: netip.MustParseAddrPort(local), seq: 1000, ack: 5000}
}

func (c *conn) packet(fromRemote bool, tcp *layers.TCP, payload int) []byte {
	src, dst := c.remote, c.local
	if !fromRemote {
		src, dst = dst, src
	}
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(src.Port()), layers.TCPPort(dst.Port())
	tcp.Window, tcp.Options = 1000, c.options
	l3 := layers.EthernetTypeIPv4
	var network gopacket.SerializableLayer
	if src.Addr().Is4() {
		network = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, Options: c.ip4Options,
			SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	} else {
		l3 = layers.EthernetTypeIPv6
		network = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	}
	types := make([]layers.EthernetType, len(c.tags)+1)
	for i := range c.tags {
		types[i] = layers.EthernetTypeDot1Q
	}
	types[len(c.tags)] = l3
	ls := []gopacket.SerializableLayer{ether(types[0])}
	for i, id := range c.tags {
		ls = append(ls, vlan(id, types[i+1]))
	}
	ls = append(ls, network, tcp, gopacket.Payload(make([]byte, payload)))
	return frame(c.t, ls...)
}

// in makes the remote's next packet, with payload bytes, and advances seq.
func (c *conn) in(payload int) []byte {
	p := c.packet(true, &layers.TCP{Seq: c.seq, Ack: c.ack, ACK: true}, payload)
	c.seq += uint32(payload)
	return p
}

// out makes the host's next packet. The remote has not seen it yet; seen does that.
func (c *conn) out(payload int, hostSeq uint32) []byte {
	return c.packet(false, &layers.TCP{Seq: hostSeq, Ack: c.seq, ACK: true}, payload)
}

// rig is a freshly loaded sorter with a program run on single packets.
type rig struct {
	t testing.TB
	s *Sorter
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	testenv.BPF(t)
	if cfg.FlowsMax == 0 {
		cfg.FlowsMax = 256 // a small table is made quickly
		cfg.BulkMax = 128
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Start(Queues{SameCPU: true, Index: map[model.QueueID]int{
		model.Primary: 0, model.BulkData: 1, model.SysDist: 2, model.EE: 3,
	}}); err != nil {
		t.Fatal(err)
	}
	return &rig{t, s}
}

func (r *rig) run(p *ebpf.Program, pkt []byte) {
	r.t.Helper()
	in := pkt
	if len(in) < 14 { // PROG_TEST_RUN takes no less than an Ethernet header
		r.t.Fatalf("packet of %d bytes", len(in))
	}
	ret, err := p.Run(&ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64)})
	if err != nil {
		r.t.Fatal(err)
	}
	if int32(ret) != -1 {
		r.t.Fatalf("the program returned %d, want TCX_NEXT (-1): it must never drop or redirect", int32(ret))
	}
}

func (r *rig) sort(pkt []byte)  { r.t.Helper(); r.run(r.s.Sort, pkt) }
func (r *rig) prove(pkt []byte) { r.t.Helper(); r.run(r.s.Prove, pkt) }
func (r *rig) turn(pkt []byte)  { r.t.Helper(); r.run(r.s.Turn, pkt) }

func (r *rig) counters() Counters {
	r.t.Helper()
	c, err := r.s.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) state() State {
	r.t.Helper()
	st, err := r.s.State()
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// flow returns the one tracked connection.
func (r *rig) flow() Flow {
	r.t.Helper()
	var got []Flow
	if err := r.s.Flows(false, func(f Flow) bool { got = append(got, f); return true }); err != nil {
		r.t.Fatal(err)
	}
	if len(got) != 1 {
		r.t.Fatalf("%d connections tracked, want 1: %+v", len(got), got)
	}
	return got[0]
}

// deliver sorts a packet of the remote and lets the host see it.
func (r *rig) deliver(pkt []byte) {
	r.t.Helper()
	r.sort(pkt)
	r.prove(pkt)
}

func netipPort(a netip.AddrPort, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), port)
}
