package olm

import (
	"strings"
	"testing"
	"time"
)

const look = 500 * time.Millisecond

// host is what a queue carries with polling and without, in units a second.
type host struct{ on, off, bulkOn, bulkOff float64 }

// drive shows the policy so many looks of the host, and returns the states it
// asked for as one letter each (o off, O on, p paused) and the reasons.
func drive(s State, h host, from time.Duration, looks int) (State, string, []string) {
	var track strings.Builder
	var why []string
	for i := range looks {
		o := Observation{Interval: look, Packets: uint64(h.off / 2), BulkBytes: uint64(h.bulkOff / 2)}
		if s.want == On {
			o.Packets, o.BulkBytes, o.Engaged = uint64(h.on/2), uint64(h.bulkOn/2), true
		}
		var d Decision
		s, d = Step(s, o, from+time.Duration(i)*look)
		track.WriteByte("oOp"[d.Want])
		if d.Why != "" {
			why = append(why, d.Why)
		}
	}
	return s, track.String(), why
}

func TestPollingStartsStaysAndEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		h    host
		want string
		why  string
	}{
		{"few packets never start it", host{on: 1900, off: 1900}, "oooooooooooo", ""},
		{"a fast service starts it, and the first comparison leaves it on", host{on: 15000, off: 10000},
			"oOOOOpOpOpOpOOOOOOOOOOOOOOOOpOpOpOpO", "the primary queue has 10000 packets/s"},
		{"an equal rate leaves it on: latency is won, which no counter shows", host{on: 5000, off: 5000},
			"oOOOOpOpOpOpOOOO", "the primary queue has 5000 packets/s"},
		{"a service that does better without it loses it", host{on: 18000, off: 31000},
			"oOOOOpOpOpOpoooooooo", "the primary queue carries 31000 packets/s without it and 18000 with it; trying again in 30s"},
		{"a stream that does better without it ends it", host{on: 15000, off: 10000, bulkOn: 95e6, bulkOff: 125e6},
			"oOOOOpOpOpOpoooooooo", "bulk gets 125.0 MB/s without it and 95.0 with it; trying again in 30s"},
		{"a trickle of bulk says nothing", host{on: 15000, off: 10000, bulkOn: 1e5, bulkOff: 9e5},
			"oOOOOpOpOpOpOOOO", "the primary queue has 10000 packets/s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, track, why := drive(State{}, c.h, 0, len(c.want))
			if track != c.want {
				t.Errorf("asked for %s\nwant      %s", track, c.want)
			}
			last := ""
			if len(why) > 0 {
				last = why[len(why)-1]
			}
			if last != c.why {
				t.Errorf("said %q, want %q", last, c.why)
			}
		})
	}
}

func TestAFallingRateEndsIt(t *testing.T) {
	s, _, _ := drive(State{}, host{on: 15000, off: 10000}, 0, 4)
	_, track, why := drive(s, host{on: 900, off: 900}, 4*look, 4)
	if track != "Oooo" || len(why) != 1 || why[0] != "the primary queue has only 900 packets/s" {
		t.Errorf("got %s, %q", track, why)
	}
}

func TestARestDoublesAndIsForgottenWhenItHelps(t *testing.T) {
	bad := host{on: 18000, off: 31000}
	s, _, _ := drive(State{}, bad, 0, 14)
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		if s.want != Off || s.rest != want {
			t.Fatalf("rest %d: %v for %v, want %v", i, s.want, s.rest, want)
		}
		s, _, _ = drive(s, bad, s.next, 13)
	}
	s, track, _ := drive(s, host{on: 31000, off: 18000}, s.next, 13)
	if s.want != On || s.rest != 0 {
		t.Errorf("after %s: %v, rest %v", track, s.want, s.rest)
	}
}

func TestNothingIsComparedWhileNobodyPolls(t *testing.T) {
	s, _, _ := drive(State{}, host{on: 9000, off: 9000}, 0, 2)
	for i := range 100 {
		var d Decision
		s, d = Step(s, Observation{Interval: look, Packets: 4500}, time.Duration(i+2)*look)
		if d.Want != On {
			t.Fatalf("look %d: %v", i, d.Want)
		}
	}
}

func TestTheTimeWithoutPollingIsSmall(t *testing.T) {
	_, track, _ := drive(State{}, host{on: 15000, off: 10000}, 0, 7200)
	if n := strings.Count(track, "p"); n > 60 {
		t.Errorf("%d of 7200 looks without polling in an hour, want at most 60", n)
	}
	_, track, _ = drive(State{}, host{on: 9000, off: 10500, bulkOn: 100e6, bulkOff: 125e6}, 0, 7200)
	if n := strings.Count(track, "O"); n > 150 {
		t.Errorf("%d of 7200 looks with polling in an hour where it does harm, want at most 150", n)
	}
}
