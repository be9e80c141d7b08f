// Package wholetest runs the real binary as an operator would, on namespaces
// made with ip(8), and compares everything it may touch before and after. It
// decides nothing about the product: each room's own tests do that. It holds
// what its tests share: the binary, a daemon, a pair of plain hosts.
package wholetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xlane/internal/kernel/bpffs"
	"xlane/internal/kernel/netns"
	"xlane/internal/model"
	"xlane/internal/testenv"
)

// Deadlines of Eventually: generous, because the machine may be busy.
const (
	soon = 10 * time.Second
	// again is for what must be reapplied within a second.
	again = 3 * time.Second
)

var build struct {
	once sync.Once
	dir  string
	err  error
}

// builtXlane builds xlane once per process; TestMain removes it.
func builtXlane(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "xlane-whole-"); build.err != nil {
			return
		}
		// The namespaces' tests may run as another user.
		if build.err = os.Chmod(build.dir, 0o755); build.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(build.dir, "xlane"), "xlane/cmd/xlane").CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("build xlane: %w: %s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return filepath.Join(build.dir, "xlane")
}

// run runs a command to its end, and fails the test when the command fails.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// pair is two namespaces joined by a veth with the kernel's default settings.
type pair struct {
	server, client string // namespaces
	dev            string // in both
	addr, from     string // the server's and the client's address
	dir            string // the daemon's state and socket
}

var pairs atomic.Int64

// plain makes a pair as somebody who knows nothing of xlane would.
func plain(t testing.TB) *pair {
	t.Helper()
	testenv.Lab(t)
	testenv.Tool(t, "ip")
	n := fmt.Sprintf("xlw%d-%d", os.Getpid(), pairs.Add(1))
	p := &pair{server: n + "-s", client: n + "-c", dev: "eth0", addr: "10.9.0.1", from: "10.9.0.2"}
	var err error
	if p.dir, err = os.MkdirTemp("", "xlw-"); err != nil { // short: a socket's path is limited
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(p.dir) })
	for _, ns := range []string{p.server, p.client} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		// No addresses that appear on their own while states are compared.
		run(t, "ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	}
	run(t, "ip", "link", "add", p.dev, "netns", p.server, "type", "veth", "peer", "name", p.dev, "netns", p.client)
	for ns, addr := range map[string]string{p.server: p.addr, p.client: p.from} {
		run(t, "ip", "-n", ns, "addr", "add", addr+"/24", "dev", p.dev)
		run(t, "ip", "-n", ns, "link", "set", p.dev, "up")
	}
	pins := p.pinDir(t)
	t.Cleanup(func() { os.RemoveAll(pins) }) // what a test that fails half-way leaves
	p.awaitLink(t)
	return p
}

// awaitLink waits until both ends say that they are up, which the kernel may
// say late.
func (p *pair) awaitLink(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, soon, "the link to be up", func() bool {
		for _, ns := range []string{p.server, p.client} {
			if !strings.Contains(run(t, "ip", "-n", ns, "link", "show", p.dev), "state UP") {
				return false
			}
		}
		return true
	})
	in(t, p.client, "ping", "-q", "-c1", "-W5", p.addr)
}

// pinDir is where the daemon pins what sorts this pair.
func (p *pair) pinDir(t testing.TB) string {
	t.Helper()
	ns, err := netns.Open(p.server)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	path, err := bpffs.FS{Path: bpffs.Root}.Locate(fmt.Sprintf("%d-%s", ns.ID().Ino, p.dev))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// in runs a command in one of the namespaces to its end.
func in(t testing.TB, ns, name string, args ...string) string {
	t.Helper()
	return run(t, "ip", append([]string{"netns", "exec", ns, name}, args...)...)
}

// process is a command that runs beside the test.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *lines
	ended          chan struct{}
}

// lines collects output while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start starts a command; the test's end kills it.
func start(t testing.TB, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), stdout: &lines{}, stderr: &lines{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.ended })
	return p
}

// startIn starts a command in a namespace.
func startIn(t testing.TB, ns, name string, args ...string) *process {
	t.Helper()
	return start(t, "ip", append([]string{"netns", "exec", ns, name}, args...)...)
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err) // cannot be: the process is our child
	}
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// logs waits until the log has these words: it is read beside stdout.
func (p *process) logs(t testing.TB, words string) {
	t.Helper()
	testenv.Eventually(t, soon, "the log to have "+words, func() bool { return strings.Contains(p.stderr.String(), words) })
}

// wait waits for the end and returns the exit code.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	testenv.Eventually(t, 20*time.Second, p.cmd.Path+" to end", func() bool { return !p.running() })
	return p.cmd.ProcessState.ExitCode()
}

// daemon starts "xlane run" and waits until it says ready.
func (p *pair) daemon(t testing.TB, flags ...string) *process {
	t.Helper()
	d := p.startDaemon(t, flags...)
	testenv.Eventually(t, soon, "the daemon to be ready or to end", func() bool {
		return d.stdout.String() == "ready\n" || !d.running()
	})
	if !d.running() {
		t.Fatalf("the daemon ended: %s", d.stderr)
	}
	return d
}

func (p *pair) startDaemon(t testing.TB, flags ...string) *process {
	t.Helper()
	return start(t, builtXlane(t), p.runArgs(flags...)...)
}

func (p *pair) runArgs(flags ...string) []string {
	return append([]string{"run", p.dev, "--netns", p.server, "--socket", p.socket(), "--state-dir", p.stateDir()}, flags...)
}

func (p *pair) socket() string   { return filepath.Join(p.dir, "sock") }
func (p *pair) stateDir() string { return filepath.Join(p.dir, "state") }

// stop ends a daemon as an operator does.
func (p *pair) stop(t testing.TB, d *process) {
	t.Helper()
	d.signal(syscall.SIGTERM)
	if code := d.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, d.stderr)
	}
}

// kill ends a daemon without giving it a chance.
func (p *pair) kill(t testing.TB, d *process) {
	t.Helper()
	d.signal(syscall.SIGKILL)
	d.wait(t)
}

// reset runs "xlane reset" and returns its answer, its errors and its exit code.
func (p *pair) reset(t testing.TB) (string, string, int) {
	t.Helper()
	return xlane(t, "reset", "--state-dir", p.stateDir())
}

// xlane runs the binary to its end.
func xlane(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	c := start(t, builtXlane(t), args...)
	code = c.wait(t)
	return c.stdout.String(), c.stderr.String(), code
}

// shown is what the daemon says of its one interface.
func (p *pair) shown(t testing.TB) model.Interface {
	t.Helper()
	out, errs, code := xlane(t, "netstat", "devlinks", "--json", "--socket", p.socket())
	if code != 0 {
		t.Fatalf("netstat devlinks: exit code %d: %s", code, errs)
	}
	return one(t, out)
}

// osainfo is the same from the other display.
func (p *pair) osainfo(t testing.TB) model.Interface {
	t.Helper()
	out, errs, code := xlane(t, "display", "osainfo", p.dev, "--json", "--socket", p.socket())
	if code != 0 {
		t.Fatalf("display osainfo: exit code %d: %s", code, errs)
	}
	return one(t, out)
}

func one(t testing.TB, out string) model.Interface {
	t.Helper()
	var s model.Snapshot
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(s.Interfaces) != 1 {
		t.Fatalf("%d interfaces, want 1", len(s.Interfaces))
	}
	return s.Interfaces[0]
}

// counters reads a namespace's TCP counters, by the names of nstat(8).
func counters(t testing.TB, ns string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, file := range []string{"/proc/net/netstat", "/proc/net/snmp"} {
		text := in(t, ns, "cat", file)
		scan := bufio.NewScanner(strings.NewReader(text))
		for scan.Scan() {
			names := strings.Fields(scan.Text())
			if !scan.Scan() {
				break
			}
			values := strings.Fields(scan.Text())
			for i := 1; i < len(names) && i < len(values); i++ {
				var v int64
				if _, err := fmt.Sscan(values[i], &v); err != nil {
					t.Fatal(err)
				}
				out[strings.TrimSuffix(names[0], ":")+names[i]] = v
			}
		}
	}
	return out
}
