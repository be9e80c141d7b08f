package awm

import (
	"bytes"
	"testing"

	"xlane/internal/testenv"
)

func TestPatternRepeatsWithAPrimeLength(t *testing.T) {
	for d := 2; d*d <= blockLen; d++ {
		if blockLen%d == 0 {
			t.Fatalf("%d divides %d", d, blockLen)
		}
	}
	b := patternBlock()
	if !bytes.Equal(b[:1000], b[blockLen:blockLen+1000]) {
		t.Error("the block does not repeat")
	}
}

func TestCursorCheckFindsWhatIsWrong(t *testing.T) {
	r := testenv.Rand(t)
	stream := func(n int) []byte {
		c := newCursor(7, towardsServer)
		var out []byte
		for len(out) < n {
			k := min(n-len(out), 1+r.Intn(callMax))
			out = append(out, c.next(k)...)
			c.advance(k)
		}
		return out
	}
	// check reads the stream in calls of any size and returns the offset of
	// the first wrong byte, or -1.
	check := func(got []byte) int {
		c := newCursor(7, towardsServer)
		for at := 0; at < len(got); {
			k := min(len(got)-at, 1+r.Intn(100_000))
			if bad := c.check(got[at : at+k]); bad >= 0 {
				return at + bad
			}
			at += k
		}
		return -1
	}
	const size = 3_000_000
	if bad := check(stream(size)); bad >= 0 {
		t.Fatalf("the stream itself is wrong at %d", bad)
	}
	for range 50 {
		at := r.Intn(size)
		s := stream(size)
		s[at] ^= 1 << r.Intn(8)
		if bad := check(s); bad != at {
			t.Fatalf("a bit flipped at %d was found at %d", at, bad)
		}
	}
	for _, block := range []int{64, 536, 1448, 4096, 65536, 1 << 20} {
		s := stream(size)
		at := r.Intn(size - 2*block)
		swapped := append(append(append(append([]byte{}, s[:at]...), s[at+block:at+2*block]...), s[at:at+block]...), s[at+2*block:]...)
		if bad := check(swapped); bad < at {
			t.Errorf("two swapped blocks of %d bytes at %d were found at %d", block, at, bad)
		}
		missing := append(append([]byte{}, s[:at]...), s[at+block:]...)
		if bad := check(missing); bad < at {
			t.Errorf("%d bytes missing at %d were found at %d", block, at, bad)
		}
	}
}

func TestDirectionsAndConnectionsDiffer(t *testing.T) {
	a, b, c := newCursor(1, towardsServer), newCursor(1, towardsClient), newCursor(2, towardsServer)
	if a.at == b.at || a.at == c.at {
		t.Error("streams that must differ begin alike")
	}
}
