package stack

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"xlane/internal/awm"
	"xlane/internal/lab"
	"xlane/internal/profile"
	"xlane/internal/receive/busypoll"
	"xlane/internal/testenv"
)

// awmEnv makes the test binary a workload modeler: "serve", or the address of
// a server to load. Both must be processes of their own, because nobody engages
// himself.
const awmEnv = "XLANE_STACK_TEST_AWM"

func init() {
	var err error
	switch to := os.Getenv(awmEnv); to {
	case "":
		return
	case "serve":
		err = awm.Serve(context.Background(), awm.ServeConfig{
			Listen: netip.MustParseAddrPort("0.0.0.0:5201"), Ready: func(_, _ netip.AddrPort) { fmt.Println("ready") },
		})
	default:
		err = loadForMinutes(to)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func loadForMinutes(server string) error {
	specs, err := awm.ParseSpecs([]string{"RR1(100/800)", "STR1(in):pace=200M"})
	if err != nil {
		return err
	}
	_, err = awm.Run(context.Background(), awm.RunConfig{Server: server, Specs: specs, Duration: 5 * time.Minute})
	return err
}

// said keeps what the daemon logs.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), what)
}

// The modeler serves each class from an epoll instance of its own: the one with
// the requests must be engaged, and the one with the stream never.
func TestOLMEngagesTheServiceBesideAStream(t *testing.T) {
	testenv.Lab(t)
	client, server := twoHosts(t)
	before := olmDir
	olmDir = t.TempDir()
	t.Cleanup(func() { olmDir = before })
	log := &said{}
	s, err := Start(t.Context(), Config{
		Interfaces: []profile.Interface{{Device: server.Dev, Netns: server.NetNSPath, WorkloadQ: true, OLM: true}},
		StateDir:   t.TempDir(), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	startAWM(t, server, "serve")
	load := startAWM(t, client, netip.AddrPortFrom(server.Addr4, 5201).String())
	testenv.Eventually(t, 20*time.Second, "the service is engaged", func() bool { return counts(t, s).Epolls == 1 })
	if c := counts(t, s); c.Engaged != 1 || c.Sockets != 0 {
		t.Errorf("counts %+v, want one epoll instance engaged, once", c)
	}
	if err := load.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 20*time.Second, "nobody polls when the service has ended", func() bool { return counts(t, s).Epolls == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if log.count("application=\"engaged") != 1 || log.count("recovering") != 0 {
		t.Errorf("the daemon's log:\n%s", log.text.String())
	}
}

func TestResetUndoesWhatADeadDaemonEngaged(t *testing.T) {
	before := olmDir
	olmDir = t.TempDir()
	t.Cleanup(func() { olmDir = before })
	const record = `{"version":1,"daemon_pid":1,"daemon_start":1,"change":{"epoll":true,"pid":1,"start":1,"fd":3,"to_usecs":50}}`
	path := filepath.Join(olmDir, "engaged-1.json")
	if err := os.WriteFile(path, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := undoOLM(); n != 1 || err != nil {
		t.Errorf("undid %d, %v", n, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the record is still there")
	}
}

func twoHosts(t *testing.T) (client, server *lab.Host) {
	t.Helper()
	l, err := lab.New(t.Context(), lab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if client, err = l.AddHost("client", lab.LinkSpec{}); err == nil {
		server, err = l.AddHost("server", lab.LinkSpec{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// startAWM starts a modeler on a host; a server is listening when it returns.
func startAWM(t *testing.T, h *lab.Host, what string) *lab.Cmd {
	t.Helper()
	cmd := h.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), awmEnv+"="+what)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if what == "serve" {
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("the server says %q, %v", line, err)
		}
	}
	return cmd
}

// counts asks the goroutine that runs the device.
func counts(t *testing.T, s *Stack) busypoll.Counts {
	t.Helper()
	in := s.interfaces[0]
	answer := make(chan busypoll.Counts, 1)
	select {
	case in.ask <- func() { answer <- in.olm.(*poller).counts() }:
		return <-answer
	case <-in.ended:
		t.Fatal("the device was lost")
	}
	return busypoll.Counts{}
}
