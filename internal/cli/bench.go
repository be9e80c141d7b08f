package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/bench"
	"xlane/internal/kernel/probe"
)

const benchInboundHelp = `Runs the published experiments on inbound queues in a lab on this machine: an
interactive load (RR) beside streams (STR), in several ways of delivering what
arrives, one after the other in every round. Writes a table, and a page with
charts that needs no network. The full plan takes about an hour.

Where the CPUs of a virtual machine halt as soon as they are idle, waking them
costs more than what is measured. Unless --idle-as-is is given they look for work
for 200 µs first while the bench runs, as the kernel would have it; that is put
back at the end, by "xlane lab down" after a crash, and the report says it.`

type benchFlags struct {
	rounds, frames   int
	duration, warmup time.Duration
	only, modes      []string
	short, list      bool
	idleAsIs         bool
	json, html       string
	verbose          bool
}

// The forms of a bench: the short one is for a first look, and for the demo. The
// warm-up is as long as INBPERF DYNAMIC needs to find its hold.
const (
	benchRounds, benchDuration, benchWarmup                = 5, 2 * time.Second, 3 * time.Second
	benchShortRounds, benchShortDuration, benchShortWarmup = 3, 1500 * time.Millisecond, 3 * time.Second
)

func newBench() *cobra.Command {
	return commandGroup("bench", "the published experiments, here, with a report", "experiments", newBenchInbound(), newBenchMoves(), newBenchSorter())
}

func newBenchInbound() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "inbound",
		Short: "request-response beside streams, in every way of delivering",
		Long:  benchInboundHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.plan(cmd)
			if err != nil {
				return usageError{err}
			}
			if f.list {
				return listPlan(cmd, plan)
			}
			return runBench(cmd, f, plan)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.rounds, "rounds", benchRounds, "how often every mode is measured")
	fl.DurationVar(&f.duration, "duration", benchDuration, "the window of one run")
	fl.DurationVar(&f.warmup, "warmup", benchWarmup, "load before the window")
	fl.StringSliceVar(&f.only, "only", nil, "`EXPERIMENTS` to run (see --list)")
	fl.StringSliceVar(&f.modes, "modes", nil, "`MODES` to run, also where the plan leaves them out")
	fl.IntVar(&f.frames, "send-frames", bench.SendFramesDefault, "frames that a sender hands to the 1 Gb/s wire at once")
	fl.BoolVar(&f.idleAsIs, "idle-as-is", false, "leave alone how soon idle virtual CPUs halt (see --help)")
	fl.BoolVar(&f.short, "short", false, "the plan of the demo, 3 rounds of 1.5 s")
	fl.BoolVar(&f.list, "list", false, "list experiments and modes, and run nothing")
	fl.StringVar(&f.json, "json", "", "write the result to `FILE`")
	fl.StringVar(&f.html, "html", filepath.Join("out", "bench-inbound.html"), "write the page to `FILE`; empty writes none")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log what the daemon decides")
	return cmd
}

// plan narrows the full plan, or the short one, down to what is asked.
func (f *benchFlags) plan(cmd *cobra.Command) ([]bench.Experiment, error) {
	plan := bench.Experiments()
	if f.short {
		plan = bench.DemoPlan()
		if !cmd.Flags().Changed("rounds") {
			f.rounds = benchShortRounds
		}
		if !cmd.Flags().Changed("duration") {
			f.duration = benchShortDuration
		}
		if !cmd.Flags().Changed("warmup") {
			f.warmup = benchShortWarmup
		}
	}
	return bench.Select(plan, f.only, f.modes)
}

func listPlan(cmd *cobra.Command, plan []bench.Experiment) error {
	out := cmd.OutOrStdout()
	for _, e := range plan {
		fmt.Fprintf(out, "%-16s %s\n%-16s   %s\n", e.Name, e.Title, "", strings.Join(e.Modes, " "))
	}
	fmt.Fprintln(out)
	for _, m := range bench.Modes() {
		fmt.Fprintf(out, "%-16s %s: %s\n", m.Name, m.Title, m.Says)
	}
	return nil
}

// config is what every form of the bench shares.
func (f benchFlags) config(cmd *cobra.Command, plan []bench.Experiment) (bench.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return bench.Config{}, fmt.Errorf("find own program: %w", err)
	}
	cfg := bench.Config{
		Plan: plan, Rounds: f.rounds, Duration: f.duration, Warmup: f.warmup, Short: f.short, SendFrames: f.frames, IdleAsIs: f.idleAsIs,
		Program: []string{self}, Version: Version, Command: "xlane " + strings.Join(os.Args[1:], " "),
		Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
	}
	if f.verbose {
		cfg.Log = logger(cmd.ErrOrStderr(), false)
	}
	return cfg, nil
}

func runBench(cmd *cobra.Command, f benchFlags, plan []bench.Experiment) error {
	if err := probe.Require(); err != nil {
		return err
	}
	cfg, err := f.config(cmd, plan)
	if err != nil {
		return err
	}
	ctx, stop := signalContext(cmd)
	defer stop()
	res, err := bench.Inbound(ctx, cfg)
	if res == nil {
		return err
	}
	err = errors.Join(err, res.WriteText(cmd.OutOrStdout()))
	return errors.Join(err, f.write(cmd, res))
}

// write writes the result's files, and says where they are.
func (f benchFlags) write(cmd *cobra.Command, res *bench.Result) error {
	var errs []error
	if f.json != "" {
		errs = append(errs, writeJSON(f.json, res))
	}
	if f.html != "" {
		var page bytes.Buffer
		err := res.WriteHTML(&page)
		if err == nil {
			err = writeNew(f.html, page.Bytes())
		}
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "\nThe same with charts: %s\n", f.html)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return writeNew(path, append(text, '\n'))
}

// writeNew writes a file, and makes the folder that it lies in.
func writeNew(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o644)
}
