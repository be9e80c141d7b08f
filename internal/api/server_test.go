package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

// patience bounds every wait that a healthy server ends at once.
const patience = 20 * time.Second

// sourceFunc lets a test say in place what the daemon answers.
type sourceFunc func(context.Context, Query) (model.Snapshot, error)

func (f sourceFunc) Snapshot(ctx context.Context, q Query) (model.Snapshot, error) { return f(ctx, q) }

func twoInterfaces(context.Context, Query) (model.Snapshot, error) {
	s := model.Snapshot{Interfaces: []model.Interface{
		{Device: "eth0", State: model.StateReady},
		{Device: "eth1", State: model.StateRecovering, Reason: "timers were reset"},
	}}
	for i := range 300 {
		s.Interfaces[0].Rules.Bulk = append(s.Interfaces[0].Rules.Bulk, model.BulkConnection{
			Source:      netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i)),
			Destination: netip.MustParseAddrPort("10.0.0.2:20"),
		})
	}
	s.Interfaces[0].Rules.Bulk4Total = 300
	return s, nil
}

// socketPath is short: t.TempDir's path holds the test's name and may not fit.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "xl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "s")
}

// serve runs a server until the test ends, and checks that it ends well.
func serve(t *testing.T, source Source, change func(*Limits)) string {
	t.Helper()
	path := socketPath(t)
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	limits := DefaultLimits()
	if change != nil {
		change(&limits)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Config{Source: source, Build: "V0.1.0", Limits: limits}) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("serve ended with: %v", err)
			}
		case <-time.After(patience):
			t.Error("serve did not end")
		}
	})
	return path
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// hungUp reads until the server ends the connection, which is all that a
// hostile client may see; it returns what came before.
func hungUp(t *testing.T, conn net.Conn) string {
	t.Helper()
	said, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server did not end the connection; it said %q", said)
	}
	return string(said)
}

// stillServes polls: a server under test may have deadlines so short that a
// busy machine misses one.
func stillServes(t *testing.T, path string) {
	t.Helper()
	testenv.Eventually(t, patience, "a well-behaved client is served", func() bool {
		_, err := NewClient(path).Version(context.Background())
		return err == nil
	})
}

func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestEachCallIsAnswered(t *testing.T) {
	c := NewClient(serve(t, sourceFunc(twoInterfaces), nil))
	ctx := context.Background()

	v, err := c.Version(ctx)
	if err != nil || v != (VersionInfo{API: 1, Build: "V0.1.0", PID: os.Getpid()}) {
		t.Errorf("version: %+v, %v", v, err)
	}
	h, err := c.Health(ctx)
	if err != nil || h.Ready || len(h.Interfaces) != 2 || h.Interfaces[1].Reason != "timers were reset" {
		t.Errorf("health: %+v, %v", h, err)
	}
	for _, q := range []struct {
		Query
		interfaces, connections int
	}{
		{Query{}, 2, 0}, {Query{MaxConnections: 7}, 2, 7}, {Query{Device: "eth0", MaxConnections: AllConnections}, 1, 300},
		{Query{MaxConnections: 1 << 40}, 2, 300},
	} {
		s, err := c.Snapshot(ctx, q.Query)
		if err != nil || len(s.Interfaces) != q.interfaces || len(s.Interfaces[0].Rules.Bulk) != q.connections {
			t.Errorf("snapshot %+v: %d interfaces, %v", q.Query, len(s.Interfaces), err)
			continue
		}
		if s.Format != model.SnapshotFormat || s.Interfaces[0].Rules.Bulk4Total != 300 {
			t.Errorf("snapshot %+v: format %d, total %d", q.Query, s.Format, s.Interfaces[0].Rules.Bulk4Total)
		}
	}
}

func TestADeviceThatIsNotManagedIsNamed(t *testing.T) {
	c := NewClient(serve(t, sourceFunc(twoInterfaces), nil))
	_, err := c.Snapshot(context.Background(), Query{Device: "eth9"})
	want := `interface "eth9" is not managed by this daemon (it manages "eth0", "eth1")`
	if codeOf(err) != CodeNoInterface || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestErrorsTravelAsCodeAndText(t *testing.T) {
	for _, c := range []struct {
		name  string
		given error
		code  Code
		text  string
	}{
		{"a plain error", errors.New("dump flows of \"eth0\": no such file or directory"), CodeFailed, "dump flows of \"eth0\": no such file or directory"},
		{"an error with a code, wrapped", fmt.Errorf("x: %w", &Error{CodeNoInterface, "gone"}), CodeNoInterface, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := serve(t, sourceFunc(func(context.Context, Query) (model.Snapshot, error) { return model.Snapshot{}, c.given }), nil)
			_, err := NewClient(path).Health(context.Background())
			if codeOf(err) != c.code || err.Error() != c.text {
				t.Errorf("got code %q, %v", codeOf(err), err)
			}
		})
	}
}

func TestRequestsThatAreNotUnderstoodAreRefused(t *testing.T) {
	path := serve(t, sourceFunc(twoInterfaces), nil)
	for _, c := range []struct {
		name, request string
		status        int
		code          Code
	}{
		{"a later version", "GET /v2/snapshot HTTP/1.1\r\nHost: x\r\n\r\n", 404, CodeBadVersion},
		{"no version", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404, CodeBadVersion},
		{"no call", "GET /v1 HTTP/1.1\r\nHost: x\r\n\r\n", 404, CodeUnknownCall},
		{"another call", "GET /v1/obey HTTP/1.1\r\nHost: x\r\n\r\n", 404, CodeUnknownCall},
		{"a path below a call", "GET /v1/snapshot/../../etc HTTP/1.1\r\nHost: x\r\n\r\n", 404, CodeUnknownCall},
		{"another method", "DELETE /v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"a body", "GET /v1/snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400, CodeBadRequest},
		{"a body of unknown length", "GET /v1/snapshot HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, CodeBadRequest},
		{"an argument that is not known", "GET /v1/snapshot?limit=1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"an argument given twice", "GET /v1/snapshot?device=a&device=b HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"a device name that no device can have", "GET /v1/snapshot?device=sixteen-letters- HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"an empty device name", "GET /v1/snapshot?device= HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"a negative limit", "GET /v1/snapshot?max_connections=-1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"a limit that is no number", "GET /v1/snapshot?max_connections=9999999999999999999999 HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"arguments that are not encoded", "GET /v1/snapshot?device=%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
		{"arguments to a call that has none", "GET /v1/version?device=eth0 HTTP/1.1\r\nHost: x\r\n\r\n", 400, CodeBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, path)
			fmt.Fprint(conn, c.request)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var in reply
			if err := json.NewDecoder(response.Body).Decode(&in); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != c.status || in.Version != 1 || in.Error == nil || in.Error.Code != c.code || in.Error.Text == "" {
				t.Errorf("status %d, %+v", response.StatusCode, in.Error)
			}
		})
	}
}

func TestAHostileClientIsDisconnectedAndOthersAreServed(t *testing.T) {
	short := func(l *Limits) { l.RequestTime = 50 * time.Millisecond }
	for _, c := range []struct {
		name, sent string
	}{
		{"an endless request line", "GET /v1/" + strings.Repeat("a", 1<<20)},
		{"endless headers", "GET /v1/version HTTP/1.1\r\n" + strings.Repeat("X-Fill: 0123456789\r\n", 1<<16)},
		{"bytes that are no request", "\x00\xff\x16\x03\x01 nonsense\r\n\r\n"},
		{"a line of JSON", "{\"version\":1,\"call\":\"snapshot\"}\n"},
		{"half a request and then silence", "GET /v1/vers"},
		{"silence", ""},
		{"a body that never ends", "GET /v1/version HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n{"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := serve(t, sourceFunc(twoInterfaces), short)
			conn := dial(t, path)
			// The server may hang up before it has all of it.
			_, _ = io.WriteString(conn, c.sent)
			if said := hungUp(t, conn); strings.HasPrefix(said, "HTTP/1.1 200") {
				t.Errorf("it was answered: %q", said)
			}
			stillServes(t, path)
		})
	}
}

func TestAClientThatDoesNotReadGivesItsPlaceBack(t *testing.T) {
	// The answer (some 40 KB a hundred connections) must not fit the socket's buffer.
	big := func(ctx context.Context, q Query) (model.Snapshot, error) {
		s, err := twoInterfaces(ctx, q)
		for range 7 {
			s.Interfaces[0].Rules.Bulk = append(s.Interfaces[0].Rules.Bulk, s.Interfaces[0].Rules.Bulk...)
		}
		return s, err
	}
	path := serve(t, sourceFunc(big), func(l *Limits) {
		l.Clients, l.CallTime, l.AnswerTime = 1, 25*time.Millisecond, 25*time.Millisecond
	})
	conn := dial(t, path)
	fmt.Fprint(conn, "GET /v1/snapshot?max_connections=* HTTP/1.1\r\nHost: x\r\n\r\n")
	stillServes(t, path)
}

func TestClientsBeyondTheLimitAreTurnedAwayUntilAPlaceIsFree(t *testing.T) {
	const places = 4
	path := serve(t, sourceFunc(twoInterfaces), func(l *Limits) { l.Clients, l.RequestTime = places, patience })
	var idle []net.Conn
	for range places {
		idle = append(idle, dial(t, path))
	}
	// Connections are accepted in order, so the next finds all places taken.
	if said := hungUp(t, dial(t, path)); said != "" {
		t.Errorf("a client too many was answered: %q", said)
	}
	if _, err := NewClient(path).Version(context.Background()); err == nil || !strings.Contains(err.Error(), "it may have too many clients") {
		t.Errorf("the client says: %v", err)
	}
	idle[0].Close()
	stillServes(t, path)
}

func TestManyClientsAtOnceAreAnsweredOrToldWhyNot(t *testing.T) {
	path := serve(t, sourceFunc(twoInterfaces), func(l *Limits) { l.Clients, l.Calls = 16, 4 })
	const clients = 200
	results := make(chan error, clients)
	for range clients {
		go func() {
			_, err := NewClient(path).Snapshot(context.Background(), Query{MaxConnections: AllConnections})
			results <- err
		}()
	}
	answered := 0
	for range clients {
		switch err := <-results; {
		case err == nil:
			answered++
		case codeOf(err) != CodeBusy && !strings.Contains(err.Error(), "too many clients"):
			t.Errorf("unexpected: %v", err)
		}
	}
	if answered == 0 {
		t.Error("nobody was answered")
	}
	stillServes(t, path)
}

// blocked is a Source that says when it is asked and answers when it is told.
type blocked struct{ asked, answer chan struct{} }

func (b blocked) Snapshot(ctx context.Context, _ Query) (model.Snapshot, error) {
	b.asked <- struct{}{}
	select {
	case <-b.answer:
		return model.Snapshot{}, nil
	case <-ctx.Done():
		return model.Snapshot{}, fmt.Errorf("read counters: %w", ctx.Err())
	}
}

func TestACallTooManyIsAnsweredBusy(t *testing.T) {
	source := blocked{make(chan struct{}), make(chan struct{})}
	c := NewClient(serve(t, source, func(l *Limits) { l.Calls, l.CallTime = 1, patience }))
	first := make(chan error, 1)
	go func() {
		_, err := c.Health(context.Background())
		first <- err
	}()
	<-source.asked
	if _, err := c.Health(context.Background()); codeOf(err) != CodeBusy {
		t.Errorf("second call: %v", err)
	}
	close(source.answer)
	if err := <-first; err != nil {
		t.Errorf("first call: %v", err)
	}
}

func TestASourceThatIsSlowIsATimeout(t *testing.T) {
	source := blocked{make(chan struct{}, 1), nil}
	c := NewClient(serve(t, source, func(l *Limits) { l.CallTime = 10 * time.Millisecond }))
	if _, err := c.Health(context.Background()); codeOf(err) != CodeTimeout {
		t.Errorf("got %v", err)
	}
}

func TestACallEndsWhenItsClientHasGone(t *testing.T) {
	var cancelled atomic.Bool
	asked := make(chan struct{})
	path := serve(t, sourceFunc(func(ctx context.Context, _ Query) (model.Snapshot, error) {
		close(asked)
		<-ctx.Done()
		cancelled.Store(errors.Is(ctx.Err(), context.Canceled))
		return model.Snapshot{}, ctx.Err()
	}), func(l *Limits) { l.CallTime = time.Hour })
	conn := dial(t, path)
	fmt.Fprint(conn, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
	<-asked
	conn.Close()
	testenv.Eventually(t, patience, "the call is cancelled", cancelled.Load)
}

func TestASourceThatPanicsCostsOneCallAndNotTheDaemon(t *testing.T) {
	path := serve(t, sourceFunc(func(context.Context, Query) (model.Snapshot, error) { panic("a bug") }),
		func(l *Limits) { l.Calls = 1 })
	for range 3 { // the third would be "busy" if a place were lost
		if _, err := NewClient(path).Health(context.Background()); err == nil || codeOf(err) != "" {
			t.Errorf("got %v", err)
		}
	}
	stillServes(t, path)
}

func TestServeEndsWithACallUnderWay(t *testing.T) {
	source := blocked{make(chan struct{}), nil}
	path := serve(t, source, func(l *Limits) { l.CallTime = time.Hour }) // its cleanup checks the end
	go func() {
		// The answer is lost with the server; that is what is tested.
		_, _ = NewClient(path).Health(context.Background())
	}()
	<-source.asked
}

func TestWithoutADaemonTheClientSaysSoInOneSentence(t *testing.T) {
	missing := socketPath(t)
	dead := deadSocket(t)
	for path, words := range map[string]string{missing: "no such file or directory", dead: "connection refused"} {
		_, err := NewClient(path).Version(context.Background())
		want := fmt.Sprintf(`no daemon answers at %q ("xlane run DEV" starts one): connect: %s`, path, words)
		if !errors.Is(err, ErrNoDaemon) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestAnAnswerThatIsNotOursIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"a later version": `{"version":2,"result":{}}`,
		"no JSON":         `<html>`,
		"another shape":   `{"version":1,"result":[]}`,
		"nothing":         ``,
		"cut short":       `{"version":1,"result":{"api":`,
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			foreign := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })}
			ended := make(chan error, 1)
			go func() { ended <- foreign.Serve(l) }()
			t.Cleanup(func() { foreign.Close(); <-ended })
			if _, err := NewClient(path).Version(context.Background()); err == nil {
				t.Error("it was taken for an answer")
			}
		})
	}
}

// The second reader that is not ours.
func TestCurlReadsTheSocket(t *testing.T) {
	curl := testenv.Tool(t, "curl")
	path := serve(t, sourceFunc(twoInterfaces), nil)
	out, err := exec.Command(curl, "-sS", "--max-time", "10", "--unix-socket", path, "http://xlane/v1/snapshot?device=eth1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var in struct {
		Version int
		Result  model.Snapshot
	}
	if err := json.Unmarshal(out, &in); err != nil || in.Version != 1 || len(in.Result.Interfaces) != 1 || in.Result.Interfaces[0].Device != "eth1" {
		t.Errorf("%v: %s", err, out)
	}
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "device=eth0", "max_connections=*", "max_connections=7&device=a%20b", "device=%00", "max_connections=-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, failure := parseQuery(raw)
		if failure != nil {
			return
		}
		again, failure := parseQuery(q.values().Encode())
		if failure != nil || again != q {
			t.Errorf("%q was read as %+v, and that as %+v (%v)", raw, q, again, failure)
		}
		// No query that was accepted may make the cut fail.
		if _, failure := q.cut(model.Snapshot{Interfaces: []model.Interface{{Device: q.Device}}}); failure != nil {
			t.Errorf("%q: %v", raw, failure)
		}
	})
}
