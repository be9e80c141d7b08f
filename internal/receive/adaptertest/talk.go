package adaptertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"xlane/internal/lab"
)

const (
	// period is a prime, so that no two reads of a buffer's size look alike.
	period = 65521
	// chunk is how much is written and compared at a time.
	chunk = 32 << 10

	// sendBuffer bounds what one connection has on its way (the kernel doubles
	// it, and counts its own overhead): some 40 frames, so that four
	// connections fit a veth's ring of 256 and nothing is ever lost there.
	// With sendBufferLong one connection alone nearly fills it, and no longer
	// waits for acknowledgements. Both are for frames of 1500 bytes.
	sendBuffer, sendBufferLong = 16 << 10, 80 << 10

	// What a stream and a question and answer are, in bytes. A stream is well
	// over the threshold of 180,000; RR is the published 100/800.
	streamBytes           = 400_000
	askBytes, answerBytes = 100, 800
	// turnsHome questions in a row make a bulk connection interactive again
	// (sorter.Config.ShortTurns is 4), with some to spare for its moving.
	turnsHome = 8

	// talkMax bounds a conversation: a lost connection ends a test, it does
	// not hang it.
	talkMax = time.Minute
)

// content is what every connection carries, over and over.
var content = func() []byte {
	b := make([]byte, period+chunk)
	rand.New(rand.NewSource(1)).Read(b[:period])
	copy(b[period:], b)
	return b
}()

func contentAt(at uint64, n int) []byte { return content[at%period:][:n] }

// header precedes each request: how long it is, and how long the answer.
const headerBytes = 8

// server answers requests, and checks every byte of them.
type server struct {
	ln   net.Listener
	wait sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// serve listens on an address of the host until the test ends; wrong content
// fails the test.
func serve(t testing.TB, h *lab.Host, addr netip.Addr) *server {
	t.Helper()
	s := &server{}
	err := h.Do(func() (err error) {
		s.ln, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wait.Go(func() {
		for {
			conn, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.wait.Go(func() {
				defer conn.Close()
				if err := answer(conn); err != nil {
					s.mu.Lock()
					s.errs = append(s.errs, err)
					s.mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(func() {
		s.ln.Close()
		s.wait.Wait()
		for _, err := range s.errs {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

// errContent says that bytes came wrong, or in the wrong order.
var errContent = errors.New("wrong content")

func answer(conn net.Conn) error {
	buf := make([]byte, chunk)
	var in, out uint64
	for {
		var head [headerBytes]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return nil // the client has gone, as it may; what it had no answer to is its to report
		}
		n, reply := int(binary.BigEndian.Uint32(head[:])), int(binary.BigEndian.Uint32(head[4:]))
		if err := receiveContent(conn, buf, &in, n); err != nil {
			return err
		}
		if err := sendContent(conn, &out, reply); err != nil {
			return nil
		}
	}
}

func receiveContent(r io.Reader, buf []byte, at *uint64, n int) error {
	for n > 0 {
		b := buf[:min(n, chunk)]
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("read at byte %d: %w", *at, err)
		}
		if !bytes.Equal(b, contentAt(*at, len(b))) {
			return fmt.Errorf("at byte %d: %w", *at, errContent)
		}
		*at += uint64(len(b))
		n -= len(b)
	}
	return nil
}

func sendContent(w io.Writer, at *uint64, n int) error {
	for n > 0 {
		b := contentAt(*at, min(n, chunk))
		if _, err := w.Write(b); err != nil {
			return err
		}
		*at += uint64(len(b))
		n -= len(b)
	}
	return nil
}

// client is one connection to a server.
type client struct {
	conn    net.Conn
	out, in uint64
	buf     []byte
	mtu     int // bytes
}

// dial connects from a host; the connection is closed when the test ends.
func dial(t testing.TB, from *lab.Host, to net.Addr) *client {
	t.Helper()
	c := &client{buf: make([]byte, chunk), mtu: from.Spec().MTU}
	err := from.Do(func() (err error) {
		c.conn, err = net.DialTimeout("tcp", to.String(), 10*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() })
	c.window(t, sendBuffer)
	return c
}

// window bounds what the connection has on its way; larger frames need more
// bytes for as many frames, or each waits for a delayed acknowledgement.
func (c *client) window(t testing.TB, bytes int) {
	t.Helper()
	if err := c.conn.(*net.TCPConn).SetWriteBuffer(bytes * c.mtu / 1500); err != nil {
		t.Fatal(err)
	}
}

func (c *client) local() netip.AddrPort { return c.conn.LocalAddr().(*net.TCPAddr).AddrPort() }

// ask sends n bytes of content and waits for an answer of reply bytes.
func (c *client) ask(n, reply int) error {
	if err := c.conn.SetDeadline(time.Now().Add(talkMax)); err != nil {
		return err
	}
	var head [headerBytes]byte
	binary.BigEndian.PutUint32(head[:], uint32(n))
	binary.BigEndian.PutUint32(head[4:], uint32(reply))
	first := append(head[:], contentAt(c.out, min(n, chunk))...)
	if _, err := c.conn.Write(first); err != nil {
		return fmt.Errorf("client: write: %w", err)
	}
	c.out += uint64(len(first) - headerBytes)
	if err := sendContent(c.conn, &c.out, n-(len(first)-headerBytes)); err != nil {
		return fmt.Errorf("client: write: %w", err)
	}
	if err := receiveContent(c.conn, c.buf, &c.in, reply); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// alternate streams, and then asks, so often: each cycle sends the connection
// to BULKDATA and home again.
func (c *client) alternate(cycles int) error {
	for range cycles {
		if err := c.ask(streamBytes, 1); err != nil {
			return err
		}
		for range turnsHome {
			if err := c.ask(askBytes, answerBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// together runs f on each client at once and fails the test on any error.
func together(t testing.TB, clients []*client, f func(*client) error) {
	t.Helper()
	errs := make([]error, len(clients))
	var wait sync.WaitGroup
	for i, c := range clients {
		wait.Go(func() { errs[i] = f(c) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
