package cli

import (
	"github.com/spf13/cobra"

	"xlane/internal/api"
	"xlane/internal/display"
	"xlane/internal/model"
)

// newTNStats makes "xlane tnstats".
func newTNStats() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "tnstats [DEV]",
		Short: "counters of every inbound queue",
		Args:  argCount(cobra.MaximumNArgs(1), "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var f display.Filter
			if len(args) == 1 {
				if args[0] == "" {
					return usagef("tnstats: the device's name is empty")
				}
				f.Device = args[0]
			}
			return a.report(cmd, api.Query{Device: f.Device}, func(s model.Snapshot) string {
				return display.TNStats(s, f)
			})
		},
	}
	a.flags(cmd)
	return cmd
}
