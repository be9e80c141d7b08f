package cpumap

import (
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	xdplink "github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"xlane/internal/kernel/bpffs"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/setting"
	"xlane/internal/model"
	"xlane/internal/receive"
	"xlane/internal/receive/sorter"
	"xlane/internal/testenv"
)

// Actions of XDP, enum xdp_action of linux/bpf.h.
const (
	xdpPass     = 2
	xdpRedirect = 4
)

// packets is one connection's packets, made with gopacket, which is not ours.
type packets struct{ seq, ack uint32 }

func (p *packets) frame(t testing.TB, fromHost bool, payload int) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: p.seq, Ack: p.ack, ACK: true, Window: 1000}
	if fromHost {
		ip.SrcIP, ip.DstIP = ip.DstIP, ip.SrcIP
		tcp.SrcPort, tcp.DstPort, tcp.Seq, tcp.Ack = 80, 40000, p.ack, p.seq
	} else {
		p.seq += uint32(payload)
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4},
		ip, tcp, gopacket.Payload(make([]byte, payload)))
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

// program loads the XDP form over a fresh sorter, with BULKDATA on CPU 0.
func program(t testing.TB, start bool, cfg sorter.Config) (*ebpf.Program, *sorter.Sorter, *ebpf.Map) {
	t.Helper()
	testenv.BPF(t)
	a := &Adapter{spec: receive.Spec{Sorter: cfg}}
	if err := a.loadOrAdopt(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	if start {
		if err := a.placeBulk(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	prog, err := a.program(xdplink.XDPDriverMode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog, a.sorter, a.frames
}

func runOn(t testing.TB, prog *ebpf.Program, frame []byte) uint32 {
	t.Helper()
	action, err := prog.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)})
	if err != nil {
		t.Fatal(err)
	}
	return action
}

// stream makes the connection bulk, has the host acknowledge all, and returns
// what the program does with its next packet.
func stream(t testing.TB, prog *ebpf.Program, s *sorter.Sorter, p *packets) uint32 {
	t.Helper()
	for range 140 { // of 1,400 bytes: over the threshold of 180,000
		if action := runOn(t, prog, p.frame(t, false, 1400)); action != xdpPass {
			t.Fatalf("action %d while older packets are on the way", action)
		}
	}
	runOn(t, s.Turn, p.frame(t, true, 0))
	return runOn(t, prog, p.frame(t, false, 1400))
}

func TestBPFPacketsGoWhereTheyBelong(t *testing.T) {
	t.Parallel()
	t.Run("bulk goes to its CPU once the host has what came before", func(t *testing.T) {
		prog, s, _ := program(t, true, sorter.Config{})
		if action := stream(t, prog, s, &packets{seq: 1, ack: 1}); action != xdpRedirect {
			t.Errorf("action %d, want XDP_REDIRECT", action)
		}
		c, err := s.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if c.Packets[model.BulkData] != 1 || c.Packets[model.Primary] != 140 || c.Event["moved_acked"] != 1 {
			t.Errorf("counted %v %v", c.Packets, c.Event)
		}
		if want := uint64(1400 + 54); c.Bytes[model.BulkData] != want {
			t.Errorf("BULKDATA has %d bytes, want %d", c.Bytes[model.BulkData], want)
		}
	})
	t.Run("bulk stays when its CPU takes no frames", func(t *testing.T) {
		prog, s, frames := program(t, true, sorter.Config{})
		if err := frames.Delete(uint32(0)); err != nil {
			t.Fatal(err)
		}
		if action := stream(t, prog, s, &packets{seq: 1, ack: 1}); action != xdpPass {
			t.Errorf("action %d, want XDP_PASS", action)
		}
	})
	good := (&packets{seq: 1, ack: 1}).frame(t, false, 100)
	for _, c := range []struct {
		name   string
		frame  []byte
		start  bool
		reason string
	}{
		{"a question", good, true, "interactive"},
		{"anything before the sorter has a configuration", good, false, "off"},
		{"an acknowledgement of an unknown connection", (&packets{seq: 1, ack: 1}).frame(t, false, 0), true, "tcp_untracked"},
		{"a TCP header cut by one byte", good[:14+20+19], true, "malformed"},
		{"an IPv4 header cut by one byte", good[:14+19], true, "malformed"},
		{"an IPv4 total length beyond the frame", withBytes(good, 16, 0xff, 0xff), true, "malformed"},
		{"an unknown ethertype", withBytes(good, 12, 0x12, 0x34), true, "not_ip"},
		{"a VLAN tag", tagged(good, 7), true, "interactive"},
		{"a VLAN tag and nothing else", tagged(good, 7)[:18], true, "malformed"},
		{"a fragment", withBytes(good, 20, 0x20, 0), true, "fragment"},
	} {
		t.Run(c.name+" stays", func(t *testing.T) {
			prog, s, _ := program(t, c.start, sorter.Config{})
			if action := runOn(t, prog, c.frame); action != xdpPass {
				t.Errorf("action %d, want XDP_PASS", action)
			}
			counted, err := s.Counters()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range sorter.Reasons() {
				want := uint64(0)
				if name == c.reason {
					want = 1
				}
				if counted.Reason[name] != want {
					t.Errorf("reason %s counts %d, want %d", name, counted.Reason[name], want)
				}
			}
			if counted.Bytes[model.Primary] != uint64(len(c.frame)) {
				t.Errorf("PRIMARY has %d bytes, want %d", counted.Bytes[model.Primary], len(c.frame))
			}
		})
	}
}

func withBytes(frame []byte, at int, v ...byte) []byte {
	out := append([]byte(nil), frame...)
	copy(out[at:], v)
	return out
}

func tagged(frame []byte, id uint16) []byte {
	out := append([]byte(nil), frame[:12]...)
	out = binary.BigEndian.AppendUint16(out, 0x8100)
	out = binary.BigEndian.AppendUint16(out, id)
	return append(out, frame[12:]...)
}

// forgetful is a journal of a test that puts nothing back.
type forgetful struct{}

func (forgetful) Record(setting.Setting) error { return nil }
func (forgetful) Recorded() []setting.Setting  { return nil }

// TestAdoptingMovesBulkToTheCPUItMayHave: whoever adopts may have other CPUs.
func TestAdoptingMovesBulkToTheCPUItMayHave(t *testing.T) {
	testenv.Lab(t)
	fs, err := bpffs.Ensure(bpffs.Root)
	if err != nil {
		t.Fatal(err)
	}
	const name = "test-cpumap-other-cpu"
	dir, err := fs.Locate(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Remove(name) })
	pair := kerneltest.NewPair(t, 1)
	for _, cpu := range []int{0, 1} {
		a, err := New(receive.Spec{NS: pair.Near, Device: pair.NearName, Sort: true, Journal: forgetful{}, PinDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		a.cpu = cpu
		if err := a.Apply(context.Background()); err != nil {
			t.Fatal(err)
		}
		if a.Adopted() != (cpu == 1) {
			t.Errorf("adopted is %v with BULKDATA on CPU %d", a.Adopted(), cpu)
		}
		others, has, err := a.entries()
		if err != nil || len(others) != 0 || !has {
			t.Errorf("BULKDATA should be on CPU %d: it has it %v, others %v, error %v", cpu, has, others, err)
		}
		if cpu == 1 {
			if err := a.Detach(); err != nil {
				t.Error(err)
			}
		}
		a.Close()
	}
}

// BenchmarkXDP measures the program by PROG_TEST_RUN: what one frame costs,
// beside a program that passes everything.
func BenchmarkXDP(b *testing.B) {
	prog, s, _ := program(b, true, sorter.Config{})
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()
	chat := &packets{seq: 1, ack: 1}
	small := chat.frame(b, false, 100)
	bulk := &packets{seq: 1, ack: 1}
	if action := stream(b, prog, s, bulk); action != xdpRedirect {
		b.Fatalf("action %d, want XDP_REDIRECT", action)
	}
	large := bulk.frame(b, false, 1400)
	// The same frame a million times is a stream, unless nothing is.
	fresh, _, _ := program(b, true, sorter.Config{ThresholdBytes: 1 << 31})
	for _, c := range []struct {
		name  string
		prog  *ebpf.Program
		frame []byte
	}{
		{"an empty program", empty, small},
		{"a question", fresh, small},
		{"an empty program, full frame", empty, large},
		{"bulk", prog, large},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, took, err := c.prog.Benchmark(c.frame, b.N, b.ResetTimer)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Nanoseconds()), "ns/frame")
		})
	}
}
