package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	devices "xlane/internal/kernel/link"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/lab"
)

// picture is every setting of one end of a link, as the system's own tools
// read it, a line each.
func (r *rig) picture(n *lab.Node, ns *netns.Handle, dev string) []string {
	r.t.Helper()
	var out []string
	add := func(heading, text string) {
		for _, line := range strings.Split(text, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, heading+": "+line)
			}
		}
	}
	add("features", r.run(n, "ethtool", "-k", dev))
	add("channels", r.run(n, "sh", "-c", "ethtool -l "+dev+" 2>/dev/null || echo none"))
	add("link", r.run(n, "ip", "link", "show", "dev", dev))
	add("qdisc", r.run(n, "tc", "qdisc", "show", "dev", dev))
	add("filter", r.run(n, "tc", "filter", "show", "dev", dev))
	add("programs", r.run(n, "bpftool", "net", "show", "dev", dev))
	// Of sysfs, what is a setting: counters and what another end does move by themselves.
	add("sysfs", r.run(n, "sh", "-c", fmt.Sprintf(
		"cd /sys/class/net/%s && grep -s . gro_flush_timeout napi_defer_hard_irqs threaded mtu tx_queue_len flags queues/*/* || true", dev)))
	add("sysctl", r.run(n, "sh", "-c", "sysctl -a 2>/dev/null | grep -E '^net\\.(ipv4\\.tcp_|core\\.)' || true"))
	add("polling", r.polling(ns, dev))
	return out
}

// polling describes the NAPIs without their numbers, which are new each time.
func (r *rig) polling(ns *netns.Handle, dev string) string {
	r.t.Helper()
	links, err := devices.Dial(ns)
	if err != nil {
		r.t.Fatal(err)
	}
	defer links.Close()
	d, err := links.ByName(dev)
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := napi.Dial(ns)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	all, err := c.List(d.Index)
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for i, n := range all {
		fmt.Fprintf(&b, "%d: %+v threaded %v suspend %v\n", i, n.Hold, n.Threaded, n.SuspendTimeout)
	}
	return b.String()
}

// both is a picture of both ends.
func (r *rig) both() []string {
	r.t.Helper()
	near := r.picture(&r.host.Node, r.ns, r.spec.Device)
	far := r.picture(&r.lab.Wire.Node, r.wire, r.host.FarDev)
	for i := range far {
		far[i] = "far end's " + far[i]
	}
	return append(near, far...)
}

// difference lists what only one of two pictures has.
func difference(before, after []string) string {
	var b strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			fmt.Fprintf(&b, "+ %s\n", line)
		}
	}
	if b.Len() == 0 && len(before) != len(after) {
		fmt.Fprintf(&b, "%d lines before, %d after\n", len(before), len(after))
	}
	return b.String()
}

func testApply(t *testing.T, s Subject, link Link) {
	r := newRig(t, s, link)
	r.apply()
	applied, recorded := r.both(), r.journal.Recorded()
	if err := r.a.Apply(context.Background()); err != nil {
		t.Fatalf("apply again: %v", err)
	}
	if d := difference(applied, r.both()); d != "" {
		t.Errorf("the second Apply changed something:\n%s", d)
	}
	if now := r.journal.Recorded(); !slices.Equal(recorded, now) {
		t.Errorf("the second Apply recorded something: %v, then %v", recorded, now)
	}
	if r.a.Adopted() {
		t.Error("it says that it adopted a sorter, and there was none")
	}
	r.places(link)
}

// places checks which queues have a place of their own.
func (r *rig) places(link Link) {
	r.t.Helper()
	queues, err := r.a.Queues()
	if err != nil {
		r.t.Fatal(err)
	}
	if len(queues) != 4 {
		r.t.Fatalf("%d queues are described, want 4: %+v", len(queues), queues)
	}
	own := 0
	for _, q := range queues {
		if q.Shares == 0 {
			own++
		}
	}
	if !link.Spec.PlainVeth && own != r.subject.Can.Places {
		r.t.Errorf("%d queues have a place of their own, want %d: %+v", own, r.subject.Can.Places, queues)
	}
	if own < 2 {
		r.t.Errorf("BULKDATA shares PRIMARY's place: %+v", queues)
	}
	if shared := 4 - own; shared > 0 && len(r.a.Cannot()) == 0 {
		r.t.Errorf("%d queues share PRIMARY's place, and Cannot does not say so", shared)
	}
}

func testPutBack(t *testing.T, s Subject, link Link) {
	r := newRig(t, s, link)
	r.pin()
	before := r.both()
	r.apply()
	clients := r.clients(2)
	together(t, clients, func(c *client) error { return c.alternate(3) })
	hostBefore, peerBefore := r.stat(r.ns), r.stat(openNS(t, r.peer.NetNSPath))
	busy := make(chan error, 1)
	go func() { busy <- clients[0].alternate(20) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.a.Drain(ctx); err != nil {
		t.Fatalf("drain: %v", err)
	}
	if err := r.a.Detach(); err != nil {
		t.Fatalf("detach: %v", err)
	}
	if err := <-busy; err != nil {
		t.Fatal(err)
	}
	r.inOrder(hostBefore, peerBefore)
	r.a.Close()
	if err := r.journal.undo(r.ns, r.wire); err != nil {
		t.Fatalf("undo: %v", err)
	}
	if d := difference(before, r.both()); d != "" {
		t.Errorf("not all is as before:\n%s", d)
	}
}
