package awm

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

const (
	// openingMax is how many connections of a thread may be in their handshake
	// at once: a quarter of a 4,096 backlog with four threads, so that ten
	// thousand connections open without a lost SYN.
	openingMax = 256
	// reopenAfter is the pause before a lost connection is opened again.
	reopenAfter = int64(100 * time.Millisecond)
	// connectLimit is how long a handshake may take.
	connectLimit = int64(5 * time.Second)
)

var errNoAnswer = errors.New("connect: no answer in 5 s")

// clientWorker drives some of a class's connections from one thread.
type clientWorker struct {
	worker
	to       *sockaddr
	peer     netip.Addr
	seats    []*conn
	nextOpen int   // the first seat that was never opened
	opening  int   // seats in their first handshake
	open     int   // seats that were connected at least once
	period   int64 // nanoseconds between intended sends; 0 is a closed loop
	stopping bool
	aborted  int64
}

// clientRole is what a client's connection does besides.
type clientRole interface {
	role
	// connected is called when the handshake is done.
	connected(c *conn)
	// quit is called once, to end an open connection in good order.
	quit(c *conn)
}

func newClientWorker(clock func() int64, s Spec, class int, token uint64, check bool, to netip.AddrPort, ids []uint32) (*clientWorker, error) {
	w := &clientWorker{to: newSockaddr(to), peer: to.Addr()}
	if err := w.init(clock, s, class, token, check); err != nil {
		return nil, err
	}
	if s.Rate > 0 {
		w.period = max(int64(float64(time.Second)/s.Rate), 1)
	}
	r := w.roleOf(s)
	for _, id := range ids {
		c := w.loop.newConn(r)
		c.id = id
		w.seats = append(w.seats, c)
	}
	w.live = len(w.seats)
	return w, nil
}

func (w *clientWorker) roleOf(s Spec) clientRole {
	base := clientBase{w}
	switch {
	case s.Kind == FTP:
		return &ftpClient{clientBase: base, files: &ftpClientData{w: w}}
	case s.Kind == PHASE:
		return phaseClient{base}
	case s.Flow != NoFlow:
		return streamClient{base}
	}
	return turnClient{base}
}

// openMore opens seats until openingMax are in their handshake.
func (w *clientWorker) openMore() {
	for w.opening < openingMax && w.nextOpen < len(w.seats) && !w.stopping {
		c := w.seats[w.nextOpen]
		w.nextOpen++
		w.opening++
		// An open loop's sends are spread evenly over the class's connections.
		c.start = w.loop.now + w.period*int64(c.id)/int64(w.spec.Conns)
		if w.spec.Kind == CRR && w.period > 0 {
			// There is no connection to wait for until its time comes.
			w.loop.setTimer(c, c.start)
			c.opened = true
			w.open++
			w.opening--
			continue
		}
		w.dial(c)
	}
}

// dial opens a seat's connection.
func (w *clientWorker) dial(c *conn) {
	if w.period == 0 {
		c.start = w.loop.clock()
	}
	c.headLen, c.headSent, c.gotLen = 0, 0, 0
	c.txLeft, c.rxLeft = 0, 0
	c.shut, c.draining = false, false
	fd, err := w.to.connect(w.set)
	if err == nil {
		err = w.loop.watch(c, fd)
	}
	if err != nil {
		w.lost(c, err)
		return
	}
	c.connecting = true
	w.loop.setDeadline(c, connectLimit, errNoAnswer)
	c.begin(w.class, c.id, w.token)
	if w.spec.Kind != FTP {
		putHello(&c.head, w.class, c.id, w.token)
		c.headLen = helloSize
	}
}

// established reports whether the handshake is over; what follows it is begun.
func (w *clientWorker) established(c *conn) bool {
	if c.canRead { // data already, or an error
		if err := pendingError(c.fd); err != nil {
			w.lost(c, fmt.Errorf("connect: %w", err))
			return false
		}
	}
	if !c.canWrite {
		return false
	}
	c.connecting = false
	c.deadline = 0
	w.tally.Connects++
	w.firstOpened(c)
	if w.stopping {
		w.quitSeat(c)
		return false
	}
	c.role.(clientRole).connected(c)
	return c.fd >= 0
}

func (w *clientWorker) firstOpened(c *conn) {
	if c.opened {
		return
	}
	c.opened = true
	w.open++
	w.opening--
	if w.opening < openingMax/2 {
		w.openMore()
	}
}

// lost counts a connection that failed, and opens it again after a pause. One
// whose payload was wrong stays closed: its order is gone.
func (w *clientWorker) lost(c *conn, err error) {
	if err == nil {
		err = errors.New("the server closed the connection")
	}
	w.connError(err)
	w.forget(c)
	w.loop.drop(c)
	c.connecting = false
	if w.stopping {
		w.aborted++
	}
	if w.stopping || err == errPayload {
		w.settle(c)
		return
	}
	w.loop.setTimer(c, w.loop.now+reopenAfter)
}

// settle says that a seat is done for good.
func (w *clientWorker) settle(c *conn) {
	w.forget(c)
	w.loop.drop(c)
	w.loop.setTimer(c, never)
	c.role = idle{}
	w.live--
	if w.live == 0 && w.stopping {
		w.loop.stopped = true
	}
}

// stop ends every connection in good order; the loop ends with the last.
func (w *clientWorker) stop() {
	w.stopping = true
	if w.live == 0 {
		w.loop.stopped = true
	}
	for _, c := range w.seats {
		if c.role != (idle{}) {
			w.quitSeat(c)
		}
	}
}

func (w *clientWorker) quitSeat(c *conn) {
	if c.fd < 0 || c.connecting {
		w.settle(c)
		return
	}
	c.deadline = 0
	w.loop.setTimer(c, never)
	c.role.(clientRole).quit(c)
}

// abort closes what stop could not end in time.
func (w *clientWorker) abort() {
	for _, c := range w.seats {
		if c.role != (idle{}) {
			w.aborted++
			w.settle(c)
		}
	}
	w.loop.stopped = true
}

// backlog counts the intended sends that were due by now and are not answered.
func (w *clientWorker) backlog(now int64) int64 {
	if w.period == 0 {
		return 0
	}
	var n int64
	for _, c := range w.seats {
		if c.opened && c.start < now {
			n += (now-c.start)/w.period + 1
		}
	}
	return n
}

// next begins the seat's next transaction, or waits for when it is intended.
func (w *clientWorker) next(c *conn, now int64, begin func(c *conn)) {
	if w.period == 0 {
		c.start = now
		begin(c)
		return
	}
	c.start += w.period
	if c.start > now {
		w.loop.setTimer(c, c.start)
		return
	}
	begin(c)
}

// idle is the role of a seat that is done.
type idle struct{}

func (idle) ready(*conn) bool   { return false }
func (idle) feed(*conn, []byte) {}
func (idle) sent(*conn)         {}
func (idle) ended(*conn, error) {}
func (idle) timer(*conn)        {}

// clientBase is what the roles of persistent data connections share.
type clientBase struct{ w *clientWorker }

func (r clientBase) ready(c *conn) bool {
	if c.connecting && !r.w.established(c) {
		return false
	}
	return r.w.pump(c)
}

func (clientBase) sent(*conn) {}

func (r clientBase) ended(c *conn, err error) {
	if c.draining && err == nil {
		r.w.settle(c)
		return
	}
	r.w.lost(c, err)
}

func (r clientBase) timer(c *conn) {
	if c.fd < 0 {
		r.w.dial(c)
	}
}

func (clientBase) quit(c *conn) {
	c.draining = true
	c.txLeft, c.headSent = 0, c.headLen
	c.shutdown()
}

// streamClient is an endless stream's end at the client.
type streamClient struct{ clientBase }

func (r streamClient) connected(c *conn) {
	if r.w.spec.Flow != FlowOut {
		c.txLeft = endlessBytes
	}
}

func (r streamClient) feed(c *conn, b []byte) { r.w.take(c, b) }
