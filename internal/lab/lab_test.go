package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"xlane/internal/testenv"
)

// creatorEnv makes the test binary be a program that makes a lab and then
// does nothing, for tests that kill it. Its value is "kept" or "used".
const creatorEnv = "XLANE_LAB_TEST_CREATOR"

func TestMain(m *testing.M) {
	if how := os.Getenv(creatorEnv); how != "" {
		beCreator(how)
	}
	os.Exit(m.Run())
}

func beCreator(how string) {
	l, err := New(context.Background(), Config{Kept: how == "kept"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := fill(l); err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, l.Close()))
		os.Exit(1)
	}
	select {}
}

// fill gives the lab a host, a process in it, and a slow lane.
func fill(l *Lab) error {
	h, err := l.AddHost("box", LinkSpec{Out: Path{Faults: Faults{Delay: time.Millisecond}}})
	if err != nil {
		return err
	}
	c := h.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		return err
	}
	_, err = fmt.Println(l.Name, c.Process.Pid)
	return err
}

// newLab makes a lab with the named hosts, all with the same link.
func newLab(t *testing.T, spec LinkSpec, names ...string) (*Lab, []*Host) {
	t.Helper()
	testenv.Lab(t)
	l, err := New(context.Background(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names {
		if _, err := l.AddHost(name, spec); err != nil {
			t.Fatal(err)
		}
	}
	return l, l.Hosts()
}

// listen opens a TCP listener on one of the host's addresses.
func listen(t *testing.T, h *Host, addr netip.Addr) net.Listener {
	t.Helper()
	var ln net.Listener
	err := h.Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func dial(t *testing.T, h *Host, network string, to net.Addr) net.Conn {
	t.Helper()
	var conn net.Conn
	err := h.Do(func() (err error) {
		conn, err = net.DialTimeout(network, to.String(), 5*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// payload is content in which every position tells itself apart.
func payload(size int) []byte {
	var b bytes.Buffer
	for n := 0; b.Len() < size; n++ {
		fmt.Fprintf(&b, "%08x", n)
	}
	return b.Bytes()[:size]
}

// transfer sends size bytes from one host to an address of another, and
// checks what arrives. It returns how long the receiver took.
func transfer(t *testing.T, from, to *Host, addr netip.Addr, size int) time.Duration {
	t.Helper()
	ln := listen(t, to, addr)
	want := payload(size)
	type answer struct {
		got  []byte
		took time.Duration
		err  error
	}
	received := make(chan answer, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			received <- answer{err: err}
			return
		}
		defer conn.Close()
		start := time.Now()
		got, err := io.ReadAll(conn)
		received <- answer{got, time.Since(start), err}
	}()
	conn := dial(t, from, "tcp", ln.Addr())
	if _, err := conn.Write(want); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	a := <-received
	if a.err != nil {
		t.Fatal(a.err)
	}
	if !bytes.Equal(a.got, want) {
		t.Fatalf("%d bytes from %s to %v arrived as %d other ones", size, from.Name, addr, len(a.got))
	}
	return a.took
}

func TestHostsReachEachOther(t *testing.T) {
	t.Parallel()
	_, hosts := newLab(t, LinkSpec{}, "client", "server", "third")
	for _, from := range hosts {
		for _, to := range hosts {
			for _, addr := range []netip.Addr{to.Addr4, to.Addr6} {
				transfer(t, from, to, addr, 100_000)
			}
		}
	}
	ping := testenv.Tool(t, "ping")
	for _, addr := range []netip.Addr{hosts[1].Addr4, hosts[1].Addr6} {
		if out, err := hosts[0].Command(ping, "-c", "1", "-W", "5", addr.String()).CombinedOutput(); err != nil {
			t.Errorf("ping %v: %v\n%s", addr, err, out)
		}
	}
}

func TestLinksAreAsAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		spec          LinkSpec
		queues, mtu   int // queues in use, at both ends
		isSegmentsOff bool
	}{
		{"the default link has four queues and 1500 bytes", LinkSpec{}, 4, 1500, true},
		{"one queue", LinkSpec{Queues: 1}, 1, 1500, true},
		{"more queues than processors, and jumbo frames", LinkSpec{Queues: 9, MTU: 9000}, 9, 9000, true},
		{"a plain veth uses one queue and keeps its offloads", LinkSpec{PlainVeth: true}, 1, 1500, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, hosts := newLab(t, c.spec, "box")
			h := hosts[0]
			ends := []struct {
				node *Node
				dev  string
			}{{&h.Node, h.Dev}, {&l.Wire.Node, h.FarDev}}
			for _, end := range ends {
				out, err := end.node.Command("ls", "/sys/class/net/"+end.dev+"/queues").Output()
				if err != nil {
					t.Fatal(err)
				}
				rx, tx := strings.Count(string(out), "rx-"), strings.Count(string(out), "tx-")
				if rx != c.queues || tx != c.queues {
					t.Errorf("%s has %d receive and %d transmit queues, want %d", end.dev, rx, tx, c.queues)
				}
				mtu, err := end.node.Command("cat", "/sys/class/net/"+end.dev+"/mtu").Output()
				if err != nil {
					t.Fatal(err)
				}
				if strings.TrimSpace(string(mtu)) != fmt.Sprint(c.mtu) {
					t.Errorf("%s has MTU %s, want %d", end.dev, mtu, c.mtu)
				}
				features, err := end.node.Command(testenv.Tool(t, "ethtool"), "-k", end.dev).Output()
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(string(features)) {
					name, state, _ := strings.Cut(strings.TrimSpace(line), ": ")
					if isSegmentation(name) && !strings.Contains(state, "fixed") && (state == "off") != c.isSegmentsOff {
						t.Errorf("%s has %s %s", end.dev, name, state)
					}
				}
			}
		})
	}
}

func TestCommandSeesItsNamespaceAndTheMachinesFiles(t *testing.T) {
	t.Parallel()
	l, hosts := newLab(t, LinkSpec{}, "box")
	for path, want := range map[string]string{
		"/sys/class/net": "eth0\nlo\n",
		"/sys/fs/cgroup": listing(t, "/sys/fs/cgroup"),
		l.note.path():    l.note.path() + "\n",
	} {
		got, err := hosts[0].Command("ls", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("a command finds %q in %s, want %q", got, path, want)
		}
	}
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for _, dir := range []string{sysfsDir, "/sys/class", "/sys/devices"} {
			if strings.Contains(line, " "+dir) {
				t.Errorf("the machine itself now has the mount %q", line)
			}
		}
	}
	var exit *exec.ExitError
	if err := hosts[0].Command("false").Run(); !errors.As(err, &exit) {
		t.Errorf("a failing command answers %v, want an exec.ExitError", err)
	}
	if err := hosts[0].Command("/no/such/program").Run(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing command answers %v, want os.ErrNotExist", err)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("ls", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestDoReturnsToTheNamespaceItCameFrom(t *testing.T) {
	t.Parallel()
	l, hosts := newLab(t, LinkSpec{}, "box")
	where := func() string {
		name, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		return name
	}
	refused := errors.New("refused")
	err := hosts[0].Do(func() error {
		inside := where()
		if err := l.Wire.Do(func() error { return nil }); err != nil {
			return err
		}
		if again := where(); again != inside {
			t.Errorf("a nested Do ends in %s, not in %s", again, inside)
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("Do answers %v, want what its function answered", err)
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := where(); got != home {
		t.Errorf("Do ends in %s, not in %s", got, home)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := ownLinks(t)
	l, hosts := newLab(t, LinkSpec{Out: Path{Faults: Faults{Delay: time.Millisecond, Loss: 0.1}}}, "one", "two")
	// One process that is waited for by nobody, one that leaves a child behind.
	lone := hosts[0].Command("sleep", "1000")
	parent := hosts[1].Command("sh", "-c", "sleep 1000 & echo $!")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Cmd{lone, parent} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{lone.Process.Pid, parent.Process.Pid, child} {
		if _, err := startTicks(pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %d still runs after Close (%v)", pid, err)
		}
	}
	checkGone(t, l.Name)
	if after := ownLinks(t); !slices.Equal(after, before) {
		t.Errorf("the machine's own links changed from %v to %v", before, after)
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second Close answers %v", err)
	}
	if _, err := l.AddHost("late", LinkSpec{}); !errors.Is(err, errClosed) {
		t.Errorf("a closed lab answers %v to a new host", err)
	}
	_, asked := hosts[0].FaultStats(Out)
	for what, err := range map[string]error{
		"SetRate":    hosts[0].SetRate(In, 1e9),
		"SetFaults":  hosts[0].SetFaults(In, Faults{Loss: 1}),
		"FaultStats": asked,
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s on a closed lab answers %v", what, err)
		}
	}
}

// checkGone looks for the names and the record of a lab.
func checkGone(t *testing.T, name string) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(netnsDir, name+"*"), filepath.Join(recordDir, name+"*")} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// ownLinks lists the devices of the test's own namespace with what a lab
// could have changed.
func ownLinks(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range links {
		a := l.Attrs()
		all = append(all, fmt.Sprintf("%d %s %s mtu %d flags %v master %d", a.Index, a.Name, a.HardwareAddr, a.MTU, a.Flags, a.MasterIndex))
	}
	return all
}

// creator starts a program that makes a lab, and returns it with the lab's
// name and the id of a process inside.
func creator(t *testing.T, how string) (*exec.Cmd, string, int) {
	t.Helper()
	testenv.Lab(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), creatorEnv+"="+how)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var name string
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &name, &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Both have happened already unless the test failed half-way.
		_ = c.Process.Kill()
		_ = c.Wait()
		_, _ = Stop(context.Background(), name)
	})
	return c, name, pid
}

func TestDownCleansUpAfterAKilledCreator(t *testing.T) {
	dead, deadName, deadPID := creator(t, "used")
	_, liveName, livePID := creator(t, "used")
	if _, err := Stop(context.Background(), deadName); err == nil {
		t.Error("a lab was taken from a program that uses it")
	}
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The zombie that is left until Wait counts as dead, but dying takes a moment.
	testenv.Eventually(t, 5*time.Second, "the creator dies", func() bool {
		_, err := startTicks(dead.Process.Pid)
		return errors.Is(err, os.ErrNotExist)
	})
	gone, err := Down(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(gone, deadName) {
		t.Errorf("Down removed %v, and not %s", gone, deadName)
	}
	if slices.Contains(gone, liveName) {
		t.Errorf("Down removed %s, whose creator lives", liveName)
	}
	checkGone(t, deadName)
	testenv.Eventually(t, 5*time.Second, "the process inside is gone", func() bool {
		_, err := startTicks(deadPID)
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := startTicks(livePID); err != nil {
		t.Errorf("the process in the living lab: %v", err)
	}
}

func TestStopEndsTheKeeperOfALab(t *testing.T) {
	keeper, name, pid := creator(t, "kept")
	kept, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(kept, name) {
		t.Errorf("kept labs are %v, and not %s", kept, name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// This keeper does not handle SIGTERM: it dies of it, and Stop cleans up.
	if _, err := Stop(ctx, strings.TrimPrefix(name, namePrefix)); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := keeper.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the keeper ended with %v, want SIGTERM", err)
	}
	checkGone(t, name)
	if _, err := startTicks(pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the process inside is still there: %v", err)
	}
	if _, err := Stop(ctx, name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stopping it again answers %v, want os.ErrNotExist", err)
	}
}

func TestLabsRunSideBySide(t *testing.T) {
	testenv.Lab(t)
	const labs = 3
	names := make(chan string, labs)
	t.Run("at the same time", func(t *testing.T) {
		for range labs {
			t.Run("a lab", func(t *testing.T) {
				t.Parallel()
				l, hosts := newLab(t, LinkSpec{}, "a", "b")
				names <- l.Name
				transfer(t, hosts[0], hosts[1], hosts[1].Addr4, 1000)
			})
		}
	})
	close(names)
	seen := map[string]bool{}
	for name := range names {
		if seen[name] {
			t.Errorf("two labs are called %s", name)
		}
		seen[name] = true
	}
	if _, err := New(context.Background(), Config{Name: "Not A Name"}); err == nil {
		t.Error("a lab was made with a name that is none")
	}
}

func TestANameIsGivenOnce(t *testing.T) {
	testenv.Lab(t)
	name := fmt.Sprintf("once-%d", os.Getpid())
	l, err := New(context.Background(), Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(context.Background(), Config{Name: name}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second lab of one name answers %v, want os.ErrExist", err)
	}
	if _, err := os.Stat(l.Wire.NetNSPath); err != nil {
		t.Errorf("the first lab was harmed: %v", err)
	}
	for _, c := range []struct{ name, why string }{
		{"wire", "the wire's name"},
		{"Upper", "upper case"},
		{"", "empty"},
		{"a-name-too-long", "too long for a device name"},
	} {
		if _, err := l.AddHost(c.name, LinkSpec{}); err == nil {
			t.Errorf("host name %q was taken: %s", c.name, c.why)
		}
	}
	if _, err := l.AddHost("twin", LinkSpec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AddHost("twin", LinkSpec{}); err == nil {
		t.Error("two hosts have one name")
	}
}

// TestANamespaceThatIsNotOurs puts a file where a host's namespace would be.
func TestANamespaceThatIsNotOurs(t *testing.T) {
	t.Parallel()
	l, _ := newLab(t, LinkSpec{})
	path := filepath.Join(netnsDir, l.Name+"-box")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	if _, err := l.AddHost("box", LinkSpec{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a host in a namespace that exists answers %v, want os.ErrExist", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("it was removed: %v", err)
	}
}

func TestAHostThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	l, _ := newLab(t, LinkSpec{})
	// The far end's name is taken, so the link cannot be made.
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "to-box"
	if err := l.Wire.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AddHost("box", LinkSpec{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a link whose name is taken answers %v, want os.ErrExist", err)
	}
	if _, err := os.Stat(filepath.Join(netnsDir, l.Name+"-box")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace of a host that failed: %v", err)
	}
	if hosts := l.Hosts(); len(hosts) != 0 {
		t.Errorf("the lab has %d hosts", len(hosts))
	}
}
