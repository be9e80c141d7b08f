package link

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	vnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/testenv"
)

// record runs a watch until the test ends and keeps what it emits.
type record struct {
	sync.Mutex
	events []Event
}

func watch(t *testing.T, w *Watch) *record {
	t.Helper()
	r := &record{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, func(e Event) {
			r.Lock()
			defer r.Unlock()
			r.events = append(r.events, e)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return r
}

func (r *record) expect(t *testing.T, what string, match func(Event) bool) {
	t.Helper()
	testenv.Eventually(t, 5*time.Second, what, func() bool {
		r.Lock()
		defer r.Unlock()
		for _, e := range r.events {
			if match(e) {
				return true
			}
		}
		return false
	})
}

func (r *record) forget() {
	r.Lock()
	defer r.Unlock()
	r.events = nil
}

func TestAWatchSeesWhatResetsADevice(t *testing.T) {
	pair := kerneltest.NewPair(t, 2)
	w, err := Subscribe(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, w)
	h := kerneltest.Netlink(t, pair.Near)
	dev := kerneltest.Device(t, h, pair.NearName)
	index := dev.Attrs().Index
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	changed := func(up bool) func(Event) bool {
		return func(e Event) bool { return e.Kind == Changed && e.Index == index && e.Link.Up == up }
	}
	setting := func(name string) func(Event) bool {
		return func(e Event) bool { return e.Kind == Setting && e.Index == index && e.Setting == name }
	}

	must(h.LinkSetDown(dev))
	events.expect(t, "the link went down", changed(false))
	events.forget()
	must(h.LinkSetUp(dev))
	events.expect(t, "the link came up", changed(true))

	e, err := ethtool.Dial(pair.Near)
	must(err)
	defer e.Close()
	events.forget()
	_, err = e.SetFeatures(pair.NearName, map[string]bool{ethtool.GRO: true})
	must(err)
	events.expect(t, "GRO was switched", setting("features"))
	events.expect(t, "the device is announced along with it", func(e Event) bool {
		return changed(true)(e) && e.Link.Name == pair.NearName
	})

	events.forget()
	must(e.SetChannels(pair.NearName, ethtool.Channels{Rx: -1, Tx: 1, Other: -1, Combined: -1}))
	events.expect(t, "the channels changed", setting("channels"))

	must(h.LinkDel(dev))
	events.expect(t, "the device was deleted", func(e Event) bool {
		return e.Kind == Deleted && e.Index == index && !e.Moved
	})
}

func TestAWatchTellsAMoveFromADeletion(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	w, err := Subscribe(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, w)
	h := kerneltest.Netlink(t, pair.Near)
	dev := kerneltest.Device(t, h, pair.NearName)
	if err := h.LinkSetNsFd(dev, kerneltest.Namespace(t).FD()); err != nil {
		t.Fatal(err)
	}
	events.expect(t, "the device moved away", func(e Event) bool {
		return e.Kind == Deleted && e.Index == dev.Attrs().Index && e.Moved
	})
}

func TestLeavingABridgeIsNotADeletion(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	h := kerneltest.Netlink(t, pair.Far)
	attrs := vnetlink.NewLinkAttrs()
	attrs.Name = "br0"
	if err := h.LinkAdd(&vnetlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	port := kerneltest.Device(t, h, pair.FarName)
	if err := h.LinkSetMaster(port, kerneltest.Device(t, h, "br0")); err != nil {
		t.Fatal(err)
	}
	w, err := Subscribe(pair.Far)
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, w)
	if err := h.LinkSetNoMaster(port); err != nil {
		t.Fatal(err)
	}
	events.expect(t, "the port left", func(e Event) bool {
		return e.Kind == Changed && e.Index == port.Attrs().Index && e.Link.Master == 0
	})
	events.Lock()
	defer events.Unlock()
	for _, e := range events.events {
		if e.Kind == Deleted {
			t.Errorf("got %+v", e)
		}
	}
}

func TestEventsThatComeTooFastBecomeAResync(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	// The least that the kernel allows holds a few messages.
	w, err := subscribe(pair.Near, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := kerneltest.Netlink(t, pair.Near)
	dev := kerneltest.Device(t, h, pair.NearName)
	for i := range 50 {
		if err := h.LinkSetMTU(dev, 1400+i); err != nil {
			t.Fatal(err)
		}
	}
	events := watch(t, w)
	events.expect(t, "a resync", func(e Event) bool { return e.Kind == Resync })
	// The watch goes on.
	events.forget()
	if err := h.LinkSetMTU(dev, 1300); err != nil {
		t.Fatal(err)
	}
	events.expect(t, "a later change", func(e Event) bool { return e.Kind == Changed && e.Link.MTU == 1300 })
}

func TestAWatchEndsWithItsContextAndNeverEmitsAfter(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	w, err := Subscribe(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	h := kerneltest.Netlink(t, pair.Near)
	if err := h.LinkSetMTU(kerneltest.Device(t, h, pair.NearName), 1400); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Run(ctx, func(e Event) { t.Errorf("got %+v", e) }); err != nil {
		t.Error(err)
	}
}

func TestNotificationsThatCannotBeReadBecomeAResync(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want Event
		ok   bool
	}{
		{"another notification", []byte{99, 1, 0, 0}, Event{}, false},
		{"a header cut short", []byte{13, 1}, Event{}, false},
		{"no device", []byte{13, 1, 0, 0}, Event{Kind: Resync}, true},
		{"an attribute cut short", []byte{13, 1, 0, 0, 200, 0, 1, 0}, Event{Kind: Resync}, true},
		{"features of device 5", []byte{13, 1, 0, 0, 12, 0, 1, 0x80, 8, 0, 1, 0, 5, 0, 0, 0},
			Event{Kind: Setting, Index: 5, Setting: "features"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := decodeSetting(netlink.Message{Data: c.data}, ethtoolSettings, ethtoolIndex)
			if ok != c.ok || got.Kind != c.want.Kind || got.Index != c.want.Index || got.Setting != c.want.Setting {
				t.Errorf("got %+v, %v", got, ok)
			}
		})
	}
	short := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: make([]byte, 4)}
	if e, ok := decodeLink(short); ok {
		t.Errorf("a link message cut short: got %+v", e)
	}
	broken := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: append(make([]byte, unix.SizeofIfInfomsg), 200, 0, 3, 0)}
	if e, ok := decodeLink(broken); !ok || e.Kind != Resync {
		t.Errorf("a link message with a broken attribute: got %+v, %v", e, ok)
	}
}
