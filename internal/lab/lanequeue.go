package lab

import (
	"math/bits"
	"time"
)

// laneQueue decides when frames are due and keeps them until then. It knows no
// clock: times are since an origin of the caller's. Frames that were chosen to
// be reordered wait in a line of their own, and each line is first in, first
// out, so that no other frame is ever overtaken.
type laneQueue struct {
	lines  [2]laneLine // ordered, held back
	number uint64      // frames admitted so far
	free   [][]byte
}

type laneLine struct {
	frames []laneFrame
	head   int // index of the first frame that waits
	last   time.Duration
}

type laneFrame struct {
	bytes []byte
	due   time.Duration
}

// laneSalt keeps the lane's draws apart from those for loss (digits of pi).
const laneSalt = 0x243f6a8885a308d3

// admit puts a frame in line and reports whether it is to be held back.
func (q *laneQueue) admit(frame []byte, now time.Duration, s *laneSettings) bool {
	random := draw(s.seed^laneSalt, q.number)
	q.number++
	isHeld := !s.all || random>>32 < s.reorder
	due := now + s.delay
	if s.jitter > 0 {
		// The lower 32 bits as a fraction of twice the jitter.
		part, _ := bits.Mul64(random<<32, uint64(2*s.jitter))
		due += time.Duration(part) - s.jitter
	}
	ordered, held := &q.lines[0], &q.lines[1]
	ordered.last = max(ordered.last, due)
	if isHeld {
		// Counted from where the frame would have been, or jitter could bring
		// it in front of those that it is to fall behind.
		held.last = max(held.last, ordered.last+s.hold)
		held.frames = append(held.frames, laneFrame{frame, held.last})
	} else {
		ordered.frames = append(ordered.frames, laneFrame{frame, ordered.last})
	}
	return isHeld
}

func (q *laneQueue) full() bool {
	return q.lines[0].len()+q.lines[1].len() >= laneFramesMax
}

// first returns the line whose first frame is due first; nil when both are empty.
func (q *laneQueue) first() *laneLine {
	a, b := &q.lines[0], &q.lines[1]
	switch {
	case a.len() == 0 && b.len() == 0:
		return nil
	case a.len() == 0, b.len() > 0 && b.frames[b.head].due < a.frames[a.head].due:
		return b
	}
	return a
}

// next says when the next frame is due, if there is one.
func (q *laneQueue) next() (time.Duration, bool) {
	if line := q.first(); line != nil {
		return line.frames[line.head].due, true
	}
	return 0, false
}

// due takes out the next frame that is due, or returns nil.
func (q *laneQueue) due(now time.Duration) []byte {
	line := q.first()
	if line == nil || line.frames[line.head].due > now {
		return nil
	}
	return line.pop()
}

func (l *laneLine) len() int { return len(l.frames) - l.head }

func (l *laneLine) pop() []byte {
	frame := l.frames[l.head].bytes
	l.frames[l.head].bytes = nil
	l.head++
	// Moving the rest down when it is the smaller half costs one move a frame.
	if l.head*2 >= len(l.frames) {
		n := copy(l.frames, l.frames[l.head:])
		l.frames, l.head = l.frames[:n], 0
	}
	return frame
}

// buffer returns room for a frame of up to size bytes; recycle gives it back.
func (q *laneQueue) buffer(size int) []byte {
	if n := len(q.free); n > 0 {
		buf := q.free[n-1]
		q.free = q.free[:n-1]
		return buf
	}
	return make([]byte, size)
}

func (q *laneQueue) recycle(buf []byte) { q.free = append(q.free, buf[:cap(buf)]) }
