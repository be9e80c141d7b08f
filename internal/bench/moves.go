package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"xlane/internal/api"
	"xlane/internal/kernel/cpu"
	"xlane/internal/model"
	"xlane/internal/profile"
	"xlane/internal/stack"
)

// Moves is what came of connections that change queue again and again.
type Moves struct {
	// CPUs are those that deliver the queues: one, or several, where a packet
	// that is on its way on one may be overtaken on another.
	CPUs string `json:"cpus"`
	// Moves is how often a connection changed queue, in Seconds.
	Moves   uint64  `json:"moves"`
	Seconds float64 `json:"seconds"`
	// OutOfOrder is TcpExtTCPOFOQueue of the server, Retransmits what the
	// client sent again, PayloadErrors what awm found wrong, Lost what was
	// dropped at full rings.
	OutOfOrder    int64  `json:"out_of_order"`
	Retransmits   int64  `json:"retransmits"`
	PayloadErrors int64  `json:"payload_errors"`
	Lost          uint64 `json:"lost"`
	// Packets by the sorter's reasons.
	Reasons map[string]uint64 `json:"reasons"`
}

// The load of RunMoves: connections that chat and stream in turns of
// milliseconds, and a threshold so low that each turn is a move.
const (
	movesSpec           = "PHASE16(100/800,20ms;in,20ms):pace=400M"
	movesThresholdBytes = 20_000
	movesChunk          = 4 * time.Second
	// movesChunksMax ends a run in which nothing moves.
	movesChunksMax = 40
)

// RunMoves has connections change queue at least want times in each form, and
// counts what arrived out of order. Half the moves go to BULKDATA, half back.
func RunMoves(ctx context.Context, cfg Config, want uint64) ([]Moves, error) {
	cfg.Duration, cfg.Warmup, cfg.Rounds = movesChunk, 0, 1
	cfg.Plan = DemoPlan() // for the check alone; nothing of it is run
	if err := cfg.check(); err != nil {
		return nil, err
	}
	online, err := cpu.Online()
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var out []Moves
	for _, cpus := range []string{cpu.Of(r.at.server).String(), online.String()} {
		cfg.Progress(fmt.Sprintf("moving connections %d times, queues on CPU %s", want, cpus))
		m, err := r.moves(ctx, cpus, want)
		if err != nil {
			return out, errors.Join(err, r.close())
		}
		out = append(out, m)
	}
	return out, r.close()
}

func (r *rig) moves(ctx context.Context, cpus string, want uint64) (m Moves, err error) {
	state, err := os.MkdirTemp("", "xlane-moves-")
	if err != nil {
		return m, fmt.Errorf("make a place for the record: %w", err)
	}
	defer os.RemoveAll(state)
	s, err := stack.Start(ctx, stack.Config{
		Interfaces: []profile.Interface{{
			Device: r.server.Dev, Netns: r.server.NetNS, INBPERF: model.Dynamic, WorkloadQ: true, CPUs: cpus,
			ThresholdBytes: movesThresholdBytes,
		}},
		Version: r.cfg.Version, StateDir: state, Log: r.cfg.Log,
	})
	if err != nil {
		return m, err
	}
	within, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(within) }()
	defer func() {
		end()
		err = errors.Join(err, <-ended)
	}()
	before, err := r.losses()
	if err != nil {
		return m, err
	}
	m.CPUs = cpus
	for chunk := 0; m.Moves < want; chunk++ {
		if chunk == movesChunksMax {
			return m, fmt.Errorf("only %d moves in %v", m.Moves, movesChunk*movesChunksMax)
		}
		l, err := r.start(r.client, movesSpec)
		if err != nil {
			return m, err
		}
		report, err := l.wait(ctx, movesChunk+runSlack)
		if err != nil {
			return m, err
		}
		m.Seconds += movesChunk.Seconds()
		m.PayloadErrors += report.PayloadErrors()
		for _, c := range report.Classes {
			m.Retransmits += c.Client.Retransmits
		}
		snap, err := s.Snapshot(ctx, api.Query{MaxConnections: connectionsShown})
		if err != nil {
			return m, err
		}
		m.Moves, m.Reasons = snap.Interfaces[0].Sorter.MovesDone, snap.Interfaces[0].Sorter.Reasons
	}
	after, err := r.losses()
	if err != nil {
		return m, err
	}
	m.OutOfOrder = after.counters.Since(before.counters)["TcpExtTCPOFOQueue"]
	m.Lost = after.dropped - before.dropped
	return m, nil
}
