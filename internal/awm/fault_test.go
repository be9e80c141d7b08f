package awm

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"xlane/internal/testenv"
)

// These tests put a peer of their own at one end, which makes a mistake on
// purpose, and look at what the real other end says of it.

const testToken = 0x1234567890abcdef

// startServer starts one server thread for a class.
func startServer(t *testing.T, spec string) (*serverWorker, string) {
	t.Helper()
	w, err := newServerWorker(monotonic(), specs(t, spec)[0], 3, testToken, true, &connLimit{most: 4}, netip.MustParseAddr("127.0.0.1"), PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	release := reserveProcs(1)
	w.start(&wg)
	t.Cleanup(func() { w.loop.ask(w.stop); wg.Wait(); release() })
	return w, netip.AddrPortFrom(w.addr, w.port).String()
}

// dialServer sends a hello and returns the connection with its two streams.
func dialServer(t *testing.T, at string, id uint32) (net.Conn, cursor, cursor) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var hello [helloSize]byte
	putHello(&hello, 3, id, testToken)
	if _, err := c.Write(hello[:]); err != nil {
		t.Fatal(err)
	}
	var end connEnd
	end.init(id)
	return c, end.tx, end.rx
}

func TestServerCatchesWrongPayload(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		harm       func(b []byte) []byte
		want       string
	}{
		{"a flipped byte", "RR1(5000/10)", func(b []byte) []byte { b[4321] ^= 1; return b }, "payload offset 4321: byte 0x"},
		{"two swapped blocks", "STR1(in)", func(b []byte) []byte {
			return append(append(append([]byte{}, b[:1000]...), b[2000:3000]...), b[1000:2000]...)
		}, "payload offset 100"},
		{"a short request", "RR1(5000/10)", func(b []byte) []byte { return b[:4999] }, "the connection closed after 4999 of a request's 5000 bytes"},
		{"a long request", "RR1(4000/10)", func(b []byte) []byte { return b }, "bytes came where"},
		{"a frame of no kind", "PHASE1(10/10,1s;in,1s)", func([]byte) []byte { return []byte{99, 0, 0, 0, 0, 0, 0, 9, 1} }, "a frame of kind 99"},
		{"a frame of a phase that is not", "PHASE1(10/10,1s;in,1s)", func([]byte) []byte { return []byte{1, 7, 0, 0, 0, 0, 0, 9, 1} }, "in phase 7 is not possible"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, at := startServer(t, c.spec)
			conn, tx, _ := dialServer(t, at, 5)
			if _, err := conn.Write(c.harm(append([]byte{}, tx.next(5000)...))); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			var details []string
			testenv.Eventually(t, 5*time.Second, "the server counts a payload error", func() bool {
				var n int64
				w.loop.askWait(func() { n, details = w.tally.PayloadErrors, append([]string{}, w.details...) })
				return n == 1
			})
			if !strings.Contains(details[0], "connection 5, ") || !strings.Contains(details[0], c.want) {
				t.Errorf("got %q, want %q", details, c.want)
			}
		})
	}
}

func TestServerRefusesHellosThatAreNotOfItsSession(t *testing.T) {
	w, at := startServer(t, "RR1(1/1)")
	good := [helloSize]byte{}
	putHello(&good, 3, 1, testToken)
	for i := range good {
		if i >= 8 && i < 12 {
			continue // the connection's number may be any
		}
		bad := good
		bad[i] ^= 0x40
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(bad[:])
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a hello with byte %d changed was answered with %d bytes", i, n)
		}
		_ = c.Close()
	}
	var refused int64
	w.loop.askWait(func() { refused = w.refused })
	if refused != helloSize-4 {
		t.Errorf("%d hellos were refused, not %d", refused, helloSize-4)
	}
	conn, tx, rx := dialServer(t, at, 1)
	if _, err := conn.Write(tx.next(1)); err != nil {
		t.Fatal(err)
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil || reply[0] != rx.next(1)[0] {
		t.Errorf("a good hello is not served: %v", err)
	}
}

// connEnd is the client's two streams of a connection.
type connEnd struct{ tx, rx cursor }

func (e *connEnd) init(id uint32) {
	var c conn
	c.begin(3, id, testToken)
	e.tx, e.rx = c.tx, c.rx
}

// fakeServer serves one connection with a peer of the test's own.
func fakeServer(t *testing.T, serve func(c net.Conn, e connEnd)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var hello [helloSize]byte
			if _, err := io.ReadFull(c, hello[:]); err == nil {
				var e connEnd
				e.init(binary.BigEndian.Uint32(hello[8:]))
				serve(c, e)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

func startClient(t *testing.T, spec string, to netip.AddrPort) *clientWorker {
	t.Helper()
	w, err := newClientWorker(monotonic(), specs(t, spec)[0], 3, testToken, true, to, []uint32{0})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	release := reserveProcs(1)
	w.start(&wg)
	t.Cleanup(func() { w.loop.ask(w.abort); wg.Wait(); release() })
	w.loop.ask(func() { w.openMore(); w.beginWindow() })
	return w
}

func TestClientCatchesWrongReplies(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(b []byte) []byte
		want string
	}{
		{"a flipped byte", func(b []byte) []byte { b[700] ^= 0x80; return b[:800] }, "payload offset 700: byte 0x"},
		{"a reply that is too long", func(b []byte) []byte { return b[:801] }, "801 bytes came where 800 of a reply are left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := fakeServer(t, func(conn net.Conn, e connEnd) {
				_, _ = io.ReadFull(conn, make([]byte, 100))
				_, _ = conn.Write(c.harm(append([]byte{}, e.rx.next(1000)...)))
				_, _ = io.Copy(io.Discard, conn)
			})
			w := startClient(t, "RR1(100/800)", to)
			var details []string
			testenv.Eventually(t, 5*time.Second, "the client counts a payload error", func() bool {
				var n int64
				w.loop.askWait(func() { n, details = w.tally.PayloadErrors, append([]string{}, w.details...) })
				return n == 1
			})
			if !strings.Contains(details[0], c.want) {
				t.Errorf("got %q, want %q", details, c.want)
			}
		})
	}
}

func TestClientOpensALostConnectionAgain(t *testing.T) {
	to := fakeServer(t, func(conn net.Conn, e connEnd) {
		_, _ = io.ReadFull(conn, make([]byte, 100))
		_, _ = conn.Write(e.rx.next(400)) // and closes in the middle of a reply
	})
	w := startClient(t, "RR1(100/800)", to)
	testenv.Eventually(t, 5*time.Second, "the client has lost three connections", func() bool {
		var t tally
		w.loop.askWait(func() { t = w.tally })
		return t.ConnErrors >= 3 && t.Connects >= 3 && t.PayloadErrors == 0
	})
}

// A server that stalls once for 300 ms under 500 transactions a second keeps
// 150 of them waiting. A closed loop would see one slow transaction; counted
// from the intended sends, every one of them is slow.
func TestOpenLoopCountsFromTheIntendedSend(t *testing.T) {
	const stall = 300 * time.Millisecond
	to := fakeServer(t, func(conn net.Conn, e connEnd) {
		for n := 0; ; n++ {
			if _, err := io.ReadFull(conn, make([]byte, 10)); err != nil {
				return
			}
			if n == 100 {
				<-time.After(stall)
			}
			if _, err := conn.Write(e.rx.next(20)); err != nil {
				return
			}
			e.rx.advance(20)
		}
	})
	w := startClient(t, "RR1(10/20):rate=500", to)
	testenv.Eventually(t, 20*time.Second, "500 transactions are done", func() bool {
		var n int64
		w.loop.askWait(func() { n = w.tally.Transactions })
		return n >= 500
	})
	w.loop.askWait(func() {
		w.endWindow()
		l := latencyOf(w.hist, w.latest)
		if l.Max < 290_000 {
			t.Errorf("the longest latency is %.0f us: the stall is not in it", l.Max)
		}
		if l.P999 < 280_000 || l.P90 < 50_000 {
			t.Errorf("p90 %.0f us and p99.9 %.0f us: the sends that waited are not in them", l.P90, l.P999)
		}
	})
}
