package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/bench"
	"xlane/internal/kernel/probe"
)

// demoLimit ends a demo that hangs; it takes a minute and a half.
const demoLimit = 3 * time.Minute

func newLabDemo() *cobra.Command {
	f := benchFlags{rounds: benchShortRounds, duration: benchShortDuration, warmup: benchShortWarmup, frames: bench.SendFramesDefault, short: true}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "show xlane at work on this machine, measured, in a minute and a half",
		Long: `Makes a server, its clients and a 1 Gb/s wire in network namespaces, and
measures a service beside a file transfer with and without xlane. It removes what
it made, also when it is interrupted. The one thing of the machine that it changes
meanwhile is how soon idle virtual CPUs halt; --idle-as-is leaves that alone.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd, f)
		},
	}
	cmd.Flags().StringVar(&f.html, "html", filepath.Join("out", "demo.html"), "write the page with charts to `FILE`; empty writes none")
	cmd.Flags().BoolVar(&f.idleAsIs, "idle-as-is", false, "leave alone how soon idle virtual CPUs halt")
	cmd.Flags().StringVar(&f.json, "json", "", "write the result to `FILE`")
	cmd.Flags().IntVar(&f.rounds, "rounds", f.rounds, "how often every way is measured")
	return cmd
}

func runDemo(cmd *cobra.Command, f benchFlags) error {
	if err := probe.Require(); err != nil {
		return err
	}
	cfg, err := f.config(cmd, bench.DemoPlan())
	if err != nil {
		return err
	}
	runs := bench.Runs(cfg.Plan) * cfg.Rounds
	fmt.Fprintf(cmd.ErrOrStderr(), "measuring: %d runs of %v each\n", runs, cfg.Duration)
	ctx, stop := signalContext(cmd)
	defer stop()
	if f.rounds == benchShortRounds {
		limited, cancel := context.WithTimeout(ctx, demoLimit)
		defer cancel()
		ctx = limited
	}
	res, err := bench.Inbound(ctx, cfg)
	if res == nil {
		return err
	}
	return errors.Join(err, res.WriteDemo(cmd.OutOrStdout()), f.write(cmd, res))
}
