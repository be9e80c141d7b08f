package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/awm"
)

const awmHelp = `A workload between two hosts: start "xlane awm serve" on one of them and
"xlane awm run HOST:PORT SPEC..." on the other.

A SPEC is one class of connections, n of them:

  RRn(in/out)        requests of in bytes, replies of out bytes, no think time
  CRRn(in/out)       the same, with a new connection for each
  STRn(in/out)       streaming in sized requests: STR1(20M/1), STR1(1/20M)
  STRn(in|out|both)  endless streams; in is towards the server
  STRn(acks)         endless, and the server sends 40 bytes for each 32 KiB
  FTPn(put/size)     files over FTP; FTPn(get/size) the other way
  PHASEn(100/800,2s;in,1s)
                     interactive for 2 s, streaming for 1 s, and so on

Sizes take K, M, G (1000s) or Ki, Mi, Gi (1024s). Options follow a colon, with
commas between: name=WORD, rate=TRANSACTIONS/s/connection (an open loop, whose
latency counts from the intended sending), pace=BITS/s over the whole class,
sndbuf=, rcvbuf=, call= (bytes a read or write call), cc=, nodelay=on|off.

  xlane awm run 10.0.0.2:5201 'RR8(100/800)' 'STR1(in):name=bulk,pace=1G'`

func newAWM() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "awm",
		Short: "load a host with a mix of workloads, and measure it",
		Long:  awmHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAWMServe(), newAWMRun())
	return cmd
}

func newAWMServe() *cobra.Command {
	var listen, ftp, ports, cpus string
	var readyFD, conns int
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "answer runs; prints ready ADDR:PORT when it does",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("awm serve takes no %q; give an address with --listen", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := serveConfig(listen, ftp, ports, cpus, conns)
			if err != nil {
				return usageError{err}
			}
			cfg.Ready = func(control, ftp netip.AddrPort) { sayReady(cmd, readyFD, control, ftp) }
			cfg.Log = func(line string) { fmt.Fprintf(cmd.ErrOrStderr(), "xlane awm: %s\n", line) }
			ctx, stop := signalContext(cmd)
			defer stop()
			return awm.Serve(ctx, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "0.0.0.0:5201", "`ADDR:PORT` for runs")
	f.StringVar(&ports, "data-ports", "", "`LOW-HIGH` for data connections (default any)")
	f.StringVar(&ftp, "ftp-listen", "", "`ADDR:PORT` of an FTP server for any client (default none)")
	f.StringVar(&cpus, "cpu", "", "`LIST` of CPUs to run on and to report, such as 0,2-3")
	f.IntVar(&readyFD, "ready-fd", -1, "write the ready line to this descriptor as well, and close it")
	f.IntVar(&conns, "max-conns", awm.ConnsMax, "data connections of all runs")
	return cmd
}

// sayReady tells whoever started the server. A reader that has gone away is
// no reason to stop.
func sayReady(cmd *cobra.Command, fd int, control, ftp netip.AddrPort) {
	line := "ready " + control.String()
	if ftp.IsValid() {
		line += " ftp " + ftp.String()
	}
	fmt.Fprintln(cmd.OutOrStdout(), line)
	if fd >= 0 {
		if f := os.NewFile(uintptr(fd), "ready-fd"); f != nil {
			fmt.Fprintln(f, line)
			_ = f.Close()
		}
	}
}

// signalContext ends at the first SIGINT or SIGTERM; the second kills.
func signalContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func serveConfig(listen, ftp, ports, cpus string, conns int) (cfg awm.ServeConfig, err error) {
	if conns < 1 {
		return cfg, fmt.Errorf("--max-conns %d is not possible; use at least 1", conns)
	}
	cfg.MaxConns = conns
	if cfg.Listen, err = parseListen("--listen", listen); err != nil {
		return cfg, err
	}
	if ftp != "" {
		if cfg.FTPListen, err = parseListen("--ftp-listen", ftp); err != nil {
			return cfg, err
		}
	}
	if ports != "" {
		low, high, _ := strings.Cut(ports, "-")
		l, err1 := strconv.ParseUint(low, 10, 16)
		h, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || l == 0 || h < l {
			return cfg, fmt.Errorf("--data-ports %q is not a range; write 5300-5400", ports)
		}
		cfg.DataPorts = awm.PortRange{Low: uint16(l), High: uint16(h)}
	}
	if cpus != "" {
		cfg.CPUs, err = awm.ParseCPUs(cpus)
	}
	return cfg, err
}

func parseListen(flag, text string) (netip.AddrPort, error) {
	if strings.HasPrefix(text, ":") {
		text = "0.0.0.0" + text
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%s %q is not an address and port; write 10.0.0.2:5201 or [fd00::2]:5201", flag, text)
	}
	return a, nil
}

func newAWMRun() *cobra.Command {
	var cfg awm.RunConfig
	var cpus string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run HOST:PORT SPEC...",
		Short: "load the server at HOST:PORT with a mix, and report",
		Long:  awmHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("awm run needs a server and a workload: xlane awm run 10.0.0.2:5201 'RR1(100/800)'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			cfg.Server = args[0]
			if cfg.Specs, err = awm.ParseSpecs(args[1:]); err != nil {
				return usageError{err}
			}
			if cpus != "" {
				if cfg.CPUs, err = awm.ParseCPUs(cpus); err != nil {
					return usageError{err}
				}
			}
			ctx, stop := signalContext(cmd)
			defer stop()
			rep, err := awm.Run(ctx, cfg)
			if err != nil {
				return err
			}
			return printRun(cmd, rep, asJSON)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&cfg.Duration, "duration", 5*time.Second, "the window that is measured")
	f.DurationVar(&cfg.Warmup, "warmup", 500*time.Millisecond, "traffic before the window")
	f.DurationVar(&cfg.Interval, "interval", 0, "add samples of each `INTERVAL` to the JSON")
	f.IntVar(&cfg.Threads, "threads", 1, "threads for each class, on either side")
	f.StringVar(&cpus, "cpu", "", "`LIST` of CPUs to run on and to report, such as 0,2-3")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	f.BoolVar(&cfg.NoCheck, "no-check", false, "check lengths only, not contents")
	return cmd
}

// printRun prints the report, and fails if a payload was wrong.
func printRun(cmd *cobra.Command, rep awm.Report, asJSON bool) error {
	out := cmd.OutOrStdout()
	var err error
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		err = rep.WriteText(out)
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if n := rep.PayloadErrors(); n > 0 {
		return fmt.Errorf("%d payload errors: what was received is not what was sent", n)
	}
	return nil
}
