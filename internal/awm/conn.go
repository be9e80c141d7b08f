package awm

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// endlessBytes is the txLeft of a stream that nothing but its stop ends.
const endlessBytes = int64(1) << 62

// role is what a connection does. One role serves all connections of its kind
// on a thread: what differs between them is in conn. Its methods run on the
// loop's thread.
type role interface {
	// ready makes whatever progress is possible, and reports whether it
	// stopped only because its budget was used up.
	ready(c *conn) bool
	// feed takes payload that was received.
	feed(c *conn, b []byte)
	// sent is called when head and txLeft have been written.
	sent(c *conn)
	// ended is called when the peer has closed its direction (err is nil) or
	// the connection has failed.
	ended(c *conn, err error)
	// timer is called when the connection's timer is due.
	timer(c *conn)
}

// conn is one end of one connection, of any role. A client's conn outlives its
// sockets: it is the seat that a connection is opened from again and again.
type conn struct {
	fd     int // -1 without a socket
	slot   int32
	gen    int32
	heapAt int32
	wakeAt int64
	role   role
	id     uint32

	canRead, canWrite bool
	queued            bool
	hangup            bool // the peer has closed its direction, or will not send more
	connecting        bool
	opened            bool // was connected at least once
	draining          bool // sends no more; reads until the peer closes
	shut              bool // has closed its own direction

	// head goes out before the payload, in the same call.
	head     [helloSize]byte
	headLen  uint8
	headSent uint8

	tx, rx         cursor
	txLeft, rxLeft int64
	txPos, rxPos   int64 // payload bytes moved since the connection was opened
	start          int64 // when the transaction was, or was to be, sent
	deadline       int64 // the sweep ends the connection after it; 0 is never
	late           error // with this
	retry          bool  // a listening socket whose accept found no room

	got    [helloSize]byte // a hello or a frame's head on its way in
	gotLen uint8

	phase *phaseState
	ctl   *ftpControl
	data  *ftpData
}

// helloSize is a hello's length. A data connection starts with it:
//
//	"xlaw"  4 bytes
//	version 1 byte, then 1 byte of zero
//	class   2 bytes
//	conn    4 bytes
//	zero    4 bytes
//	token   8 bytes
//
// in network byte order. The seeds of both directions follow from the token,
// the class and the connection.
const (
	helloSize  = 24
	helloMagic = "xlaw"
)

func putHello(b *[helloSize]byte, class int, id uint32, token uint64) {
	copy(b[:4], helloMagic)
	b[4], b[5] = protocolVersion, 0
	binary.BigEndian.PutUint16(b[6:], uint16(class))
	binary.BigEndian.PutUint32(b[8:], id)
	binary.BigEndian.PutUint32(b[12:], 0)
	binary.BigEndian.PutUint64(b[16:], token)
}

// readHello returns the connection's number, or an error if the hello is not
// one of this class and session.
func readHello(b *[helloSize]byte, class int, token uint64) (uint32, error) {
	var want [helloSize]byte
	id := binary.BigEndian.Uint32(b[8:])
	putHello(&want, class, id, token)
	if *b != want {
		return 0, fmt.Errorf("read a hello: it is not of this session's class %d", class)
	}
	return id, nil
}

// begin starts both pattern streams.
func (c *conn) begin(class int, id uint32, token uint64) {
	seed := token ^ uint64(class)<<48 ^ uint64(id)
	c.id = id
	c.tx, c.rx = newCursor(seed, towardsServer), newCursor(seed, towardsClient)
	c.txPos, c.rxPos = 0, 0
}

// beginServer is begin, seen from the other end.
func (c *conn) beginServer(class int, id uint32, token uint64) {
	c.begin(class, id, token)
	c.tx, c.rx = c.rx, c.tx
}

// pump moves bytes both ways until nothing can move or the budget is used up,
// which it reports.
func (w *worker) pump(c *conn) bool {
	for range stepBudget {
		moved := false
		if c.canWrite && (c.txLeft > 0 || c.headSent < c.headLen) {
			w.writeOnce(c)
			moved = true
		}
		if c.fd >= 0 && c.canRead {
			w.readOnce(c)
			moved = true
		}
		if c.fd < 0 || !moved {
			return false
		}
	}
	return true
}

func (w *worker) writeOnce(c *conn) {
	body := int(min(c.txLeft, int64(w.spec.Call)))
	head := int(c.headLen - c.headSent)
	var n int
	var e unix.Errno
	switch {
	case head > 0:
		n, e = w.loop.out.send(c.fd, c.head[c.headSent:c.headLen], c.tx.next(body))
	default:
		n, e = sysSend(c.fd, c.tx.next(body))
	}
	if e != 0 {
		c.canWrite = false
		if e != unix.EAGAIN && e != unix.EINTR {
			c.role.ended(c, fmt.Errorf("write: %w", e))
		}
		return
	}
	if n < head+body {
		c.canWrite = false // the buffer is full: its draining is an event
	}
	inHead := min(n, head)
	c.headSent += uint8(inHead)
	n -= inHead
	c.tx.advance(n)
	c.txPos += int64(n)
	w.tally.Sent += int64(n)
	w.total.Sent += int64(n)
	if c.txLeft < endlessBytes {
		c.txLeft -= int64(n)
	}
	if c.txLeft == 0 && c.headSent == c.headLen {
		c.role.sent(c)
	}
}

func (w *worker) readOnce(c *conn) {
	n, e := sysRead(c.fd, w.buf)
	switch {
	case e == unix.EAGAIN:
		c.canRead = false
	case e == unix.EINTR:
	case e != 0:
		c.canRead = false
		c.role.ended(c, fmt.Errorf("read: %w", e))
	case n == 0:
		c.canRead = false
		c.role.ended(c, nil)
	default:
		// A call that was not filled has emptied the socket, unless the peer
		// has closed as well: the end of the stream is still to be read.
		if n < len(w.buf) && !c.hangup {
			c.canRead = false
		}
		c.role.feed(c, w.buf[:n])
	}
}

// take checks n received payload bytes against the pattern. It reports whether
// the connection may go on: a wrong byte ends it.
func (w *worker) take(c *conn, b []byte) bool {
	n := int64(len(b))
	w.tally.Received += n
	w.total.Received += n
	at := c.rxPos
	c.rxPos += n
	if !w.check {
		c.rx.advance(len(b))
		return true
	}
	want := c.rx
	if bad := c.rx.check(b); bad >= 0 {
		w.payloadError(c, at+int64(bad), fmt.Sprintf("byte 0x%02x stands where 0x%02x was sent", b[bad], want.next(bad + 1)[bad]))
		return false
	}
	return true
}

// shutdown closes the connection's own direction.
func (c *conn) shutdown() {
	if !c.shut && c.fd >= 0 {
		c.shut = true
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	}
}
