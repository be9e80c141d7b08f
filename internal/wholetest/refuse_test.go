package wholetest

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"xlane/internal/kernel/netns"
	"xlane/internal/testenv"
)

// sentence checks that a command failed with one clear sentence.
func sentence(t *testing.T, stdout, stderr string, code, wantCode int, want string) {
	t.Helper()
	line, rest, _ := strings.Cut(stderr, "\n")
	if code != wantCode || stdout != "" || rest != "" || !strings.HasPrefix(line, "xlane: ") {
		t.Errorf("exit code %d (want %d), stdout %q, stderr %q", code, wantCode, stdout, stderr)
	}
	if !strings.Contains(line, want) {
		t.Errorf("stderr %q does not say %q", line, want)
	}
}

func TestBadInputIsOneSentenceAndChangesNothing(t *testing.T) {
	p := plain(t)
	run(t, "ip", "-n", p.server, "link", "add", "br0", "type", "bridge")
	run(t, "ip", "-n", p.server, "link", "set", "br0", "up")
	down := func(ns string) func(*testing.T) func() {
		return func(t *testing.T) func() {
			run(t, "ip", "-n", ns, "link", "set", p.dev, "down")
			testenv.Eventually(t, soon, "both ends to be down", func() bool {
				return strings.Contains(run(t, "ip", "-n", p.server, "link", "show", p.dev), "state DOWN") &&
					strings.Contains(run(t, "ip", "-n", p.client, "link", "show", p.dev), "state DOWN")
			})
			return func() { run(t, "ip", "-n", ns, "link", "set", p.dev, "up"); p.awaitLink(t) }
		}
	}
	usual := p.state(t)
	for _, c := range []struct {
		name  string
		args  []string
		setUp func(*testing.T) func()
		code  int
		want  string
	}{
		{"a device that does not exist", []string{"nope", "--netns", p.server}, nil, 1, `there is no device "nope"`},
		{"the loopback", []string{"lo", "--netns", p.server}, nil, 1, `"lo" is the loopback`},
		{"a bridge", []string{"br0", "--netns", p.server}, nil, 1, `"br0" is a bridge`},
		{"the device is down", []string{p.dev, "--netns", p.server}, down(p.server), 1, "ip link set eth0 up"},
		{"its far end is down", []string{p.dev, "--netns", p.server}, down(p.client), 1, "the far end of"},
		{"a namespace that does not exist", []string{p.dev, "--netns", "xlw-none"}, nil, 1, `open namespace "xlw-none": no such namespace`},
		{"a file that is no namespace", []string{p.dev, "--netns", "/etc/hosts"}, nil, 1, "is not a network namespace"},
		{"a CPU that is not there", []string{p.dev, "--netns", p.server, "--cpus", "99"}, nil, 1, "CPU 99 is not online here"},
		{"CPUs that are no numbers", []string{p.dev, "--netns", p.server, "--cpus", "x"}, nil, 2, `"x" is not a number`},
		{"a mode without queues, with queues", []string{p.dev, "--netns", p.server, "--inbperf", "BALANCED", "--workloadq"}, nil, 2, "WORKLOADQ needs INBPERF DYNAMIC"},
		{"a mode that is none", []string{p.dev, "--netns", p.server, "--inbperf", "FAST"}, nil, 2, "FAST"},
		{"a flag that is none", []string{p.dev, "--netns", p.server, "--fast"}, nil, 2, "unknown flag: --fast"},
		{"no device", nil, nil, 2, "name at least one device"},
		{"a device named twice", []string{p.dev, p.dev, "--netns", p.server}, nil, 2, "named twice"},
		{"a name that cannot be one", []string{"eth0/1", "--netns", p.server}, nil, 2, "is not a name"},
		{"an address that is none", []string{p.dev, "--netns", p.server, "--sysdist", "10.0"}, nil, 2, `"10.0" is not an address`},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := usual
			if c.setUp != nil {
				defer c.setUp(t)()
				was = p.state(t)
			}
			args := append([]string{"run", "--socket", p.socket(), "--state-dir", p.stateDir()}, c.args...)
			out, errs, code := xlane(t, args...)
			sentence(t, out, errs, code, c.code, c.want)
			same(t, c.name, was, p.state(t))
		})
	}
}

func TestAStartThatFailsMidwayUndoesWhatItDid(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	many := make([]string, 0, 2000)
	for i := range 2000 { // more than the map of addresses holds
		many = append(many, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
	}
	// Addresses are registered after queues and offloads were changed and the sorter was attached.
	out, errs, code := xlane(t, p.runArgs("--sysdist", strings.Join(many, ","))...)
	if code != 1 || out != "" || !strings.Contains(errs, "2000 addresses: at most") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	same(t, "after a start that failed", was, p.state(t))

	// The same where a killed daemon's sorter is at work: it must stay at work.
	p.kill(t, p.daemon(t))
	quietly("rm", "-f", p.socket())
	was = p.state(t)
	_, errs, code = xlane(t, p.runArgs("--sysdist", strings.Join(many, ","))...)
	if code != 1 || !strings.Contains(errs, "2000 addresses: at most") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	hold := func(s string) string { // timers are the failed daemon's: none
		var keep []string
		for _, l := range strings.Split(s, "\n") {
			if !strings.Contains(l, " napi ") {
				keep = append(keep, l)
			}
		}
		return strings.Join(keep, "\n")
	}
	same(t, "after an adoption that failed", hold(was), hold(p.state(t)))
	if _, errs, code := p.reset(t); code != 0 {
		t.Errorf("reset: exit code %d: %s", code, errs)
	}
}

func TestSeveralDevicesAreTakenAllOrNone(t *testing.T) {
	p := plain(t)
	was := p.state(t)
	_, errs, code := xlane(t, p.runArgs("nope")...)
	if code != 1 || !strings.HasSuffix(errs, fmt.Sprintf("xlane: there is no device \"nope\" in namespace %q\n", p.server)) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	same(t, "after the second device failed", was, p.state(t))
}

func TestWithoutPrivilegeOrBPFNothingIsTried(t *testing.T) {
	p := plain(t)
	setpriv := testenv.Tool(t, "setpriv")
	for name, c := range map[string]struct{ flags, want string }{
		"as nobody":              {"--reuid=65534 --regid=65534 --clear-groups", "missing CAP_NET_ADMIN, CAP_BPF, CAP_SYS_ADMIN, CAP_SYS_NICE"},
		"root that may not BPF":  {"--bounding-set=-bpf,-sys_admin --inh-caps=-bpf,-sys_admin", "missing CAP_BPF, CAP_SYS_ADMIN"},
		"root without NET_ADMIN": {"--bounding-set=-net_admin --inh-caps=-net_admin", "missing CAP_NET_ADMIN"},
	} {
		t.Run(name, func(t *testing.T) {
			was := p.state(t)
			args := append(strings.Fields(c.flags), builtXlane(t))
			cmd := start(t, setpriv, append(args, p.runArgs()...)...)
			code := cmd.wait(t)
			sentence(t, cmd.stdout.String(), cmd.stderr.String(), code, 1, c.want)
			same(t, name, was, p.state(t))
		})
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	p := plain(t)
	d := p.daemon(t)
	want := fmt.Sprintf("device %q is already managed by process %d", p.dev, d.cmd.Process.Pid)
	dynamic := func(s string) string { // timers follow the policy
		var keep []string
		for _, l := range strings.Split(s, "\n") {
			if !strings.Contains(l, " napi ") {
				keep = append(keep, l)
			}
		}
		return strings.Join(keep, "\n")
	}
	was := dynamic(p.state(t))
	for name, socket := range map[string]string{"the same socket": p.socket(), "another socket": filepath.Join(p.dir, "other")} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := xlane(t, p.runArgs("--socket", socket)...)
			sentence(t, out, errs, code, 1, want)
			quietly("rm", "-f", filepath.Join(p.dir, "other.lock"))
			same(t, name, was, dynamic(p.state(t)))
		})
	}
	if s := p.shown(t).State; s != "READY" {
		t.Errorf("the first daemon's device is %s", s)
	}
	p.stop(t, d)
}

// Goal: a far end that is out of sight is said to be. Method: its namespace is
// held by an open file of this process alone, which no search can find.
func TestAFarEndThatCannotBeSeenIsSaid(t *testing.T) {
	p := plain(t)
	held, err := netns.Open(p.client)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	run(t, "ip", "netns", "del", p.client)
	out, errs, code := xlane(t, p.runArgs()...)
	sentence(t, out, errs, code, 1, `far end of "eth0" is in a namespace that this process cannot see`)
	if left := p.leftovers(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// gone checks how a daemon ends whose device went away, and that nothing is left.
func gone(t *testing.T, p *pair, d *process, pins, want string) {
	t.Helper()
	if code := d.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(d.stderr.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "xlane: ") || !strings.Contains(last, want) {
		t.Errorf("the last line is %q, want it to say %q", last, want)
	}
	if n := strings.Count("\n"+d.stderr.String(), "\nxlane: "); n != 1 {
		t.Errorf("%d sentences, want 1: %s", n, d.stderr)
	}
	left, err := filepath.Glob(pins + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("pins are left: %q (%v)", left, err)
	}
	if left := p.leftovers(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestADeviceThatGoesAwayEndsTheDaemon(t *testing.T) {
	for _, c := range []struct {
		name string
		goes func(*testing.T, *pair)
		want string
	}{
		{"it is deleted", func(t *testing.T, p *pair) { run(t, "ip", "-n", p.server, "link", "del", p.dev) }, `device "eth0"`},
		{"its far end is deleted", func(t *testing.T, p *pair) { run(t, "ip", "-n", p.client, "link", "del", p.dev) }, `device "eth0"`},
		{"its namespace is deleted", func(t *testing.T, p *pair) { run(t, "ip", "netns", "del", p.server) }, "no longer exists"},
		{"the far end's namespace is deleted", func(t *testing.T, p *pair) { run(t, "ip", "netns", "del", p.client) }, `"eth0"`},
		{"it is moved to another namespace", func(t *testing.T, p *pair) {
			run(t, "ip", "-n", p.server, "link", "set", p.dev, "netns", p.client, "name", "moved0")
		}, `device "eth0"`},
		{"another takes its place", func(t *testing.T, p *pair) {
			run(t, "ip", "-n", p.server, "link", "del", p.dev)
			run(t, "ip", "link", "add", p.dev, "netns", p.server, "type", "veth", "peer", "name", p.dev, "netns", p.client)
		}, `device "eth0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plain(t)
			pins := p.pinDir(t)
			sack := in(t, p.server, "sysctl", "net.ipv4.tcp_comp_sack_nr")
			d := p.daemon(t)
			c.goes(t, p)
			gone(t, p, d, pins, c.want)
			if _, err := netns.Open(p.server); err == nil {
				if now := in(t, p.server, "sysctl", "net.ipv4.tcp_comp_sack_nr"); now != sack {
					t.Errorf("the sysctl is %q, was %q", now, sack)
				}
			}
		})
	}
}

// Goal: a failure of the last step is said. Method: what lies where the record
// was cannot be removed as a file.
func TestAFailureToFinishIsSaid(t *testing.T) {
	p := plain(t)
	d := p.daemon(t)
	record := p.record(t)
	// A directory with a file in it cannot be removed as the record is.
	run(t, "rm", record)
	run(t, "mkdir", "-p", record+"/x")
	d.signal(syscall.SIGTERM)
	if code := d.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(d.stderr.String(), "xlane: remove the record: ") {
		t.Errorf("stderr: %s", d.stderr)
	}
}
