package lab

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"xlane/internal/kernel/cpu"
	"xlane/internal/testenv"
)

func TestTheWireWorksOnOneCPU(t *testing.T) {
	testenv.Lab(t)
	online, err := cpu.Online()
	if err != nil {
		t.Fatal(err)
	}
	cpus := online.Members()
	at := cpus[len(cpus)-1]
	l, err := New(context.Background(), Config{WireCPU: &at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	h, err := l.AddHost("box", LinkSpec{Queues: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"rx-0", "rx-1"} {
		out, err := l.Wire.Command("cat", "/sys/class/net/"+h.FarDev+"/queues/"+q+"/rps_cpus").Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cpu.ParseMask(strings.TrimSpace(string(out))); err != nil || got != cpu.Of(at) {
			t.Errorf("frames of %s are switched on %q, %v; want CPU %d", q, got, err, at)
		}
	}
}

func TestSendFramesAreBounded(t *testing.T) {
	testenv.Lab(t)
	_, hosts := newLab(t, LinkSpec{}, "box")
	h := hosts[0]
	segments := func() uint32 {
		t.Helper()
		dev, err := h.nl.LinkByName(h.Dev)
		if err != nil {
			t.Fatal(err)
		}
		return dev.Attrs().GSOMaxSegs
	}
	before := segments()
	for _, c := range []struct {
		frames int
		want   uint32
	}{{1, 1}, {8, 8}, {0, before}} {
		if err := h.SetSendFrames(c.frames); err != nil {
			t.Fatal(err)
		}
		if got := segments(); got != c.want {
			t.Errorf("%d frames at once: the device says %d, want %d", c.frames, got, c.want)
		}
	}
	for _, n := range []int{-1, sendFramesMax + 1} {
		if err := h.SetSendFrames(n); err == nil {
			t.Errorf("%d frames at once are taken", n)
		}
	}
}

// TestDropsCountTheRateLimit sends more over a slow link than its queue holds.
func TestDropsCountTheRateLimit(t *testing.T) {
	testenv.Lab(t)
	_, hosts := newLab(t, LinkSpec{}, "box", "peer")
	box, peer := hosts[0], hosts[1]
	before, err := box.Drops()
	if err != nil || before != 0 {
		t.Fatalf("a new link has dropped %d, %v", before, err)
	}
	if err := box.SetRate(In, rateMinBPS); err != nil {
		t.Fatal(err)
	}
	// 64 kb/s take 8 of these frames a second, and 1000 may queue. Each socket
	// may have some 90 of them on their way (net.core.wmem_default).
	const sockets, frames = 24, 60
	to := &net.UDPAddr{IP: box.Addr4.AsSlice(), Port: 9}
	buf := make([]byte, 1000)
	for range sockets {
		c := dial(t, peer, "udp", to)
		for range frames {
			_, _ = c.Write(buf) // refused or not: what counts is what is dropped
		}
	}
	testenv.Eventually(t, 5*time.Second, "drops are counted", func() bool {
		n, err := box.Drops()
		return err == nil && n > 0
	})
}
