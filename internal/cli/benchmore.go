package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/bench"
	"xlane/internal/kernel/probe"
	"xlane/internal/receive/sorter"
)

// newBenchMoves proves that changing queue reorders nothing.
func newBenchMoves() *cobra.Command {
	var want uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "moves",
		Short: "connections change queue thousands of times: is anything out of order?",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := probe.Require(); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find own program: %w", err)
			}
			moves, err := bench.RunMoves(cmd.Context(), bench.Config{
				Program: []string{self}, Version: Version,
				Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
			}, want)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(moves)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%-8s %9s %8s %13s %12s %14s %6s\n",
				"queues'", "moves", "in", "out of order", "sent again", "payload errors", "lost")
			bad := int64(0)
			for _, m := range moves {
				fmt.Fprintf(cmd.OutOrStdout(), "CPU %-4s %9d %7.0fs %13d %12d %14d %6d\n",
					m.CPUs, m.Moves, m.Seconds, m.OutOfOrder, m.Retransmits, m.PayloadErrors, m.Lost)
				if m.Lost == 0 {
					bad += m.OutOfOrder
				}
				bad += m.PayloadErrors
			}
			if bad > 0 {
				return fmt.Errorf("%d segments arrived out of order or wrong", bad)
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&want, "moves", 10_000, "changes of queue, with the queues on one CPU and on all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newBenchSorter measures the programs alone.
func newBenchSorter() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "sorter",
		Short: "what the sorter's programs cost, in nanoseconds a packet",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := probe.Require(); err != nil {
				return err
			}
			begin := time.Now()
			costs, err := sorter.MeasureCost()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(costs)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%-7s %-46s %9s\n", "program", "packet", "ns")
			for _, c := range costs {
				fmt.Fprintf(cmd.OutOrStdout(), "%-7s %-46s %9.0f\n", c.Program, c.Packet, c.Nanoseconds)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "above an empty program (%.0f ns with the harness), least of several runs; %v\n",
				costs[0].EmptyNS, time.Since(begin).Round(time.Second))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
