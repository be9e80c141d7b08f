package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"xlane/internal/api"
	"xlane/internal/display"
	"xlane/internal/model"
)

// newNetstat makes "xlane netstat".
func newNetstat() *cobra.Command {
	return commandGroup("netstat", "show the state of interfaces", "report", newDevlinks())
}

func newDevlinks() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "devlinks [INTFName=DEV]",
		Short: "interfaces: status, queues, timers, last decisions",
		Args:  argCount(cobra.MaximumNArgs(1), "at most one filter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var f display.Filter
			if len(args) == 1 {
				device, err := parseIntfName(args[0])
				if err != nil {
					return err
				}
				f.Device = device
			}
			return a.report(cmd, api.Query{Device: f.Device}, func(s model.Snapshot) string {
				return display.Devlinks(s, f)
			})
		},
	}
	a.flags(cmd)
	return cmd
}

// parseIntfName reads INTFName=DEV. As in the original the keyword may be
// written in any case and shortened to its capitals, INTFN; the device's name
// is taken as it is.
func parseIntfName(text string) (string, error) {
	const short, long = "INTFN", "INTFNAME"
	keyword, device, given := strings.Cut(text, "=")
	keyword = strings.ToUpper(keyword)
	if !given || !strings.HasPrefix(keyword, short) || !strings.HasPrefix(long, keyword) {
		return "", usagef("netstat devlinks: %q is not a filter; use INTFName=DEV", text)
	}
	if device == "" {
		return "", usagef("netstat devlinks: %q names no device; use INTFName=DEV", text)
	}
	return device, nil
}
