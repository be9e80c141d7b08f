package adaptertest

import (
	"context"
	"testing"

	"xlane/internal/model"
)

// testAdopt has a process die: what it pinned goes on sorting, and the next
// one takes it over with all that it knows.
func testAdopt(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.pin()
	r.apply()
	clients := r.clients(1)
	together(t, clients, func(c *client) error { return c.alternate(5) })
	before := r.counters()
	r.a.Close()
	together(t, clients, func(c *client) error { return c.alternate(10) })
	r.a = r.another()
	if err := r.a.Apply(context.Background()); err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if !r.a.Adopted() {
		t.Fatal("the sorter that was at work was not adopted")
	}
	after := r.counters()
	if got, want := after.Bytes[model.BulkData]-before.Bytes[model.BulkData], uint64(10*streamBytes/10); got < want {
		t.Errorf("%d bytes went to BULKDATA while nobody held the programs, want %d or more", got, want)
	}
	if after.Moves() < before.Moves()+10 {
		t.Errorf("%d moves while nobody held the programs, want 10 or more", after.Moves()-before.Moves())
	}
	r.silent("after adopting")
	r.sorts()
}

// testAdoptUnderTraffic dies and comes back several times while connections
// move between queues.
func testAdoptUnderTraffic(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.pin()
	r.apply()
	clients := r.clients(3)
	host, peer := r.stat(r.ns), r.stat(openNS(t, r.peer.NetNSPath))
	before := r.counters()
	finished := make(chan error, len(clients))
	for _, c := range clients {
		go func() { finished <- c.alternate(40) }()
	}
	for range 5 {
		r.a.Close()
		r.a = r.another()
		if err := r.a.Apply(context.Background()); err != nil {
			t.Fatalf("adopt: %v", err)
		}
		if !r.a.Adopted() {
			t.Error("the sorter that was at work was not adopted")
		}
	}
	for range clients {
		if err := <-finished; err != nil {
			t.Error(err)
		}
	}
	after := r.counters()
	if after.Moves() < before.Moves()+40 {
		t.Errorf("%d moves, want 40 or more", after.Moves()-before.Moves())
	}
	r.inOrder(host, peer)
}

// testTwoOnOnePin has a second adapter take over while the first still lives,
// as when a daemon is replaced before it noticed that it should end.
func testTwoOnOnePin(t *testing.T, s Subject) {
	r := newRig(t, s, Link{})
	r.pin()
	r.apply()
	applied := r.both()
	first := r.a
	second := r.another()
	if err := second.Apply(context.Background()); err != nil {
		t.Fatalf("the second: %v", err)
	}
	if !second.Adopted() || first.Adopted() {
		t.Errorf("adopted: the first %v, the second %v", first.Adopted(), second.Adopted())
	}
	if d := difference(applied, r.both()); d != "" {
		t.Errorf("the second adapter changed something:\n%s", d)
	}
	r.silent("with two adapters the first's")
	r.a = second
	r.silent("with two adapters the second's")
	first.Close()
	r.silent("after the first let go")
	r.sorts()
}
