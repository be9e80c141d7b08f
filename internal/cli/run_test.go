package cli

import (
	"context"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"xlane/internal/model"
)

func TestRunRefusesWhatContradictsItselfBeforeItLooksAtTheHost(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no device", nil, "name at least one device"},
		{"a device named twice", []string{"eth0", "eth0"}, `device "eth0" is named twice`},
		{"a mode that is none", []string{"eth0", "--inbperf", "FAST"}, "FAST"},
		{"queues without DYNAMIC", []string{"eth0", "--inbperf", "MINCPU", "--workloadq"}, "WORKLOADQ needs INBPERF DYNAMIC, not MINCPU"},
		{"polling without queues", []string{"eth0", "--olm", "--workloadq=false"}, "OLM without WORKLOADQ"},
		{"CPUs that are no numbers", []string{"eth0", "--cpus", "0-x"}, `--cpus "0-x"`},
		{"an address that is none", []string{"eth0", "--sysdist", "10.0.0.300"}, `"10.0.0.300" is not an address`},
		{"a name too long for the kernel", []string{"a-very-long-device"}, "use 1 to 15 characters"},
		{"a flag that is none", []string{"eth0", "--dynamic"}, "unknown flag: --dynamic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs strings.Builder
			code := Run(append([]string{"run"}, c.args...), &out, &errs)
			if code != exitUsage || out.String() != "" || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out.String(), errs.String())
			}
		})
	}
}

func TestRunAloneMeansDynamicWorkloadQ(t *testing.T) {
	for _, c := range []struct {
		args string
		mode model.INBPERF
		sort bool
		olm  bool
	}{
		{"eth0", model.Dynamic, true, false},
		{"eth0 --inbperf balanced", model.Balanced, false, false},
		{"eth0 --workloadq=false", model.Dynamic, false, false},
		{"eth0 --olm", model.Dynamic, true, true},
		{"eth0 --olm --inbperf MINCPU", model.Dynamic, true, true},
	} {
		t.Run(c.args, func(t *testing.T) {
			cmd := newRun()
			if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			var f runFlags
			f.inbperf, _ = cmd.Flags().GetString("inbperf")
			f.workloadq, _ = cmd.Flags().GetBool("workloadq")
			f.olm, _ = cmd.Flags().GetBool("olm")
			got, err := f.interfaces(cmd, cmd.Flags().Args())
			if err != nil {
				t.Fatal(err)
			}
			if g := got[0]; g.INBPERF != c.mode || g.WorkloadQ != c.sort || g.OLM != c.olm {
				t.Errorf("got %v, sort %v, olm %v", g.INBPERF, g.WorkloadQ, g.OLM)
			}
		})
	}
}

func TestEveryDeviceGetsTheFlags(t *testing.T) {
	cmd := newRun()
	f := runFlags{netns: "n", inbperf: "DYNAMIC", workloadq: true, cpus: "0", sysdist: []string{"10.0.0.1", "fd00::1"}, thresholdBytes: 5, flowsMax: 64}
	got, err := f.interfaces(cmd, []string{"a", "b"})
	if err != nil || len(got) != 2 {
		t.Fatalf("got %v, %v", got, err)
	}
	for i, in := range got {
		if in.Device != string("ab"[i]) || in.Netns != "n" || in.CPUs != "0" || in.ThresholdBytes != 5 || in.FlowsMax != 64 ||
			len(in.SysDist) != 2 || in.SysDist[1] != netip.MustParseAddr("fd00::1") {
			t.Errorf("got %+v", in)
		}
	}
}

// Goal: every signal that stops a daemon lets it put things back, and a broken
// pipe does not stop it.
func TestTheSignalsThatStopADaemon(t *testing.T) {
	t.Cleanup(func() { signal.Reset(syscall.SIGPIPE) })
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		ctx, stop := stopContext(context.Background())
		if err := syscall.Kill(os.Getpid(), syscall.SIGPIPE); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		deadline := time.NewTimer(10 * time.Second)
		select {
		case <-ctx.Done():
		case <-deadline.C:
			t.Errorf("%v does not end it", s)
		}
		stop()
	}
}
