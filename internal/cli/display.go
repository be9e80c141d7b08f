package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/api"
	"xlane/internal/display"
	"xlane/internal/model"
)

// answerTime is how long an operator's command waits for the daemon: longer
// than the daemon itself gives a call, so that its own words arrive.
const answerTime = 20 * time.Second

// asking holds the flags of every command that asks the daemon.
type asking struct {
	socket string
	json   bool
}

func (a *asking) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", api.DefaultSocket, "the daemon's socket")
	cmd.Flags().BoolVar(&a.json, "json", false, "print the snapshot as JSON")
}

// report asks the daemon and prints what draw makes of the answer, or under
// --json the answer itself.
func (a *asking) report(cmd *cobra.Command, q api.Query, draw func(model.Snapshot) string) error {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	s, err := api.NewClient(a.socket).Snapshot(ctx, q)
	if err != nil {
		return usageOf(err)
	}
	if !a.json {
		text := draw(s)
		if text == "" {
			// Not an error, but silence could mean anything.
			cmd.PrintErrln("xlane: the daemon manages no interface")
		}
		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	out := json.NewEncoder(cmd.OutOrStdout())
	out.SetIndent("", "  ")
	return out.Encode(s)
}

// usageOf turns the daemon's complaint about how it was asked into a usage error.
func usageOf(err error) error {
	var refused *api.Error
	if errors.As(err, &refused) && refused.Code == api.CodeBadRequest {
		return usageError{err}
	}
	return err
}

// commandGroup is a command that only holds others. Cobra would print its help and
// exit with 0 for a word that it does not know.
func commandGroup(use, short, kind string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
	}
	cmd.AddCommand(members...)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		names := ""
		for i, m := range members {
			if i > 0 {
				names += ", "
			}
			names += m.Name()
		}
		if len(args) == 0 {
			return usagef("%s needs a %s: %s", use, kind, names)
		}
		return usagef("%s: %q is not a %s; use %s", use, args[0], kind, names)
	}
	return cmd
}

// argCount wraps cobra's own check of how many arguments there are, so that a
// wrong number is a usage error.
func argCount(check cobra.PositionalArgs, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%s takes %s, not %d arguments", cmd.CommandPath(), want, len(args))
		}
		return nil
	}
}

// newDisplay makes "xlane display".
func newDisplay() *cobra.Command {
	return commandGroup("display", "show what is registered with an adapter", "display", newOsainfo())
}

func newOsainfo() *cobra.Command {
	var a asking
	limit := strconv.Itoa(display.DefaultMax)
	cmd := &cobra.Command{
		Use:   "osainfo DEV",
		Short: "a device's queues, sorting rules and registered connections",
		Args:  argCount(cobra.ExactArgs(1), "one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := display.ParseMax(limit)
			if err != nil {
				return usageError{err}
			}
			if args[0] == "" {
				return usagef("osainfo: the device's name is empty")
			}
			q := api.Query{Device: args[0], MaxConnections: n}
			if n == display.All {
				q.MaxConnections = api.AllConnections
			}
			return a.report(cmd, q, func(s model.Snapshot) string {
				return display.Osainfo(s, display.Filter{Device: args[0], Max: n})
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&limit, "max", limit, "connections to list, or * for all")
	return cmd
}
