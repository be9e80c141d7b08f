package awm

import (
	"encoding/binary"
	"fmt"
)

// A PHASE connection's messages are framed, because nothing else tells a
// server where streaming ends: one byte of frameOp, one of the phase's index,
// six of the frame's length with this head, in network byte order.
const frameHead = 8

type frameOp uint8

const (
	frameRequest frameOp = iota + 1
	frameReply
	frameData
	// frameStream asks the server to stream until it gets frameEnd.
	frameStream
	// frameEnd ends a streaming phase; the server answers it when it has sent
	// its last data frame.
	frameEnd
)

// phaseState is where a PHASE connection stands, at either end.
type phaseState struct {
	at     int   // the phase's index
	until  int64 // client: when the phase ends
	sends  bool  // data frames follow one another
	ending bool  // client: frameEnd was sent; server: it was received
	op     frameOp
	index  uint8
	inBody bool
}

// putFrame starts a frame of size bytes in all.
func (c *conn) putFrame(op frameOp, index int, size int64) {
	binary.BigEndian.PutUint64(c.head[:], uint64(op)<<56|uint64(index)<<48|uint64(size))
	c.headLen, c.headSent = frameHead, 0
	c.txLeft = size - frameHead
}

// putData starts a data frame that one call can write.
func (w *worker) putData(c *conn) {
	c.putFrame(frameData, c.phase.at, max(int64(w.spec.Call), frameHead+1))
}

// frames splits what was received into frames, checks their payload, and calls
// done after each. It stops early when done or a wrong byte ends the
// connection.
func (w *worker) frames(c *conn, b []byte, done func(c *conn)) {
	st := c.phase
	for len(b) > 0 && c.fd >= 0 {
		if !st.inBody {
			n := copy(c.got[c.gotLen:frameHead], b)
			c.gotLen += uint8(n)
			b = b[n:]
			if c.gotLen < frameHead {
				return
			}
			if !w.frameBegin(c) {
				return
			}
		}
		n := int(min(int64(len(b)), c.rxLeft))
		if n > 0 && !w.take(c, b[:n]) {
			return
		}
		b = b[n:]
		c.rxLeft -= int64(n)
		if c.rxLeft == 0 {
			st.inBody = false
			done(c)
		}
	}
}

// frameBegin reads a head that has come in whole.
func (w *worker) frameBegin(c *conn) bool {
	v := binary.BigEndian.Uint64(c.got[:])
	size := int64(v & (1<<48 - 1))
	st := c.phase
	st.op, st.index, st.inBody = frameOp(v>>56), uint8(v>>48), true
	c.gotLen = 0
	c.rxLeft = size - frameHead
	if st.op < frameRequest || st.op > frameEnd || int(st.index) >= len(w.spec.Phases) || size < frameHead || size > SizeMax {
		w.payloadError(c, c.rxPos, fmt.Sprintf("a frame of kind %d with %d bytes in phase %d is not possible", st.op, size, st.index))
		return false
	}
	return true
}

// phaseClient leads a connection through its phases.
type phaseClient struct{ clientBase }

func (r phaseClient) connected(c *conn) {
	if c.phase == nil {
		c.phase = &phaseState{}
	}
	*c.phase = phaseState{at: -1} // the hello is on its way; sent begins phase 0
}

func (r phaseClient) sent(c *conn) {
	st := c.phase
	switch {
	case st.at < 0:
		r.enter(c, 0, r.w.loop.clock())
	case st.sends && r.w.loop.clock() >= st.until:
		r.end(c)
	case st.sends:
		r.w.putData(c)
	}
}

func (r phaseClient) enter(c *conn, index int, now int64) {
	p := r.w.spec.Phases[index]
	*c.phase = phaseState{at: index, until: now + int64(p.For)}
	switch p.Flow {
	case NoFlow:
		r.request(c, now)
	case FlowIn:
		c.phase.sends = true
		r.w.putData(c)
	case FlowBoth:
		c.phase.sends = true
		c.putFrame(frameStream, index, frameHead)
	case FlowOut:
		c.putFrame(frameStream, index, frameHead)
		r.w.loop.setTimer(c, c.phase.until)
	}
}

func (r phaseClient) request(c *conn, now int64) {
	c.start = now
	c.putFrame(frameRequest, c.phase.at, r.w.spec.Phases[c.phase.at].In)
}

// end closes a streaming phase; the server's answer begins the next.
func (r phaseClient) end(c *conn) {
	c.phase.sends, c.phase.ending = false, true
	c.putFrame(frameEnd, c.phase.at, frameHead)
}

func (r phaseClient) feed(c *conn, b []byte) { r.w.frames(c, b, r.frame) }

func (r phaseClient) frame(c *conn) {
	st := c.phase
	if c.draining || st.op == frameData {
		return
	}
	now := r.w.loop.clock()
	next := (st.at + 1) % len(r.w.spec.Phases)
	switch {
	case st.op == frameEnd && st.ending:
		r.enter(c, next, now)
	case st.op == frameReply && r.w.spec.Phases[st.at].Flow == NoFlow && c.txLeft == 0:
		r.w.record(c.start, now)
		if now >= st.until {
			r.enter(c, next, now)
			return
		}
		r.request(c, now)
	default:
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("a frame of kind %d came in phase %d", st.op, st.at))
	}
}

func (r phaseClient) timer(c *conn) {
	if c.fd < 0 {
		r.w.dial(c)
		return
	}
	r.end(c)
	if r.ready(c) {
		r.w.loop.mark(c)
	}
}

// phaseServer answers a connection that goes through phases.
type phaseServer struct{ serverBase }

func (r phaseServer) opened(c *conn) { c.phase = &phaseState{} }

func (r phaseServer) feed(c *conn, b []byte) { r.w.frames(c, b, r.frame) }

func (r phaseServer) frame(c *conn) {
	st := c.phase
	busy := c.txLeft > 0 || c.headSent < c.headLen
	switch {
	case st.op == frameRequest && !busy && r.w.spec.Phases[st.index].Flow == NoFlow:
		st.at = int(st.index)
		c.putFrame(frameReply, st.at, r.w.spec.Phases[st.at].Out)
	case st.op == frameStream && !busy:
		st.at = int(st.index)
		st.sends, st.ending = true, false
		r.w.putData(c)
	case st.op == frameEnd && st.sends:
		st.ending = true // the frame on its way is finished first
	case st.op == frameEnd && !busy:
		st.at = int(st.index)
		c.putFrame(frameEnd, st.at, frameHead)
	case st.op == frameData:
	default:
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("a frame of kind %d came in phase %d", st.op, st.at))
	}
}

func (r phaseServer) sent(c *conn) {
	st := c.phase
	switch {
	case st.sends && st.ending:
		st.sends = false
		c.putFrame(frameEnd, st.at, frameHead)
	case st.sends:
		r.w.putData(c)
	case r.w.spec.Phases[st.at].Flow == NoFlow:
		r.w.tally.Transactions++
	}
}
