package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"xlane/internal/profile"
)

// profileBytesMax is one byte more than a profile may have: enough to see that
// a file is too large, whatever its size.
const profileBytesMax = 1<<20 + 1

type checkFlags struct {
	json, format bool
	symbols      []string
}

// checked is what --json prints.
type checked struct {
	*profile.Messages
	Config *profile.Config `json:"config"`
}

func newCheck() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check PROFILE...",
		Short: "say all that is wrong with a PROFILE, or what it means",
		Long: `Reads a PROFILE, and everything it includes, without touching the host. Errors
and warnings go to stderr, one a line, and make nothing happen. When there is
no error, the effective configuration is printed as a PROFILE with every
default of its statements written out. - reads standard input.`,
		Args: argCount(cobra.MinimumNArgs(1), "at least one PROFILE"),
		RunE: func(cmd *cobra.Command, files []string) error {
			if f.json && f.format {
				return usagef("check: --json and --format exclude each other; use one")
			}
			if (f.json || f.format) && len(files) > 1 {
				return usagef("check: --json and --format take one PROFILE, not %d", len(files))
			}
			symbols, err := parseSymbols(f.symbols)
			if err != nil {
				return err
			}
			wrong := 0
			for _, file := range files {
				ok, err := f.check(cmd, file, symbols)
				if err != nil {
					return err
				}
				if !ok {
					wrong++
				}
			}
			if wrong > 0 {
				return fmt.Errorf("%d of %d profiles cannot be used", wrong, len(files))
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print messages and configuration as JSON")
	fl.BoolVar(&f.format, "format", false, "print the profile itself, in its one layout, with its comments")
	fl.StringArrayVar(&f.symbols, "symbol", nil, "a system symbol, as `NAME=VALUE`; SYSNAME is the host's name when not given")
	return cmd
}

// check reads one file. ok is false when it has errors, which have been printed.
func (f *checkFlags) check(cmd *cobra.Command, file string, symbols map[string]string) (ok bool, err error) {
	text, err := readProfile(cmd.InOrStdin(), file)
	if err != nil {
		return false, err
	}
	if f.format {
		out, msgs := profile.Format(file, text)
		fmt.Fprint(cmd.ErrOrStderr(), msgs)
		_, err := cmd.OutOrStdout().Write(out)
		return out != nil, err
	}
	cfg, msgs := profile.Parse(profile.Source{
		Name: file, Text: text, Symbols: symbols,
		Include: func(name string) ([]byte, error) { return readProfile(nil, name) },
	})
	if f.json {
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetIndent("", "  ")
		return cfg != nil, out.Encode(checked{msgs, cfg})
	}
	fmt.Fprint(cmd.ErrOrStderr(), msgs)
	if cfg == nil {
		return false, nil
	}
	_, err = io.WriteString(cmd.OutOrStdout(), cfg.Text())
	return true, err
}

// readProfile reads a file, or standard input for "-", but never more than
// what shows that it is too large. stdin is nil for an included file.
func readProfile(stdin io.Reader, file string) ([]byte, error) {
	from := stdin
	if file != "-" || stdin == nil {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		from = opened
	}
	return io.ReadAll(io.LimitReader(from, profileBytesMax))
}

// parseSymbols reads NAME=VALUE, and adds SYSNAME: the host's name without its
// domain.
func parseSymbols(given []string) (map[string]string, error) {
	symbols := map[string]string{}
	if host, err := os.Hostname(); err == nil {
		name, _, _ := strings.Cut(host, ".")
		symbols["SYSNAME"] = strings.ToUpper(name)
	}
	for _, s := range given {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usagef("check: --symbol %q is not NAME=VALUE", s)
		}
		symbols[strings.ToUpper(name)] = value
	}
	return symbols, nil
}
