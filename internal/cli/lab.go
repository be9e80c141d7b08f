package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"xlane/internal/bench"
	"xlane/internal/lab"
)

// labStopWait is how long `lab down` waits for one lab's keeper: it kills what
// runs inside first, and each process may take some seconds.
const labStopWait = 30 * time.Second

// labReport is what `lab up --json` prints.
type labReport struct {
	Name      string          `json:"name"`
	PID       int             `json:"pid"` // of the process that keeps it
	WireNetNS string          `json:"wire_netns"`
	Bridge    string          `json:"bridge"`
	Hosts     []labHostReport `json:"hosts"`
}

type labHostReport struct {
	Name   string `json:"name"`
	NetNS  string `json:"netns"`
	Dev    string `json:"dev"`
	FarDev string `json:"far_dev"`
	Addr4  string `json:"addr4"`
	Addr6  string `json:"addr6"`
	MAC    string `json:"mac"`
	Queues int    `json:"queues,omitempty"` // absent: a plain veth's
	MTU    int    `json:"mtu"`
}

// labFlags are the flags of `lab up`.
type labFlags struct {
	name       string
	hosts      []string
	link       lab.LinkSpec
	rate       string
	loss       float64
	reorder    float64
	delay      time.Duration
	jitter     time.Duration
	seed       uint64
	json       bool
	foreground bool
}

func newLab() *cobra.Command {
	return commandGroup("lab", "hosts around a wire, on this machine, in network namespaces", "verb",
		newLabUp(), newLabDown(), newLabDemo())
}

func newLabUp() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "make a lab that stays until `xlane lab down`",
		Long: "Makes hosts in network namespaces, each with a link to a switch, prints how to reach them, and\n" +
			"returns. A process in the background keeps the lab until `xlane lab down`. Rate, loss, delay and\n" +
			"reordering hold for the frames that each host sends.",
		Args: argCount(cobra.NoArgs, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(); err != nil {
				return usageError{err}
			}
			if f.foreground {
				return keepLab(f, cmd.OutOrStdout())
			}
			report, err := startKeeper(f)
			if err != nil {
				return err
			}
			return report.print(cmd.OutOrStdout(), f.json)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the lab (default: one that is unique)")
	flags.StringSliceVar(&f.hosts, "hosts", []string{"client", "server"}, "names of the hosts")
	flags.IntVar(&f.link.Queues, "queues", 0, "queues of each link (default 4)")
	flags.IntVar(&f.link.MTU, "mtu", 1500, "MTU in bytes")
	flags.BoolVar(&f.link.PlainVeth, "plain-veth", false, "links as the kernel makes them: large frames, one queue")
	flags.StringVar(&f.rate, "rate", "", "limit in bits per second, with suffix k, M or G")
	flags.Float64Var(&f.loss, "loss", 0, "frames to lose, in percent")
	flags.Float64Var(&f.reorder, "reorder", 0, "frames to hold back behind later ones, in percent")
	flags.DurationVar(&f.delay, "delay", 0, "time to hold every frame, such as 500us")
	flags.DurationVar(&f.jitter, "jitter", 0, "spread of the delay, to both sides")
	flags.Uint64Var(&f.seed, "seed", 0, "chooses which frames are hit")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.foreground, "foreground", false, "keep the lab in this process, until it gets SIGINT or SIGTERM")
	return cmd
}

// complete turns the flags into a link and says what is wrong with them.
func (f *labFlags) complete() error {
	rate, err := parseRate(f.rate)
	if err != nil {
		return err
	}
	for flag, percent := range map[string]float64{"loss": f.loss, "reorder": f.reorder} {
		if !(percent >= 0 && percent <= 100) { // also refuses NaN
			return fmt.Errorf("--%s %v is not a percentage; use 0 to 100", flag, percent)
		}
	}
	f.link.Out = lab.Path{RateBPS: rate, Faults: lab.Faults{
		Loss: f.loss / 100, Reorder: f.reorder / 100, Delay: f.delay, Jitter: f.jitter, Seed: f.seed,
	}}
	if len(f.hosts) == 0 {
		return errors.New("a lab needs at least one host")
	}
	return f.link.Check()
}

// parseRate reads bits per second: a number and k, M or G for its thousands.
func parseRate(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	unit, digits := 1.0, s
	switch s[len(s)-1] {
	case 'k', 'K':
		unit = 1e3
	case 'm', 'M':
		unit = 1e6
	case 'g', 'G':
		unit = 1e9
	}
	if unit > 1 {
		digits = s[:len(s)-1]
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(n >= 0 && n*unit < 1e15) { // also refuses NaN
		return 0, fmt.Errorf("rate %q is not a number of bits per second; write it like 100M or 1.5G", s)
	}
	return uint64(n * unit), nil
}

// keepLab makes the lab, prints it, and removes it when it is told to end.
func keepLab(f labFlags, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	l, err := lab.New(ctx, lab.Config{Name: f.name, Kept: true})
	if err != nil {
		return err
	}
	for _, name := range f.hosts {
		if _, err := l.AddHost(name, f.link); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	if err := reportOf(l).print(stdout, f.json); err != nil {
		return errors.Join(err, l.Close())
	}
	<-ctx.Done()
	return l.Close()
}

// startKeeper runs `lab up --foreground` with the same flags in a session of
// its own, so that it outlives this process and its terminal, and returns what
// it reports.
func startKeeper(f labFlags) (labReport, error) {
	self, err := os.Executable()
	if err != nil {
		return labReport{}, fmt.Errorf("find own program: %w", err)
	}
	keeper := exec.Command(self, f.args()...)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	keeper.Dir = "/"
	stdout, err := keeper.StdoutPipe()
	if err != nil {
		return labReport{}, fmt.Errorf("start keeper: %w", err)
	}
	var stderr bytes.Buffer
	keeper.Stderr = &stderr
	if err := keeper.Start(); err != nil {
		return labReport{}, fmt.Errorf("start keeper: %w", err)
	}
	var report labReport
	if err := json.NewDecoder(stdout).Decode(&report); err != nil {
		// It has printed no report, so it is ending, and says why on stderr.
		if failed := keeper.Wait(); failed != nil {
			said := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "xlane: ")
			return labReport{}, errors.New(said)
		}
		return labReport{}, fmt.Errorf("read keeper's report: %w", err)
	}
	// The keeper writes nothing any more, and is not waited for: it goes on.
	return report, keeper.Process.Release()
}

// args are the flags of the keeper.
func (f labFlags) args() []string {
	return []string{
		"lab", "up", "--foreground", "--json",
		"--name=" + f.name,
		"--hosts=" + strings.Join(f.hosts, ","),
		"--queues=" + strconv.Itoa(f.link.Queues),
		"--mtu=" + strconv.Itoa(f.link.MTU),
		"--plain-veth=" + strconv.FormatBool(f.link.PlainVeth),
		"--rate=" + f.rate,
		"--loss=" + strconv.FormatFloat(f.loss, 'g', -1, 64),
		"--reorder=" + strconv.FormatFloat(f.reorder, 'g', -1, 64),
		"--delay=" + f.delay.String(),
		"--jitter=" + f.jitter.String(),
		"--seed=" + strconv.FormatUint(f.seed, 10),
	}
}

func reportOf(l *lab.Lab) labReport {
	r := labReport{Name: l.Name, PID: os.Getpid(), WireNetNS: l.Wire.NetNS, Bridge: l.Wire.Bridge}
	for _, h := range l.Hosts() {
		r.Hosts = append(r.Hosts, labHostReport{
			Name: h.Name, NetNS: h.NetNS, Dev: h.Dev, FarDev: h.FarDev,
			Addr4: h.Addr4.String(), Addr6: h.Addr6.String(), MAC: h.MAC.String(),
			Queues: h.Spec().Queues, MTU: h.Spec().MTU,
		})
	}
	return r
}

func (r labReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	fmt.Fprintf(w, "lab %s is up; its wire is namespace %s, bridge %s\n\n", r.Name, r.WireNetNS, r.Bridge)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\tNAMESPACE\tDEVICE\tADAPTER\tIPV4\tIPV6")
	for _, h := range r.Hosts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", h.Name, h.NetNS, h.Dev, h.FarDev, h.Addr4, h.Addr6)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	first, last := r.Hosts[0], r.Hosts[len(r.Hosts)-1]
	_, err := fmt.Fprintf(w, "\nrun something:  ip netns exec %s ping %s\nsort a host:    xlane run %s --netns %s\nremove it:      xlane lab down %s\n",
		first.NetNS, last.Addr4, last.Dev, last.NetNS, r.Name)
	return err
}

func newLabDown() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "down [NAME]",
		Short: "remove a lab, or all that `lab up` made or a crash left behind",
		Args:  argCount(cobra.MaximumNArgs(1), "at most one lab"),
		RunE: func(cmd *cobra.Command, args []string) error {
			gone, err := labsDown(cmd.Context(), args)
			if len(args) == 0 { // what a killed bench left
				_, idleErr := bench.RestoreIdle()
				err = errors.Join(err, idleErr)
			}
			if asJSON {
				return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(map[string][]string{"removed": gone}))
			}
			for _, name := range gone {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", name)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// labsDown stops the labs that are named, or every kept one, and, when none is
// named, also removes leftovers. It returns what it removed.
func labsDown(ctx context.Context, names []string) ([]string, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	gone := []string{}
	all := len(names) == 0
	if all {
		kept, err := lab.Kept()
		if err != nil {
			return gone, err
		}
		names = kept
	}
	var errs []error
	for _, name := range names {
		within, cancel := context.WithTimeout(ctx, labStopWait)
		full, err := lab.Stop(within, name)
		cancel()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, full)
	}
	if all {
		left, err := lab.Down(ctx)
		gone = append(gone, left...)
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}
