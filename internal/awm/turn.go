package awm

import "fmt"

// turnClient takes turns with the server: a request, then its reply. RR and
// STR of given sizes do so on one connection, CRR on a new one each time.
//
// A CRR request carries the hello inside, so that a connection moves what its
// spec says; requests shorter than a hello are sent as one.
type turnClient struct{ clientBase }

// crrPayload is how much of a CRR request follows the hello.
func crrPayload(s Spec) int64 { return max(s.In-helloSize, 0) }

func (r turnClient) connected(c *conn) {
	c.rxLeft = r.w.spec.Out
	if r.w.spec.Kind == CRR {
		c.txLeft = crrPayload(r.w.spec)
		return
	}
	if r.w.period > 0 && c.start > r.w.loop.now {
		c.rxLeft = 0
		r.w.loop.setTimer(c, c.start)
		return
	}
	c.txLeft = r.w.spec.In
}

func (r turnClient) feed(c *conn, b []byte) {
	if c.draining {
		r.w.take(c, b)
		return
	}
	if int64(len(b)) > c.rxLeft || c.txLeft > 0 {
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("%d bytes came where %d of a reply are left", len(b), c.rxLeft))
		return
	}
	if !r.w.take(c, b) {
		return
	}
	c.rxLeft -= int64(len(b))
	if c.rxLeft == 0 && r.w.spec.Kind != CRR {
		now := r.w.loop.clock()
		r.w.record(c.start, now)
		r.w.next(c, now, r.request)
	}
}

func (r turnClient) request(c *conn) {
	c.txLeft, c.rxLeft = r.w.spec.In, r.w.spec.Out
}

func (r turnClient) ended(c *conn, err error) {
	whole := c.rxLeft == 0 && c.txLeft == 0 && c.headSent == c.headLen
	if r.w.spec.Kind != CRR || err != nil || !whole || c.draining {
		r.clientBase.ended(c, err)
		return
	}
	// The server closes first, so that TIME_WAIT and its ports stay there.
	r.w.forget(c)
	r.w.loop.drop(c)
	now := r.w.loop.clock()
	r.w.record(c.start, now)
	c.id += uint32(r.w.spec.Conns)
	r.w.next(c, now, r.w.dial)
}

func (r turnClient) timer(c *conn) {
	if c.fd < 0 {
		r.w.dial(c)
		return
	}
	r.request(c)
	if r.ready(c) {
		r.w.loop.mark(c)
	}
}
