// Package bench runs the published experiments on inbound queues, here, in a
// lab: one load in several modes, interleaved, each mode applied by the code
// that the daemon runs. It decides what is compared with what, what the figures
// mean and how they are shown (text, JSON, one HTML page). Hosts and wires are
// lab's, loads awm's, and what a mode does to a device is stack's and receive's.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Limits of a bench.
const (
	RoundsMax   = 1000
	DurationMin = 200 * time.Millisecond
	DurationMax = 10 * time.Minute
)

// Config is one bench.
type Config struct {
	Plan []Experiment
	// Rounds is how often every mode is measured; Duration is the window of
	// one run, after Warmup.
	Rounds           int
	Duration, Warmup time.Duration
	// SendFrames is how many frames a sender on WireGigabit hands over at once,
	// and so how long the bursts on that wire are; 0 is SendFramesDefault.
	SendFrames int
	// IdleAsIs leaves alone how long idle virtual CPUs look for work before they
	// halt; otherwise one that halts at once looks for 200 µs meanwhile.
	IdleAsIs bool
	// Short says in reports that this is the short form.
	Short bool
	// Program runs xlane's commands: a path, and arguments before the command.
	Program []string
	// Version and Command are for the report.
	Version, Command string
	// Progress is told of each run as it begins; nil drops it.
	Progress func(line string)
	// Log gets what the daemon says; nil drops it.
	Log *slog.Logger
}

func (c *Config) check() error {
	switch {
	case len(c.Program) == 0:
		return errors.New("bench: no program to run the load with")
	case c.Rounds < 1 || c.Rounds > RoundsMax:
		return fmt.Errorf("bench: %d rounds are not possible; use 1 to %d", c.Rounds, RoundsMax)
	case c.Duration < DurationMin || c.Duration > DurationMax:
		return fmt.Errorf("bench: a window of %v is not possible; use %v to %v", c.Duration, DurationMin, DurationMax)
	case c.Warmup < 0 || c.Warmup > DurationMax:
		return fmt.Errorf("bench: a warm-up of %v is not possible; use 0s to %v", c.Warmup, DurationMax)
	case Runs(c.Plan) == 0:
		return errors.New("bench: nothing is left to measure; name other experiments or modes")
	}
	if c.SendFrames == 0 {
		c.SendFrames = SendFramesDefault
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return nil
}

// storyOf is the experiment whose story is told, if it is in the plan.
const storyOf = "rr1+str1"

// failuresMax ends a bench on which nothing works.
const failuresMax = 10

// Inbound runs the plan: every experiment, round by round, its modes one after
// the other within a round. A run that fails is noted in its cell, and the
// bench goes on. When ctx ends, the result has what there is, with the error.
func Inbound(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	restore := func() error { return nil }
	if !cfg.IdleAsIs {
		var err error
		if restore, err = keepAwake(); err != nil {
			return nil, err
		}
	}
	rig, err := newRig(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, restore())
	}
	unpin, err := pinSelf(rig.at.server)
	if err != nil {
		return nil, errors.Join(err, rig.close(), restore())
	}
	res := &Result{
		Format: ResultFormat, Bench: "inbound", Taken: time.Now().UTC().Truncate(time.Second), Command: cfg.Command,
		Machine: machine(cfg.Version),
		Method: Method{
			Rounds: cfg.Rounds, DurationS: cfg.Duration.Seconds(), WarmupS: cfg.Warmup.Seconds(),
			ServerCPU: rig.at.server, WireCPU: rig.at.wire, ClientCPU: rig.at.client, Short: cfg.Short, SendFrames: cfg.SendFrames,
		},
	}
	err = rig.all(ctx, res)
	res.Targets = Judge(res)
	return res, errors.Join(err, unpin(), rig.close(), restore())
}

// all measures everything. Failures in a row, not in all, end it: one mode that
// this host cannot do must not hide the others.
func (r *rig) all(ctx context.Context, res *Result) error {
	total, done, failed := Runs(r.cfg.Plan)*r.cfg.Rounds, 0, 0
	for _, e := range r.cfg.Plan {
		res.Experiments = append(res.Experiments, ExperimentResult{
			Name: e.Name, Title: e.Title, RR: e.RR, STR: e.STR, Wire: e.Wire, Loss: e.Loss,
		})
		er := &res.Experiments[len(res.Experiments)-1]
		for _, m := range e.Modes {
			er.Cells = append(er.Cells, Cell{Mode: m})
		}
		for round := 1; round <= r.cfg.Rounds; round++ {
			for i := range er.Cells {
				done++
				cell := &er.Cells[i]
				m, err := ModeByName(cell.Mode)
				if err != nil {
					return err
				}
				r.cfg.Progress(fmt.Sprintf("%d/%d  %s, %s, round %d", done, total, e.Title, m.Title, round))
				run, story, err := r.measure(ctx, e, m, round)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					cell.Failed = append(cell.Failed, fmt.Sprintf("round %d: %v", round, err))
					if failed++; failed >= failuresMax {
						return fmt.Errorf("%d runs failed one after the other, the last: %w", failed, err)
					}
					continue
				}
				failed = 0
				cell.Runs = append(cell.Runs, run)
				if story != nil && (res.Story == nil || e.Name == storyOf) {
					res.Story = story
				}
			}
		}
	}
	return nil
}
