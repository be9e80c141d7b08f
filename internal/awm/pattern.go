package awm

import (
	"bytes"
	"sync"
)

// Every payload is a piece of one repeating block of pseudo-random bytes. The
// block's length is prime, so that two pieces which a network, a driver or a
// program could swap (segments, pages, calls, any power of two) never look
// alike, and longer than 64 KiB. Sending costs no generation and checking is
// one comparison, both at memory speed: callMax bytes from any position are
// contiguous.
const blockLen = 65537

// A connection has two pattern streams. They begin at different positions, so
// that a reply which echoes the request is noticed.
const (
	towardsServer = 0
	towardsClient = 1
)

// blockSeed starts the generator; any odd number does.
const blockSeed = 0x9E3779B97F4A7C15

var patternBlock = sync.OnceValue(func() []byte {
	b := make([]byte, blockLen+callMax)
	x := uint64(blockSeed)
	for i := 0; i < blockLen; i++ {
		// xorshift64* (Vigna 2016), the high byte of each word.
		x ^= x >> 12
		x ^= x << 25
		x ^= x >> 27
		b[i] = byte(x * 0x2545F4914F6CDD1D >> 56)
	}
	for i := blockLen; i < len(b); i += copy(b[i:], b[:blockLen]) {
	}
	return b
})

// cursor is a position in a pattern stream.
type cursor struct {
	block []byte
	at    uint32
}

// newCursor returns the start of one direction's stream on the connection that
// has this seed.
func newCursor(seed uint64, direction int) cursor {
	// The finaliser of splitmix64: neighbouring seeds start far apart.
	z := seed + uint64(direction+1)*blockSeed
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return cursor{block: patternBlock(), at: uint32((z ^ z>>31) % blockLen)}
}

// next returns the next n bytes (at most callMax) without moving on.
func (c *cursor) next(n int) []byte { return c.block[c.at : int(c.at)+n] }

// advance moves on by n bytes (at most callMax).
func (c *cursor) advance(n int) { c.at = (c.at + uint32(n)) % blockLen }

// check compares received bytes (at most callMax) with the stream and moves
// on. It returns the index of the first byte that is wrong, or -1.
func (c *cursor) check(got []byte) int {
	want := c.next(len(got))
	c.advance(len(got))
	if bytes.Equal(got, want) {
		return -1
	}
	for i := range got {
		if got[i] != want[i] {
			return i
		}
	}
	return -1
}
