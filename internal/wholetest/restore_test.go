package wholetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/thread"
	"xlane/internal/model"
	"xlane/internal/testenv"
)

// ownTimers gives the server's device GRO, and a NAPI with timers and a thread
// of its owner's choice.
func ownTimers(t *testing.T, p *pair) {
	t.Helper()
	in(t, p.server, "ethtool", "-K", p.dev, "gro", "on")
	ns, err := netns.Open(p.server)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := napi.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.List(ifindex(t, ns, p.dev))
	if err != nil || len(list) != 1 {
		t.Fatalf("%d polling instances (%v), want 1", len(list), err)
	}
	if err := c.SetThreaded(list[0].ID, true); err != nil {
		t.Fatal(err)
	}
	if err := c.SetHold(list[0].ID, model.Hold{Timeout: 77 * time.Microsecond, DeferCount: 3}); err != nil {
		t.Fatal(err)
	}
	n, err := c.Get(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	th, err := thread.OfNAPI(n.PID, n.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(th.SetAffinity(cpu.Of(1)), th.SetPriority(thread.Priority{Policy: thread.FIFO, Realtime: 4})); err != nil {
		t.Fatal(err)
	}
}

// before are hosts as a daemon may find them.
var before = []struct {
	name string
	make func(*testing.T, *pair)
}{
	{"a fresh veth", func(*testing.T, *pair) {}},
	{"GRO was on, with timers and a thread of its owner's", ownTimers},
	{"the far end had no TSO, and XPS", func(t *testing.T, p *pair) {
		in(t, p.client, "ethtool", "-K", p.dev, "tso", "off")
		in(t, p.client, "ethtool", "-L", p.dev, "tx", "1")
		in(t, p.client, "sh", "-c", "echo 1 >/sys/class/net/"+p.dev+"/queues/tx-0/xps_cpus")
		in(t, p.server, "sysctl", "-qw", "net.ipv4.tcp_comp_sack_nr=7")
	}},
	{"the far end has a qdisc", func(t *testing.T, p *pair) {
		in(t, p.client, "tc", "qdisc", "add", "dev", p.dev, "root", "handle", "1:", "mq")
	}},
}

func TestSIGTERMPutsEverythingBack(t *testing.T) {
	for _, c := range before {
		t.Run(c.name, func(t *testing.T) {
			p := plain(t)
			c.make(t, p)
			was := p.state(t)
			d := p.daemon(t)
			if p.state(t) == was {
				t.Error("nothing was changed")
			}
			p.stop(t, d)
			same(t, "after SIGTERM", was, p.state(t))
		})
	}
}

func TestKilledAdoptedAndStoppedLeavesWhatTheFirstFound(t *testing.T) {
	for _, c := range before {
		t.Run(c.name, func(t *testing.T) {
			p := plain(t)
			c.make(t, p)
			was := p.state(t)
			p.kill(t, p.daemon(t))
			d := p.daemon(t)
			d.logs(t, "msg=adopted")
			p.stop(t, d)
			same(t, "after kill, run, SIGTERM", was, p.state(t))
		})
	}
}

func TestKilledAndResetIsAsBefore(t *testing.T) {
	for _, c := range before {
		t.Run(c.name, func(t *testing.T) {
			p := plain(t)
			c.make(t, p)
			was := p.state(t)
			p.kill(t, p.daemon(t))
			out, errs, code := p.reset(t)
			if code != 0 || !strings.Contains(out, "settings put back") {
				t.Errorf("reset: exit code %d: %s%s", code, out, errs)
			}
			quietly("rm", "-f", p.socket()) // what a killed daemon leaves, and the next replaces
			same(t, "after kill and reset", was, p.state(t))
			if out, errs, code = p.reset(t); code != 0 || out != "nothing to put back\n" || errs != "" {
				t.Errorf("a second reset: exit code %d: %s%s", code, out, errs)
			}
		})
	}
}

func TestASecondModeTakesTheFirstOnesSorterOff(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	p.kill(t, p.daemon(t))
	d := p.daemon(t, "--workloadq=false", "--inbperf", "BALANCED")
	ns, err := netns.Open(p.client)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if n := len(programs(t, ns, ifindex(t, ns, p.dev), ebpf.AttachTCXEgress)); n != 0 {
		t.Errorf("%d programs are attached, want 0", n)
	}
	p.stop(t, d)
	same(t, "after the second mode", was, p.state(t))
}

func TestResetLeavesARunningDaemonAlone(t *testing.T) {
	p := plain(t)
	d := p.daemon(t)
	was := p.state(t)
	out, errs, code := p.reset(t)
	want := fmt.Sprintf("device %q is already managed by process %d: left alone\n", p.dev, d.cmd.Process.Pid)
	if code != 0 || out != want || errs != "" {
		t.Errorf("got exit code %d, %q, %q; want %q", code, out, errs, want)
	}
	if s := p.shown(t).State; s != model.StateReady {
		t.Errorf("the daemon's device is %s", s)
	}
	dynamic := func(s string) string { return s[:strings.Index(s, " napi ")] }
	same(t, "after a reset beside a daemon", dynamic(was), dynamic(p.state(t)))
	p.stop(t, d)
}

func TestARecordThatCannotBeReadIsLeft(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	p.kill(t, p.daemon(t))
	path := p.record(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cut off": string(whole[:len(whole)/2]), "empty": "", "of another version": `{"version": 99}`} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			left := p.state(t)
			for _, args := range [][]string{{"reset", "--state-dir", p.stateDir()}, p.runArgs()} {
				out, errs, code := xlane(t, args...)
				if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, path) {
					t.Errorf("%s: exit code %d, %q, %q", args[0], code, out, errs)
				}
				quietly("rm", "-f", p.socket())
			}
			same(t, "after a bad record", strings.ReplaceAll(left, "left "+p.socket()+"\n", ""), p.state(t))
			if now, err := os.ReadFile(path); err != nil || string(now) != text {
				t.Errorf("the record is now %q (%v)", now, err)
			}
		})
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.reset(t); code != 0 {
		t.Errorf("reset: exit code %d: %s", code, errs)
	}
	same(t, "after the whole record was reset", was, p.state(t))
}

func TestAResetAfterTheNamespaceIsGoneRemovesRecordAndPins(t *testing.T) {
	p := plain(t)
	pins := p.pinDir(t)
	p.kill(t, p.daemon(t))
	run(t, "ip", "netns", "del", p.server)
	if _, err := os.Stat(pins); err != nil {
		t.Fatalf("the pins: %v", err)
	}
	out, errs, code := p.reset(t)
	if code != 0 || !strings.Contains(out, "gone with their device") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if _, err := os.Stat(pins); !os.IsNotExist(err) {
		t.Errorf("the pins: %v", err)
	}
	quietly("rm", "-f", p.socket())
	if left := p.leftovers(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Goal: a record is never applied to a stranger. Method: the killed daemon's
// device is replaced by one of the same name in the same namespace, whose
// settings differ; reset and the next daemon must leave these as they are.
func TestARecordIsNotAppliedToAnotherDeviceOfTheSameName(t *testing.T) {
	p := plain(t)
	p.kill(t, p.daemon(t))
	run(t, "ip", "-n", p.server, "link", "del", p.dev)
	run(t, "ip", "link", "add", p.dev, "netns", p.server, "type", "veth", "peer", "name", p.dev, "netns", p.client)
	for _, ns := range []string{p.server, p.client} {
		run(t, "ip", "-n", ns, "link", "set", p.dev, "up")
	}
	in(t, p.client, "ethtool", "-K", p.dev, "tso", "off")
	in(t, p.server, "ethtool", "-K", p.dev, "gro", "on")
	in(t, p.server, "sysctl", "-qw", "net.ipv4.tcp_comp_sack_nr=44") // as the first found it
	p.kill(t, p.daemon(t))
	if _, errs, code := p.reset(t); code != 0 {
		t.Fatalf("reset: exit code %d: %s", code, errs)
	}
	if got := in(t, p.client, "ethtool", "-k", p.dev); !strings.Contains(got, "tx-tcp-segmentation: off") {
		t.Error("TSO of the new far end was switched on")
	}
	if got := in(t, p.server, "ethtool", "-k", p.dev); !strings.Contains(got, "generic-receive-offload: on") {
		t.Error("GRO of the new device was switched off")
	}
}

func TestSIGTERMAtAnyMomentOfTheStartPutsEverythingBack(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	rnd := testenv.Rand(t)
	for range 5 {
		d := p.startDaemon(t)
		wait := time.NewTimer(time.Duration(rnd.Intn(200)) * time.Millisecond)
		<-wait.C
		d.signal(syscall.SIGTERM)
		// Before the program has installed its handler, the signal kills it:
		// it has changed nothing then.
		if code := d.wait(t); code != 0 && code != -1 {
			t.Errorf("exit code %d: %s", code, d.stderr)
		}
		quietly("rm", "-f", p.socket())
		same(t, "after an early SIGTERM", was, p.state(t))
	}
}

func TestALogThatNobodyReadsDoesNotEndTheDaemon(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(builtXlane(t), p.runArgs()...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close() // every write of the daemon is to a broken pipe
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	testenv.Eventually(t, soon, "the daemon to serve", func() bool {
		_, _, code := xlane(t, "tnstats", "--socket", p.socket())
		return code == 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	same(t, "after a broken log", was, p.state(t))
}
