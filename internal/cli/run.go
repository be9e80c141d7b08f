package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/api"
	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/probe"
	"xlane/internal/model"
	"xlane/internal/profile"
	"xlane/internal/stack"
)

// Version is the build's version, set by the linker.
var Version = "0.1.0-dev"

type runFlags struct {
	netns, inbperf, cpus, adapter, socket, stateDir string
	profile                                         string
	symbols                                         []string
	workloadq, olm, verbose                         bool
	sysdist                                         []string
	thresholdBytes, flowsMax                        uint32
}

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run DEV... | run -f PROFILE",
		Short: "manage devices, in the foreground, until SIGTERM",
		Long: `Sorts what the devices receive onto queues by workload, and tunes each queue's
timers apart. Without flags: INBPERF DYNAMIC WORKLOADQ. Prints "ready" when
traffic is being sorted; SIGTERM, SIGINT or SIGHUP puts everything back.

With -f the devices are those that the PROFILE's INTERFACE statements name, and
each is managed as its statement says; --netns, --cpus and --adapter hold for
all of them. What a profile asks for and xlane does not do yet is said.`,
		RunE: func(cmd *cobra.Command, devices []string) error {
			interfaces, err := f.interfaces(cmd, devices)
			if f.profile != "" {
				interfaces, err = f.fromProfile(cmd, devices)
			}
			var failed profileError
			if errors.As(err, &failed) {
				return err
			}
			if err != nil {
				return usageError{err}
			}
			return runDaemon(cmd, f, interfaces)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.profile, "profile", "f", "", "manage what this `PROFILE` defines")
	fl.StringArrayVar(&f.symbols, "symbol", nil, "a system symbol of the profile, as `NAME=VALUE`")
	fl.StringVar(&f.netns, "netns", "", "the devices' network namespace: a `NAME` or path")
	fl.StringVar(&f.inbperf, "inbperf", "DYNAMIC", "inbound timers: DYNAMIC, MINLATENCY, BALANCED or MINCPU")
	fl.BoolVar(&f.workloadq, "workloadq", true, "sort by workload (DYNAMIC only)")
	fl.BoolVar(&f.olm, "olm", false, "busy-poll the primary queue (optimized latency mode)")
	fl.StringVar(&f.cpus, "cpus", "", "CPUs that may deliver queues, as a `LIST` such as 0-1")
	fl.StringVar(&f.adapter, "adapter", "", "veth or cpumap; chosen by device when not given")
	fl.StringSliceVar(&f.sysdist, "sysdist", nil, "distributed `ADDRESS`es: their TCP goes to SYSDIST")
	fl.Uint32Var(&f.thresholdBytes, "bulk-threshold", 0, "one-way payload `BYTES` that make a connection bulk (180000)")
	fl.Uint32Var(&f.flowsMax, "flows-max", 0, "connections tracked at one time, a power of two (65536)")
	fl.StringVar(&f.socket, "socket", api.DefaultSocket, "where commands reach the daemon")
	fl.StringVar(&f.stateDir, "state-dir", stack.StateDir, "where changes to the host are recorded")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log every event, not decisions only")
	return cmd
}

// interfaces builds the configuration that a PROFILE would.
func (f *runFlags) interfaces(cmd *cobra.Command, devices []string) ([]profile.Interface, error) {
	if len(devices) == 0 {
		return nil, usagef("run: name at least one device")
	}
	mode, err := model.ParseINBPERF(f.inbperf)
	if err != nil {
		return nil, err
	}
	if _, err := cpu.ParseList(f.cpus); err != nil {
		return nil, fmt.Errorf("--cpus %q: %w", f.cpus, err)
	}
	in := profile.Interface{
		Netns: f.netns, INBPERF: mode, OLM: f.olm, CPUs: f.cpus, Adapter: f.adapter,
		ThresholdBytes: f.thresholdBytes, FlowsMax: f.flowsMax,
		WorkloadQ: f.workloadq && (mode == model.Dynamic || f.olm || cmd.Flags().Changed("workloadq")),
	}
	for _, s := range f.sysdist {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("--sysdist %q is not an address: %w", s, err)
		}
		in.SysDist = append(in.SysDist, a)
	}
	seen := map[string]bool{}
	var out []profile.Interface
	for _, dev := range devices {
		if seen[dev] {
			return nil, fmt.Errorf("device %q is named twice", dev)
		}
		seen[dev] = true
		in.Device = dev
		next := in
		if err := next.Check(); err != nil {
			return nil, err
		}
		out = append(out, next)
	}
	return out, nil
}

// profileError is a profile that cannot be used, as opposed to a command line.
type profileError struct{ error }

// fromProfile reads the interfaces of a PROFILE. Its messages go to stderr.
func (f *runFlags) fromProfile(cmd *cobra.Command, devices []string) ([]profile.Interface, error) {
	if len(devices) > 0 {
		return nil, usagef("run: -f names the devices; leave %q out, or define it in the profile", devices[0])
	}
	for _, name := range []string{"inbperf", "workloadq", "olm", "sysdist"} {
		if cmd.Flags().Changed(name) {
			return nil, usagef("run: --%s is said by the profile's INTERFACE statements; leave it out", name)
		}
	}
	symbols, err := parseSymbols(f.symbols)
	if err != nil {
		return nil, err
	}
	text, err := readProfile(cmd.InOrStdin(), f.profile)
	if err != nil {
		return nil, profileError{err}
	}
	cfg, msgs := profile.Parse(profile.Source{
		Name: f.profile, Text: text, Symbols: symbols,
		Include: func(name string) ([]byte, error) { return readProfile(nil, name) },
	})
	fmt.Fprint(cmd.ErrOrStderr(), msgs)
	if cfg == nil {
		return nil, profileError{fmt.Errorf("the profile %s cannot be used", f.profile)}
	}
	out := cfg.Interfaces()
	if len(out) == 0 {
		return nil, profileError{fmt.Errorf("the profile %s defines no interface; add INTERFACE name DEFINE IPAQENET PORTNAME device", f.profile)}
	}
	for i := range out {
		out[i].Netns, out[i].CPUs, out[i].Adapter = f.netns, f.cpus, f.adapter
		out[i].ThresholdBytes, out[i].FlowsMax = f.thresholdBytes, f.flowsMax
		if err := out[i].Check(); err != nil {
			return nil, profileError{err}
		}
	}
	return out, nil
}

func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// stopContext ends at the signals that stop a daemon: SIGTERM, SIGINT, and the
// terminal's SIGHUP unless nohup ignores it. A log that nobody reads any more
// must not end it: the SIGPIPE of a broken stderr would leave everything in
// place.
func stopContext(parent context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(parent, signals...)
}

func runDaemon(cmd *cobra.Command, f runFlags, interfaces []profile.Interface) error {
	if err := probe.Require(); err != nil {
		return err
	}
	log := logger(cmd.ErrOrStderr(), f.verbose)
	ctx, stop := stopContext(cmd.Context())
	defer stop()
	cfg := stack.Config{Interfaces: interfaces, Version: Version, StateDir: f.stateDir, Log: log}
	// Before the socket: that another daemon has the device says more than that
	// it has the socket.
	if err := stack.Managed(cfg); err != nil {
		return err
	}
	listener, err := api.Listen(f.socket, api.DefaultGroup)
	if err != nil {
		return err
	}
	defer listener.Close()
	s, err := stack.Start(ctx, cfg)
	if errors.Is(err, stack.ErrStopped) {
		return nil // as asked
	}
	if err != nil {
		return err
	}
	served := make(chan struct{})
	serveCtx, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		err := api.Serve(serveCtx, listener, api.Config{Source: s, Build: Version, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)})
		if err != nil {
			log.Warn("commands cannot reach the daemon any more; sorting goes on", "error", err)
		}
		close(served)
	}()
	fmt.Fprintln(cmd.OutOrStdout(), "ready")
	err = s.Run(ctx)
	stopServing()
	<-served
	return err
}

func newReset() *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "remove what a killed daemon left, and put the host back",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			none := true
			err := stack.Reset(ctx, stack.Config{StateDir: stateDir}, func(line string) {
				none = false
				fmt.Fprintln(cmd.OutOrStdout(), line)
			})
			if none && err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to put back")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", stack.StateDir, "where changes to the host are recorded")
	return cmd
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q: this command takes no arguments", args[0])
	}
	return nil
}

func newDoctor() *cobra.Command {
	var netnsSpec, adapter string
	cmd := &cobra.Command{
		Use:   "doctor [DEV...]",
		Short: "say what this host has, what is missing, and what is lost without it",
		Long: `Says what xlane needs of this host, line by line, and what is lost without it.
Of devices that are named it says which adapter would drive them, and what that
adapter cannot do there. Nothing is changed.`,
		RunE: func(cmd *cobra.Command, devices []string) error {
			missing := 0
			for _, p := range probe.All() {
				word := "yes"
				if !p.OK {
					word = "NO"
					missing++
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-3s  %-18s %s\n", word, p.Name, p.Detail)
				if !p.OK {
					fmt.Fprintf(cmd.OutOrStdout(), "     %-18s without it: %s\n", "", p.Lost)
				}
			}
			for _, dev := range devices {
				name, cannot, err := stack.Assess(profile.Interface{Device: dev, Netns: netnsSpec, Adapter: adapter})
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: the %s adapter\n", dev, name)
				for _, c := range cannot {
					fmt.Fprintf(cmd.OutOrStdout(), "     it cannot %s\n", c)
				}
			}
			if missing > 0 {
				return fmt.Errorf("%d of what xlane needs is missing", missing)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&netnsSpec, "netns", "", "the devices' network namespace: a `NAME` or path")
	cmd.Flags().StringVar(&adapter, "adapter", "", "veth or cpumap; chosen by device when not given")
	return cmd
}
