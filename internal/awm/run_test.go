package awm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"xlane/internal/testenv"
)

// serve starts a server on a free loopback port and returns where it listens.
func serve(t *testing.T, cfg ServeConfig) (control, ftp string) {
	t.Helper()
	if !cfg.Listen.IsValid() {
		cfg.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	}
	ready := make(chan [2]netip.AddrPort, 1)
	cfg.Ready = func(c, f netip.AddrPort) { ready <- [2]netip.AddrPort{c, f} }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case at := <-ready:
		return at[0].String(), at[1].String()
	case err := <-done:
		done <- nil
		t.Fatalf("serve: %v", err)
	}
	return "", ""
}

func specs(t *testing.T, words ...string) []Spec {
	t.Helper()
	s, err := ParseSpecs(words)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load runs a mix for a short time and fails unless every payload was right
// and no connection failed.
func load(t *testing.T, at string, change func(*RunConfig), words ...string) Report {
	t.Helper()
	cfg := RunConfig{Server: at, Specs: specs(t, words...), Duration: 300 * time.Millisecond, Warmup: 50 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	rep, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		t.Error(p)
	}
	for _, c := range rep.Classes {
		if c.PayloadErrors+c.Client.ConnErrors+c.Server.ConnErrors+c.Aborted+c.Server.Refused != 0 {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
	return rep
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestEachWorkloadMovesWhatItsSpecSays(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		at, _ := serve(t, ServeConfig{Listen: netip.MustParseAddrPort(host)})
		before := openFiles(t)
		for _, c := range []struct {
			spec       string
			in, out    int64 // bytes of a transaction
			endlessIn  bool
			endlessOut bool
		}{
			{spec: "RR3(100/800)", in: 100, out: 800},
			{spec: "RR1(1/1):nodelay=off", in: 1, out: 1},
			{spec: "RR1(200K/64K):call=4K,sndbuf=64K,rcvbuf=64K,cc=reno", in: 200_000, out: 64_000},
			{spec: "RR2(100/800):rate=300", in: 100, out: 800},
			{spec: "CRR4(64/8K)", in: 64 - helloSize, out: 8000},
			{spec: "CRR1(1/1):rate=200", in: 0, out: 1},
			{spec: "STR1(1M/1)", in: 1_000_000, out: 1},
			{spec: "STR1(1/1M)", in: 1, out: 1_000_000},
			{spec: "STR2(in)", endlessIn: true},
			{spec: "STR1(out):pace=1G", endlessOut: true},
			{spec: "STR1(both)", endlessIn: true, endlessOut: true},
			{spec: "STR1(acks)", endlessIn: true, endlessOut: true},
			{spec: "FTP2(put/300K)", in: 300_000},
			{spec: "FTP1(get/300K)", out: 300_000},
		} {
			t.Run(host+" "+c.spec, func(t *testing.T) {
				r := load(t, at, nil, c.spec).Classes[0]
				if c.endlessIn != (r.InMBPerS > 0) && c.in == 0 || c.endlessOut != (r.OutMBPerS > 0) && c.out == 0 {
					t.Errorf("in %.3f and out %.3f MB/s", r.InMBPerS, r.OutMBPerS)
				}
				if c.in+c.out == 0 {
					if r.Latency != nil || r.Transactions != 0 {
						t.Errorf("an endless stream has %d transactions", r.Transactions)
					}
					return
				}
				if r.Transactions == 0 || r.Latency == nil || r.Latency.Count != r.Transactions {
					t.Fatalf("%d transactions, latency %+v", r.Transactions, r.Latency)
				}
				// Transactions under way at either edge of the window move their
				// bytes on one side of it and are counted on the other.
				slack := 2 * int64(r.Connections)
				for what, moved := range map[string][2]int64{"in": {r.Client.BytesSent, c.in}, "out": {r.Client.BytesReceived, c.out}} {
					if low, high := (r.Transactions-slack)*moved[1], (r.Transactions+slack)*moved[1]; moved[0] < low || moved[0] > high {
						t.Errorf("%d transactions of %d bytes %s moved %d bytes", r.Transactions, moved[1], what, moved[0])
					}
				}
			})
		}
		testenv.Eventually(t, 5*time.Second, "no descriptor is left open", func() bool { return openFiles(t) <= before+1 })
	}
}

func TestAMixRunsAtOnceOnThreadsOfItsOwn(t *testing.T) {
	at, _ := serve(t, ServeConfig{})
	rep := load(t, at, func(c *RunConfig) { c.Threads, c.Interval = 2, 50*time.Millisecond },
		"RR4(100/800)", "CRR2(64/8K)", "STR2(in):pace=200M,name=bulk", "FTP1(get/1M)")
	for _, c := range rep.Classes {
		if want := min(2, c.Connections); c.Threads != want {
			t.Errorf("%s ran on %d threads, not %d", c.Name, c.Threads, want)
		}
		if c.Client.CPUSystemUs+c.Client.CPUUserUs == 0 {
			t.Errorf("%s used no CPU time", c.Name)
		}
		if c.Series == nil || len(c.Series.InMBPerS) == 0 || len(c.Series.InMBPerS) != len(c.Series.TransactionsPerS) {
			t.Errorf("%s has the series %+v", c.Name, c.Series)
		}
		if c.Client.BusyUsPerMB != 0 {
			t.Errorf("%s claims the busy time of a mix", c.Name)
		}
	}
}

func TestAPhaseConnectionTurnsAndTurnsBack(t *testing.T) {
	at, _ := serve(t, ServeConfig{})
	rep := load(t, at, func(c *RunConfig) { c.Duration, c.Interval = time.Second, 10*time.Millisecond },
		"PHASE1(100/800,80ms;in,80ms;out,80ms;both,80ms)")
	c := rep.Classes[0]
	if c.Transactions == 0 || c.InMBPerS == 0 || c.OutMBPerS == 0 {
		t.Fatalf("%+v", c)
	}
	talk, stream := 0, 0
	for i := range c.Series.TransactionsPerS {
		if c.Series.TransactionsPerS[i] > 0 {
			talk++
		} else if c.Series.InMBPerS[i]+c.Series.OutMBPerS[i] > 0 {
			stream++
		}
	}
	if talk == 0 || stream == 0 {
		t.Errorf("of %d intervals %d were interactive and %d streamed only", len(c.Series.InMBPerS), talk, stream)
	}
}

func TestTransactionsDoNotAllocate(t *testing.T) {
	at, _ := serve(t, ServeConfig{})
	for _, spec := range []string{"RR4(100/800)", "RR4(100/800):rate=2000", "CRR4(64/800)", "STR1(in)"} {
		run := func(d time.Duration) (mallocs, moved int64) {
			var a, b runtime.MemStats
			runtime.ReadMemStats(&a)
			rep := load(t, at, func(c *RunConfig) { c.Duration, c.Warmup = d, 0 }, spec)
			runtime.ReadMemStats(&b)
			c := rep.Classes[0]
			return int64(b.Mallocs - a.Mallocs), c.Transactions + c.Server.BytesReceived/callDefault
		}
		short, few := run(20 * time.Millisecond)
		long, many := run(500 * time.Millisecond)
		if more := many - few; more > 300 && long-short > more/5 {
			t.Errorf("%s: %d more transactions or calls made %d more allocations", spec, more, long-short)
		}
	}
}

func TestInterruptedRunStillReports(t *testing.T) {
	at, _ := serve(t, ServeConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	rep, err := Run(ctx, RunConfig{Server: at, Specs: specs(t, "RR1(100/800)"), Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Interrupted || rep.Classes[0].Transactions == 0 || rep.DurationS > 60 {
		t.Errorf("%+v", rep)
	}
}

func TestRunRefusesWhatCannotBe(t *testing.T) {
	at, _ := serve(t, ServeConfig{MaxConns: 10})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, c := range []struct {
		name string
		cfg  RunConfig
		want string
	}{
		{"nobody listens", RunConfig{Server: closed.Addr().String(), Specs: specs(t, "RR1(1/1)")}, "connection refused"},
		{"more connections than the server takes", RunConfig{Server: at, Specs: specs(t, "RR11(1/1)")},
			"the server refuses: the run asks for 11 connections and the server has 10 left of 10"},
		{"more threads than a run may have", RunConfig{Server: at, Specs: specs(t, "RR1000(1/1)"), Threads: 1000}, "1000 threads are not possible; use at most 128"},
		{"a congestion control that the kernel does not know", RunConfig{Server: at, Specs: specs(t, "RR1(1/1):cc=nosuch")}, `set congestion control "nosuch"`},
		{"no time at all", RunConfig{Server: at, Specs: specs(t, "RR1(1/1)"), Duration: 1}, "a duration of 1ns is not possible"},
		{"too many intervals", RunConfig{Server: at, Specs: specs(t, "RR1(1/1)"), Duration: time.Hour, Interval: time.Millisecond}, "an interval of 1ms is not possible"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cfg.Duration == 0 {
				c.cfg.Duration = time.Second
			}
			_, err := Run(context.Background(), c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestServerRefusesWhoDoesNotSpeakItsVersion(t *testing.T) {
	at, _ := serve(t, ServeConfig{})
	for _, c := range []struct{ name, line, want string }{
		{"another version", `{"op":"hello","version":9,"threads":1,"classes":["RR1(1/1)"]}`,
			"the client speaks version 9 of the awm protocol and this server version 1; use the same xlane on both hosts"},
		{"not a protocol at all", "GET / HTTP/1.1\r", "read a message: invalid character 'G'"},
		{"a wrong workload", `{"op":"hello","version":1,"threads":1,"classes":["RR1(1)"]}`, "stands where '/' is expected"},
		{"no threads", `{"op":"hello","version":1,"classes":["RR1(1/1)"]}`, "0 threads a class are not possible"},
		{"a line without end", strings.Repeat("x", requestMax+10), "the line is too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := fmt.Fprintln(conn, c.line); err != nil {
				t.Fatal(err)
			}
			got, err := bufio.NewReader(conn).ReadString('\n')
			if c.name != "a line without end" && (err != nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q (%v), want %s", got, err, c.want)
			}
		})
	}
	load(t, at, nil, "RR1(1/1)") // and it still serves
}
