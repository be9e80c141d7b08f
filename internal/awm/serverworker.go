package awm

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// helloLimit is how long a server waits for a connection's hello.
	helloLimit = int64(5 * time.Second)
	// acceptBudget is how many connections a listener takes in one step.
	acceptBudget = 64
)

// connLimit bounds a server's connections over all its threads.
type connLimit struct {
	most int64
	now  atomic.Int64
}

// take reports whether another connection fits, and counts it if so.
func (l *connLimit) take() bool {
	if l.now.Add(1) > l.most {
		l.now.Add(-1)
		return false
	}
	return true
}

func (l *connLimit) give() { l.now.Add(-1) }

// serverWorker serves some of a class's connections from one thread. Each has
// a port of its own, so that no thread hands a connection to another.
type serverWorker struct {
	worker
	limit     *connLimit
	ports     PortRange
	addr      netip.Addr
	port      uint16
	listener  *conn
	refused   int64 // connections over the limit, and hellos that were not ours
	ending    bool  // the window is over: partial messages are no error
	firstRole serverRole
}

// serverRole is what a server's connection does besides.
type serverRole interface {
	role
	// opened is called when the connection is known to be ours.
	opened(c *conn)
}

// newServerWorker listens, so that an error is known before a client is told
// the port.
func newServerWorker(clock func() int64, s Spec, class int, token uint64, check bool, limit *connLimit, addr netip.Addr, ports PortRange) (*serverWorker, error) {
	w := &serverWorker{limit: limit, addr: addr, ports: ports}
	if err := w.init(clock, s, class, token, check); err != nil {
		return nil, err
	}
	base := serverBase{w}
	switch {
	case s.Kind == FTP:
		w.firstRole = newFTPServer(base)
	case s.Kind == PHASE:
		w.firstRole = helloServer{base, phaseServer{base}}
	case s.Flow != NoFlow:
		w.firstRole = helloServer{base, streamServer{base}}
	default:
		w.firstRole = helloServer{base, turnServer{base}}
	}
	fd, port, err := listen(addr, ports, w.set)
	if err != nil {
		w.loop.close()
		return nil, err
	}
	w.port = port
	w.listener = w.loop.newConn(acceptor{serverBase: base, accepted: w.accepted})
	if err := w.loop.watch(w.listener, fd); err != nil {
		w.loop.close()
		return nil, err
	}
	return w, nil
}

// accepted takes a new connection in.
func (w *serverWorker) accepted(fd int) {
	c := w.loop.newConn(w.firstRole)
	if err := w.loop.watch(c, fd); err != nil {
		w.connError(err)
		w.loop.release(c)
		w.limit.give()
		return
	}
	w.live++
	w.tally.Connects++
	w.loop.setDeadline(c, helloLimit, errTooSilent)
	w.firstRole.opened(c)
}

// finish closes a connection and gives its place back.
func (w *serverWorker) finish(c *conn) {
	w.forget(c)
	w.loop.release(c)
	w.limit.give()
	w.live--
}

// stop ends the loop, whatever is open.
func (w *serverWorker) stop() {
	for _, c := range w.loop.slots {
		if c.fd >= 0 && c != w.listener {
			w.limit.give()
		}
		w.loop.drop(c)
	}
	w.loop.stopped = true
}

var errTooSilent = errors.New("the client said nothing in time")

// acceptor is a listening socket's role.
type acceptor struct {
	serverBase
	accepted func(fd int)
}

func (r acceptor) ready(c *conn) bool {
	for range acceptBudget {
		fd, e := sysAccept(c.fd)
		switch {
		case e == unix.EAGAIN:
			return false
		case e == unix.ECONNABORTED || e == unix.EINTR:
		case e != 0:
			// Out of descriptors or memory. What waits makes no new event, so
			// the sweep tries again.
			r.w.connError(fmt.Errorf("accept: %w", e))
			c.retry = true
			r.w.loop.armSweep()
			return false
		case !r.w.limit.take():
			r.w.refused++
			sysClose(fd)
		default:
			r.accepted(fd)
		}
		if c.fd < 0 {
			return false
		}
	}
	return true
}

// serverBase is what the roles of a server's connections share.
type serverBase struct{ w *serverWorker }

func (r serverBase) ready(c *conn) bool { return r.w.pump(c) }
func (serverBase) feed(*conn, []byte)   {}
func (serverBase) sent(*conn)           {}
func (serverBase) timer(*conn)          {}
func (serverBase) opened(*conn)         {}

func (r serverBase) ended(c *conn, err error) {
	if err != nil && !r.w.ending {
		r.w.connError(err)
	}
	r.w.finish(c)
}

// helloServer waits for a connection's hello and then gives it its role.
type helloServer struct {
	serverBase
	then serverRole
}

func (r helloServer) feed(c *conn, b []byte) {
	n := copy(c.got[c.gotLen:], b)
	c.gotLen += uint8(n)
	if c.gotLen < helloSize {
		return
	}
	id, err := readHello(&c.got, r.w.class, r.w.token)
	if err != nil {
		r.w.refused++
		r.w.finish(c)
		return
	}
	c.gotLen, c.deadline = 0, 0
	c.beginServer(r.w.class, id, r.w.token)
	c.role = r.then
	r.then.opened(c)
	if n < len(b) {
		r.then.feed(c, b[n:])
	}
}

func (r helloServer) ended(c *conn, _ error) {
	if !r.w.ending {
		r.w.refused++
	}
	r.w.finish(c)
}

// turnServer answers requests. It closes a CRR connection itself, after the
// reply.
type turnServer struct{ serverBase }

func (r turnServer) request() int64 {
	if r.w.spec.Kind == CRR {
		return crrPayload(r.w.spec)
	}
	return r.w.spec.In
}

func (r turnServer) opened(c *conn) {
	c.rxLeft = r.request()
	if c.rxLeft == 0 {
		c.txLeft = r.w.spec.Out
	}
}

func (r turnServer) feed(c *conn, b []byte) {
	if int64(len(b)) > c.rxLeft {
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("%d bytes came where %d of a request are left", len(b), c.rxLeft))
		return
	}
	if !r.w.take(c, b) {
		return
	}
	c.rxLeft -= int64(len(b))
	if c.rxLeft == 0 {
		c.txLeft = r.w.spec.Out
	}
}

func (r turnServer) sent(c *conn) {
	r.w.tally.Transactions++
	if r.w.spec.Kind == CRR {
		r.w.finish(c)
		return
	}
	c.rxLeft = r.request()
}

func (r turnServer) ended(c *conn, err error) {
	part := r.request() - c.rxLeft
	if err == nil && c.rxLeft > 0 && part > 0 && !r.w.ending {
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("the connection closed after %d of a request's %d bytes", part, r.request()))
		return
	}
	r.serverBase.ended(c, err)
}

// streamServer is an endless stream's end at the server.
type streamServer struct{ serverBase }

func (r streamServer) opened(c *conn) {
	if r.w.spec.Flow == FlowOut || r.w.spec.Flow == FlowBoth {
		c.txLeft = endlessBytes
	}
}

func (r streamServer) feed(c *conn, b []byte) {
	before := c.rxPos / ackEvery
	if !r.w.take(c, b) || r.w.spec.Flow != FlowAcks {
		return
	}
	c.txLeft += (c.rxPos/ackEvery - before) * ackBytes
}
