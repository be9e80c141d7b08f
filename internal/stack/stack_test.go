package stack

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"xlane/internal/api"
	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/netns"
	"xlane/internal/lab"
	"xlane/internal/model"
	"xlane/internal/profile"
	"xlane/internal/testenv"
)

const soon = 10 * time.Second

// hosts makes a lab of two hosts with four queues each.
func hosts(t *testing.T) (server, client *lab.Host) {
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
	if server, err = l.AddHost("server", lab.LinkSpec{}); err == nil {
		client, err = l.AddHost("client", lab.LinkSpec{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

func config(t *testing.T, h *lab.Host, log io.Writer) Config {
	t.Helper()
	return Config{
		Interfaces: []profile.Interface{{Device: h.Dev, Netns: h.NetNS, INBPERF: model.Dynamic, WorkloadQ: true}},
		StateDir:   t.TempDir(), Version: "test", Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

// handles counts this process's open files: namespaces, sockets, maps.
func handles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// Goal: what a stack opens and starts, it closes and stops, also when it is
// asked from several sides while everything is reset under it. Method: several
// whole lives under the race detector; files and goroutines are counted.
func TestAStackLeavesNoHandleAndNoGoroutine(t *testing.T) {
	server, client := hosts(t)
	oneLife(t, server, client) // what libraries open once is open now
	files, routines := handles(t), runtime.NumGoroutine()
	for range 3 {
		oneLife(t, server, client)
	}
	testenv.Eventually(t, soon, "as many open files as before", func() bool { return handles(t) <= files })
	testenv.Eventually(t, soon, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= routines })
}

func oneLife(t *testing.T, server, client *lab.Host) {
	t.Helper()
	cfg := config(t, server, io.Discard)
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var askers sync.WaitGroup
	asking, enough := context.WithCancel(t.Context())
	for range 3 {
		askers.Go(func() {
			for asking.Err() == nil {
				if _, err := s.Snapshot(asking, api.Query{MaxConnections: 10}); err != nil && asking.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	talk(t, server, client)
	groOff(t, server)
	enough()
	askers.Wait()
	snap, err := s.Snapshot(t.Context(), api.Query{})
	if err != nil || len(snap.Interfaces) != 1 || len(snap.Interfaces[0].Queues) != 4 {
		t.Errorf("got %+v, %v", snap, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	snap, err = s.Snapshot(t.Context(), api.Query{})
	if err != nil || snap.Interfaces[0].State != model.StateNotActive {
		t.Errorf("after the end: %+v, %v", snap, err)
	}
	if left, _ := os.ReadDir(cfg.StateDir); len(left) != 0 {
		t.Errorf("left in the state folder: %v", left)
	}
}

// talk sends some packets to the server.
func talk(t *testing.T, server, client *lab.Host) {
	t.Helper()
	var c net.Conn
	err := client.Do(func() (err error) {
		c, err = net.Dial("udp4", net.JoinHostPort(server.Addr4.String(), "9"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 100 {
		_, _ = c.Write([]byte("hello")) // an ICMP error of an earlier one does not matter
	}
}

// groOff switches GRO off, and waits until it is on again.
func groOff(t *testing.T, h *lab.Host) {
	t.Helper()
	gro := func(set bool) bool {
		on := false
		err := h.Do(func() error {
			ns, err := netns.Current()
			if err != nil {
				return err
			}
			defer ns.Close()
			c, err := ethtool.Dial(ns)
			if err != nil {
				return err
			}
			defer c.Close()
			if set {
				_, err = c.SetFeatures(h.Dev, map[string]bool{ethtool.GRO: false})
				return err
			}
			f, err := c.Features(h.Dev)
			on = f[ethtool.GRO].Active
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	gro(true)
	testenv.Eventually(t, soon, "GRO to be on again", func() bool { return gro(false) })
}

func TestAStackThatCannotStartLeavesNothing(t *testing.T) {
	server, _ := hosts(t)
	cfg := config(t, server, io.Discard)
	second := cfg.Interfaces[0]
	second.Device = "none0"
	cfg.Interfaces = append(cfg.Interfaces, second)
	if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `"none0"`) {
		t.Fatalf("got %v", err)
	}
	files := handles(t)
	for range 3 {
		if _, err := Start(t.Context(), cfg); err == nil {
			t.Fatal("it started")
		}
	}
	testenv.Eventually(t, soon, "as many open files as before", func() bool { return handles(t) <= files })
	if left, _ := os.ReadDir(cfg.StateDir); len(left) != 0 {
		t.Errorf("left in the state folder: %v", left)
	}
}

func TestAContextThatEndsBeforeTheStartIsNotAFailure(t *testing.T) {
	server, _ := hosts(t)
	cfg := config(t, server, io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, cfg); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(cfg.StateDir); len(left) != 0 {
		t.Errorf("left in the state folder: %v", left)
	}
}

func TestEveryChangeIsLoggedAndShown(t *testing.T) {
	server, _ := hosts(t)
	var log strings.Builder
	cfg := config(t, server, &log)
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	snap, err := s.Snapshot(t.Context(), api.Query{Device: server.Dev})
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	changes := snap.Interfaces[0].Changes
	if len(changes) == 0 {
		t.Error("no change is shown")
	}
	for _, c := range changes {
		if !strings.Contains(log.String(), c.What) {
			t.Errorf("%q is not in the log:\n%s", c.What, log.String())
		}
	}
	for _, word := range []string{"msg=ready", `msg="put back"`} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("%s is not in the log:\n%s", word, log.String())
		}
	}
}

func TestResetReportsEachRecord(t *testing.T) {
	testenv.Lab(t)
	dir := t.TempDir()
	var lines []string
	report := func(l string) { lines = append(lines, l) }
	if err := Reset(t.Context(), Config{StateDir: dir}, report); err != nil || len(lines) != 0 {
		t.Errorf("nothing there: %v, %q", err, lines)
	}
	if err := os.WriteFile(filepath.Join(dir, "1-bad0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := openJournal(dir, "2-held0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	if err := held.begin(Record{Device: "held0"}); err != nil {
		t.Fatal(err)
	}
	dead, err := openJournal(dir, "3-dead0")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.begin(Record{Device: "dead0", Netns: "gone"}); err != nil {
		t.Fatal(err)
	}
	dead.close()
	err = Reset(t.Context(), Config{StateDir: dir}, report)
	if err == nil || !strings.Contains(err.Error(), "1-bad0.json") {
		t.Errorf("the bad record: %v", err)
	}
	if len(lines) != 2 || !strings.Contains(lines[0], `"held0" is already managed`) || !strings.Contains(lines[1], `"dead0" in namespace "gone"`) {
		t.Errorf("reported %q", lines)
	}
}
