package busypoll

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/lab"
	"xlane/internal/testenv"
)

// bench is a lab with a server that has one receive queue, which is PRIMARY.
type bench struct {
	t              *testing.T
	client, server *lab.Host
	ns             *netns.Handle
	napi           uint32
	dir            string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	testenv.Lab(t)
	l, err := lab.New(t.Context(), lab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "olm")}
	if b.client, err = l.AddHost("client", lab.LinkSpec{Queues: 1}); err == nil {
		b.server, err = l.AddHost("server", lab.LinkSpec{Queues: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.ns, err = netns.OpenPath(b.server.NetNSPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.ns.Close() })
	b.makeNAPI()
	return b
}

// makeNAPI switches GRO on: without it a veth has no NAPI.
func (b *bench) makeNAPI() {
	tool, err := ethtool.Dial(b.ns)
	if err != nil {
		b.t.Fatal(err)
	}
	defer tool.Close()
	if _, err := tool.SetFeatures(b.server.Dev, map[string]bool{ethtool.GRO: true}); err != nil {
		b.t.Fatal(err)
	}
	links, err := link.Dial(b.ns)
	if err != nil {
		b.t.Fatal(err)
	}
	defer links.Close()
	dev, err := links.ByName(b.server.Dev)
	if err != nil {
		b.t.Fatal(err)
	}
	napis, err := napi.Dial(b.ns)
	if err != nil {
		b.t.Fatal(err)
	}
	defer napis.Close()
	list, err := napis.List(dev.Index)
	if err != nil || len(list) != 1 {
		b.t.Fatalf("NAPIs of the server: %v, %v", list, err)
	}
	b.napi = list[0].ID
}

// start runs one of the children on the server, and returns it when it listens.
func (b *bench) start(kind string) *lab.Cmd {
	b.t.Helper()
	cmd := b.server.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+kind)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		b.t.Fatalf("the server says %q, %v", line, err)
	}
	return cmd
}

// chat opens a connection and keeps it busy, one byte there and one back, until
// the test ends or the server does.
func (b *bench) chat() net.Conn {
	b.t.Helper()
	var c net.Conn
	err := b.client.Do(func() error {
		var err error
		c, err = net.DialTimeout("tcp", net.JoinHostPort(b.server.Addr4.String(), "7000"), 5*time.Second)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		one := []byte{1}
		for {
			if _, err := c.Write(one); err != nil {
				return
			}
			if _, err := c.Read(one); err != nil {
				return
			}
		}
	})
	b.t.Cleanup(func() { c.Close(); wg.Wait() })
	return c
}

func (b *bench) engager(limits Limits) *Engager {
	b.t.Helper()
	e, err := Open(Config{NS: b.ns, RecordDir: b.dir, Limits: limits})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := e.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return e
}

// look looks once, and returns the events.
func (b *bench) look(e *Engager, v View) []string {
	b.t.Helper()
	v.NAPI = b.napi
	r, err := e.Look(v)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Events
}

// until looks until something is said, and returns it.
func (b *bench) until(e *Engager, v View, what string) string {
	b.t.Helper()
	var said []string
	testenv.Eventually(b.t, 10*time.Second, what, func() bool {
		said = append(said, b.look(e, v)...)
		return len(said) > 0
	})
	return said[0]
}

// times reads the busy-poll time of every epoll instance and TCP socket of a
// process through descriptors that the test takes itself.
func times(t *testing.T, pid int) (epolls, sockets []int) {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	for fd := range 64 {
		dup, err := unix.PidfdGetfd(pidfd, fd, 0)
		if err != nil {
			continue
		}
		if p, err := epollGet(dup); err == nil {
			epolls = append(epolls, int(p.Usecs))
		} else if v, err := unix.GetsockoptInt(dup, unix.SOL_SOCKET, unix.SO_BUSY_POLL); err == nil {
			sockets = append(sockets, v)
		}
		unix.Close(dup)
	}
	return epolls, sockets
}

func wantTimes(t *testing.T, what string, pid int, epolls, sockets []int) {
	t.Helper()
	gotE, gotS := times(t, pid)
	slices.Sort(gotS)
	if !slices.Equal(gotE, epolls) || !slices.Equal(gotS, sockets) {
		t.Errorf("%s: epoll instances have %v us and sockets %v us, want %v and %v", what, gotE, gotS, epolls, sockets)
	}
}

func records(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestAnEpollServerIsEngagedPausedAndPutBack(t *testing.T) {
	b := newBench(t)
	server := b.start("epoll")
	b.chat()
	e := b.engager(Limits{})
	said := b.until(e, View{Mode: On}, "the server is engaged")
	if !strings.HasPrefix(said, "engaged an epoll instance of process ") {
		t.Errorf("said %q", said)
	}
	wantTimes(t, "engaged", server.Process.Pid, []int{PollUsecs}, []int{0, 0})
	if c := e.Counts(); c.Epolls != 1 || c.Sockets != 0 || c.Engaged != 1 {
		t.Errorf("counts %+v", c)
	}
	if r := records(t, b.dir); len(r) != 1 {
		t.Errorf("records %v", r)
	}
	if said := b.look(e, View{Mode: Paused}); len(said) != 0 {
		t.Errorf("paused, and said %q", said)
	}
	wantTimes(t, "paused", server.Process.Pid, []int{0}, []int{0, 0})
	b.look(e, View{Mode: On})
	wantTimes(t, "on again", server.Process.Pid, []int{PollUsecs}, []int{0, 0})
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	wantTimes(t, "closed", server.Process.Pid, []int{0}, []int{0, 0})
	if _, err := os.Stat(b.dir); err == nil {
		t.Errorf("left %v", records(t, b.dir))
	}
}

func TestABlockingServerIsEngagedByItsSocket(t *testing.T) {
	b := newBench(t)
	server := b.start("blocking")
	b.chat()
	e := b.engager(Limits{})
	if said := b.until(e, View{Mode: On}, "the server is engaged"); !strings.HasPrefix(said, "engaged a socket of process ") {
		t.Errorf("said %q", said)
	}
	_, sockets := times(t, server.Process.Pid)
	slices.Sort(sockets)
	if want := []int{0, PollUsecs}; !slices.Equal(sockets, want) {
		t.Errorf("listener and connection have %v us, want %v", sockets, want)
	}
	if said := b.look(e, View{Mode: Off}); len(said) != 1 || !strings.HasSuffix(said[0], ": asked to") {
		t.Errorf("said %q", said)
	}
	if _, sockets := times(t, server.Process.Pid); !slices.Equal(sockets, []int{0, 0}) {
		t.Errorf("left with %v us", sockets)
	}
}

func TestBulkConnectionsAreNeverTouched(t *testing.T) {
	b := newBench(t)
	server := b.start("epoll")
	first := b.chat()
	e := b.engager(Limits{})
	for range 3 * walkEvery {
		if said := b.look(e, View{Mode: On, Bulk: only(first)}); len(said) != 0 {
			t.Fatalf("with nothing but a bulk connection: %q", said)
		}
	}
	wantTimes(t, "bulk alone", server.Process.Pid, []int{0}, []int{0, 0})
	second := b.chat()
	for range 3 * walkEvery {
		if said := b.look(e, View{Mode: On, Bulk: only(first)}); len(said) != 0 {
			t.Fatalf("with a bulk connection in the same epoll instance: %q", said)
		}
	}
	b.until(e, View{Mode: On}, "the server is engaged when neither is bulk")
	if said := b.look(e, View{Mode: On, Bulk: only(second)}); len(said) != 1 || !strings.HasSuffix(said[0], ": a bulk connection is among its own") {
		t.Errorf("one turned bulk, and it said %q", said)
	}
	wantTimes(t, "one is bulk", server.Process.Pid, []int{0}, []int{0, 0, 0})
}

func TestABlockingConnectionThatTurnsBulkIsLeftAtOnce(t *testing.T) {
	b := newBench(t)
	server := b.start("blocking")
	c := b.chat()
	e := b.engager(Limits{})
	b.until(e, View{Mode: On}, "the server is engaged")
	if said := b.look(e, View{Mode: On, Bulk: only(c)}); len(said) != 1 || !strings.HasSuffix(said[0], ": the connection is bulk now") {
		t.Errorf("said %q", said)
	}
	if _, sockets := times(t, server.Process.Pid); !slices.Equal(sockets, []int{0, 0}) {
		t.Errorf("left with %v us", sockets)
	}
}

func TestAProcessThatEndsIsNoError(t *testing.T) {
	for _, kind := range []string{"epoll", "blocking"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			server := b.start(kind)
			b.chat()
			e := b.engager(Limits{})
			b.until(e, View{Mode: On}, "the server is engaged")
			if err := server.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			server.Wait()
			if said := b.look(e, View{Mode: On}); len(said) != 1 || !strings.HasSuffix(said[0], ": the process ended") {
				t.Errorf("said %q", said)
			}
			if r := records(t, b.dir); len(r) != 0 {
				t.Errorf("records %v", r)
			}
		})
	}
}

func TestAnApplicationsOwnTimeIsLeftAlone(t *testing.T) {
	b := newBench(t)
	server := b.start("epoll")
	b.chat()
	e := b.engager(Limits{})
	b.until(e, View{Mode: On}, "the server is engaged")
	if err := epollSet(e.held.dup, 7); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	wantTimes(t, "closed after the application set 7", server.Process.Pid, []int{7}, []int{0, 0})
	e = b.engager(Limits{})
	for range 3 * walkEvery {
		if said := b.look(e, View{Mode: On}); len(said) != 0 {
			t.Fatalf("said %q", said)
		}
	}
	wantTimes(t, "it polls already", server.Process.Pid, []int{7}, []int{0, 0})
}

func TestAProcessWithTenThousandDescriptorsIsBounded(t *testing.T) {
	b := newBench(t)
	b.start("crowd")
	b.chat()
	e := b.engager(Limits{})
	for range 2 * walkEvery {
		if said := b.look(e, View{Mode: On}); len(said) != 0 {
			t.Fatalf("said %q", said)
		}
	}
	if c := e.Counts(); c.RefusedFDs == 0 {
		t.Errorf("counts %+v", c)
	}
}

func TestLimitsAreCountedWhenReached(t *testing.T) {
	b := newBench(t)
	b.start("epoll")
	b.chat()
	b.chat()
	for _, c := range []struct {
		name    string
		limit   func(*Limits)
		counted func(Counts) uint64
	}{
		{"sockets", func(l *Limits) { l.Sockets = 1 }, func(c Counts) uint64 { return c.RefusedSockets }},
		{"processes", func(l *Limits) { l.Processes = 1 }, func(c Counts) uint64 { return c.RefusedProcesses }},
		{"descriptors of all", func(l *Limits) { l.FDs = 3 }, func(c Counts) uint64 { return c.RefusedFDs }},
		{"epoll instances", func(l *Limits) { l.Epolls = 0 }, func(c Counts) uint64 { return c.RefusedEpolls }},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := DefaultLimits()
			c.limit(&limits)
			e := b.engager(limits)
			testenv.Eventually(t, 5*time.Second, "what is over the limit is counted", func() bool {
				b.look(e, View{Mode: On})
				return c.counted(e.Counts()) > 0
			})
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatAKilledDaemonLeftIsUndone(t *testing.T) {
	for _, kind := range []string{"epoll", "blocking"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			server := b.start(kind)
			b.chat()
			e := b.engager(Limits{})
			b.until(e, View{Mode: On}, "the server is engaged")
			if n, err := Undo(b.dir); n != 0 || err != nil {
				t.Errorf("while the daemon runs: undid %d, %v", n, err)
			}
			forgeDaemon(t, b.dir)
			if n, err := Undo(b.dir); n != 1 || err != nil {
				t.Errorf("undid %d, %v", n, err)
			}
			epolls, sockets := times(t, server.Process.Pid)
			if slices.ContainsFunc(append(epolls, sockets...), func(v int) bool { return v != 0 }) {
				t.Errorf("left epoll instances with %v us and sockets with %v us", epolls, sockets)
			}
			if r := records(t, b.dir); len(r) != 0 {
				t.Errorf("records %v", r)
			}
		})
	}
}

// forgeDaemon makes the record be of a process that is no more: one with our
// number that started earlier.
func forgeDaemon(t *testing.T, dir string) {
	t.Helper()
	path := records(t, dir)[0]
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	w.DaemonStart--
	if text, err = json.Marshal(w); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestARecordOfAProcessThatIsGoneIsRemoved(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"engaged-1.json": `{"version":1,"daemon_pid":1,"daemon_start":1,"change":{"epoll":true,"pid":1,"start":1,"fd":3,"to_usecs":50}}`,
		"engaged-2.json": `{"version":9}`,
		"engaged-3.json": `not a record`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, err := Undo(dir)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "it has version 9, this is 1") || !strings.Contains(err.Error(), "engaged-3.json") {
		t.Errorf("undid %d, %v", n, err)
	}
	if left := records(t, dir); len(left) != 2 {
		t.Errorf("left %v", left)
	}
}

func TestWithoutPrivilegeTheErrorSaysWhichIsMissing(t *testing.T) {
	testenv.Root(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=unprivileged")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	const want = "busy-poll for applications without CAP_SYS_PTRACE: operation not permitted\n"
	if err == nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}
