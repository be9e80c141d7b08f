package sorter

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"xlane/internal/model"
)

// Cost is what one program takes for one kind of packet, above a program that
// does nothing, in one run of PROG_TEST_RUN.
type Cost struct {
	Program string `json:"program"` // sort, prove, turn
	Packet  string `json:"packet"`
	// Nanoseconds above the empty program's EmptyNS, each the least of several
	// runs: what disturbs a run only ever adds.
	Nanoseconds float64 `json:"ns"`
	EmptyNS     float64 `json:"empty_ns"`
}

const (
	costRepeat = 1_000_000
	costRuns   = 7
)

// MeasureCost measures the programs on the caller's CPU. It attaches nothing.
// The packet is the same each time, so its connection is in the cache: what
// is measured is the work, not the memory.
func MeasureCost() ([]Cost, error) {
	s, err := New(Config{FlowsMax: 1024, BulkMax: 256})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	err = s.Start(Queues{SameCPU: true, Index: map[model.QueueID]int{
		model.Primary: 0, model.BulkData: 1, model.SysDist: 2, model.EE: 3}})
	if err != nil {
		return nil, err
	}
	interactive, bulk := costPacket(1, 100, 1), costPacket(2, 1448, 1)
	if err := s.makeBulk(); err != nil {
		return nil, err
	}
	// Not one more connection may be found while the others are measured.
	s.config.ThresholdBytes = 1 << 31
	if err := s.putConfig(); err != nil {
		return nil, err
	}
	var out []Cost
	for _, c := range []struct {
		prog         *ebpf.Program
		name, packet string
		data         []byte
		advance      int32 // of the sequence number, each time
		at           ebpf.AttachType
	}{
		{s.Sort, "sort", "small: 100 new bytes, interactive connection", interactive, 100, ebpf.AttachTCXEgress},
		{s.Sort, "sort", "acknowledgement, interactive connection", costPacket(1, 0, 1), 0, ebpf.AttachTCXEgress},
		{s.Sort, "sort", "acknowledgement, unknown connection", costPacket(3, 0, 1), 0, ebpf.AttachTCXEgress},
		{s.Sort, "sort", "bulk: 1448 new bytes, registered connection", bulk, 1448, ebpf.AttachTCXEgress},
		{s.Prove, "prove", "bulk, nothing waits to move", bulk, 1448, ebpf.AttachTCXIngress},
		{s.Turn, "turn", "800 new bytes from the host", costReply(1, 800), 800, ebpf.AttachTCXEgress},
	} {
		base, err := leastOfEmpty(c.at, c.data, c.advance)
		if err != nil {
			return nil, err
		}
		took, err := leastAdvancing(c.prog, c.at, c.data, c.advance)
		if err != nil {
			return nil, err
		}
		out = append(out, Cost{Program: c.name, Packet: c.packet, Nanoseconds: took - base, EmptyNS: base})
	}
	return out, nil
}

// makeBulk streams on connection 2 until it is on BULKDATA.
func (s *Sorter) makeBulk() error {
	for seq := uint32(1); seq < 400_000; seq += 1448 {
		pkt := costPacket(2, 1448, seq)
		for _, p := range []*ebpf.Program{s.Sort, s.Prove} {
			if _, err := p.Run(&ebpf.RunOptions{Data: pkt}); err != nil {
				return fmt.Errorf("run a program on a packet: %w", err)
			}
		}
	}
	st, err := s.State()
	if err == nil && (st.Registered != 1 || st.Pending != 0) {
		err = fmt.Errorf("a stream was not found to be bulk: %+v", st)
	}
	return err
}

// leastOfEmpty measures the same with a program that does nothing.
func leastOfEmpty(at ebpf.AttachType, data []byte, advance int32) (float64, error) {
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: at, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return 0, fmt.Errorf("load an empty program: %w", err)
	}
	defer empty.Close()
	return leastAdvancing(empty, at, data, advance)
}

// leastAdvancing measures a program behind a small one that advances the
// packet's sequence number first: PROG_TEST_RUN repeats one packet, and bytes
// that were seen before take a shorter way through the sorter than new ones.
func leastAdvancing(p *ebpf.Program, at ebpf.AttachType, data []byte, advance int32) (float64, error) {
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return 0, fmt.Errorf("make a map for a tail call: %w", err)
	}
	defer next.Close()
	if err := next.Put(uint32(0), p); err != nil {
		return 0, fmt.Errorf("prepare a tail call: %w", err)
	}
	const seqOffset, dataOffset, endOffset = 38, 76, 80 // of TCP's seq in the frame; of data and data_end in __sk_buff
	first, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: at, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R1, dataOffset, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, endOffset, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, seqOffset+4),
		asm.JGT.Reg(asm.R4, asm.R3, "go"),
		asm.LoadMem(asm.R5, asm.R2, seqOffset, asm.Word),
		asm.HostTo(asm.BE, asm.R5, asm.Word),
		asm.Add.Imm(asm.R5, advance),
		asm.HostTo(asm.BE, asm.R5, asm.Word),
		asm.StoreMem(asm.R2, seqOffset, asm.R5, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("go"),
		asm.LoadMapPtr(asm.R2, next.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		return 0, fmt.Errorf("load the program that advances a packet: %w", err)
	}
	defer first.Close()
	return leastRun(first, data)
}

func leastRun(p *ebpf.Program, data []byte) (float64, error) {
	least := time.Duration(1 << 62)
	for range costRuns {
		_, took, err := p.Benchmark(data, costRepeat, nil)
		if err != nil {
			return 0, fmt.Errorf("run a program %d times: %w", costRepeat, err)
		}
		least = min(least, took)
	}
	return float64(least), nil
}

// costPacket is a frame of the numbered connection with payload bytes.
func costPacket(number byte, payload int, seq uint32) []byte {
	b := costFrame(payload)
	copy(b[26:], []byte{10, 0, 0, number, 10, 0, 0, 100})
	binary.BigEndian.PutUint16(b[34:], 40000)
	binary.BigEndian.PutUint16(b[36:], 80)
	binary.BigEndian.PutUint32(b[38:], seq)
	return b
}

func costReply(number byte, payload int) []byte {
	b := costFrame(payload)
	copy(b[26:], []byte{10, 0, 0, 100, 10, 0, 0, number})
	binary.BigEndian.PutUint16(b[34:], 80)
	binary.BigEndian.PutUint16(b[36:], 40000)
	return b
}

func costFrame(payload int) []byte {
	b := make([]byte, 54+payload)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	b[14], b[22], b[23] = 0x45, 64, 6
	binary.BigEndian.PutUint16(b[16:], uint16(40+payload))
	b[46], b[47] = 5<<4, 0x10
	return b
}
