package napi

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/netns"
	"xlane/internal/model"
	"xlane/internal/testenv"
)

func TestNumbersOfFourAndEightBytesAreRead(t *testing.T) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrNAPIIfindex, 3)
	ae.Uint32(attrNAPIID, 265)
	ae.Uint32(attrNAPIPID, 417)
	ae.Uint32(attrNAPIDeferHardIRQs, 100)
	ae.Uint32(attrNAPIGROFlushTimeout, 200000)
	ae.Uint64(attrNAPISuspendTimeout, 5e9)
	ae.Uint32(attrNAPIThreaded, 1)
	ae.Uint32(99, 7)
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseNAPI(b)
	want := NAPI{
		ID: 265, Ifindex: 3, PID: 417, Threaded: true, SuspendTimeout: 5 * time.Second,
		Hold: model.Hold{Timeout: 200 * time.Microsecond, DeferCount: 100},
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestAttributesCutShortAreRefused(t *testing.T) {
	for _, b := range [][]byte{{1}, {8, 0, 2, 0, 1}, {5, 0, 2, 0, 1, 0, 0, 0}} {
		if n, err := parseNAPI(b); err == nil {
			t.Errorf("NAPI % x: got %+v", b, n)
		}
	}
	if q, err := parseQueue([]byte{5, 0, 1, 0, 1, 0, 0, 0}); err == nil {
		t.Errorf("queue: got %+v", q)
	}
}

func TestChangesOverALimitAreRefusedBeforeTheKernelIsAsked(t *testing.T) {
	below, over := -time.Nanosecond, uint32(math.MaxInt32+1)
	for name, change := range map[string]Change{
		"a timeout of -1ns is below zero":                             {GROFlushTimeout: &below},
		"a defer count of 2147483648 is over the limit of 2147483647": {DeferHardIRQs: &over},
	} {
		if _, err := change.encoder(1); err == nil || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// device connects two namespaces and returns the near one's connection and
// device number, with GRO on, which is what makes a veth's NAPIs exist.
func device(t *testing.T, queues int) (*Conn, *netns.Handle, int) {
	t.Helper()
	pair := kerneltest.NewPair(t, queues)
	e, err := ethtool.Dial(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.SetFeatures(pair.NearName, map[string]bool{ethtool.GRO: true}); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, pair.Near, kerneltest.Device(t, kerneltest.Netlink(t, pair.Near), pair.NearName).Attrs().Index
}

func TestAVethHasOneNAPIPerReceiveQueueOnceGROIsOn(t *testing.T) {
	c, _, index := device(t, 3)
	list, err := c.List(index)
	if err != nil || len(list) != 3 {
		t.Fatalf("got %d NAPIs, %v, want 3", len(list), err)
	}
	for i, n := range list {
		if n.Ifindex != index || n.ID == 0 || n.Threaded || n.PID != 0 || n.Hold != (model.Hold{}) {
			t.Errorf("NAPI %d: got %+v", i, n)
		}
		if i > 0 && n.ID <= list[i-1].ID {
			t.Errorf("NAPI %d follows %d", n.ID, list[i-1].ID)
		}
	}
	queues, err := c.Queues(index)
	if err != nil || len(queues) != 6 {
		t.Fatalf("got queues %+v, %v, want 3 each way", queues, err)
	}
	for i, q := range queues {
		if q.ID != i%3 || q.Direction != Direction(i/3) {
			t.Errorf("queue %d: got %+v", i, q)
		}
	}
}

func TestTimersOfOneNAPIReadBackAndLeaveTheOthersAlone(t *testing.T) {
	c, _, index := device(t, 2)
	list, err := c.List(index)
	if err != nil || len(list) != 2 {
		t.Fatalf("got %d NAPIs, %v", len(list), err)
	}
	hold := model.Hold{Timeout: 200 * time.Microsecond, DeferCount: 100}
	if err := c.SetHold(list[1].ID, hold); err != nil {
		t.Fatal(err)
	}
	suspend := 20 * time.Second // needs more than four bytes
	if err := c.Set(list[1].ID, Change{SuspendTimeout: &suspend}); err != nil {
		t.Fatal(err)
	}
	after, err := c.List(index)
	if err != nil {
		t.Fatal(err)
	}
	want := list
	want[1].Hold, want[1].SuspendTimeout = hold, suspend
	for i := range want {
		if after[i] != want[i] {
			t.Errorf("NAPI %d: got %+v, want %+v", i, after[i], want[i])
		}
	}
	if err := c.SetHold(list[1].ID, model.Hold{}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Get(list[1].ID); err != nil || n.Hold != (model.Hold{}) || n.SuspendTimeout != suspend {
		t.Errorf("after setting the timers to zero: got %+v, %v", n, err)
	}
}

func TestALinkThatWentDownAndUpHasNewNAPIsWithoutTimers(t *testing.T) {
	c, ns, index := device(t, 2)
	before, err := c.List(index)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetHold(before[0].ID, model.Hold{Timeout: time.Millisecond, DeferCount: 1}); err != nil {
		t.Fatal(err)
	}
	h := kerneltest.Netlink(t, ns)
	dev := kerneltest.Device(t, h, "eth0")
	if err := h.LinkSetDown(dev); err != nil {
		t.Fatal(err)
	}
	if list, err := c.List(index); err != nil || len(list) != 0 {
		t.Errorf("while down: got %+v, %v", list, err)
	}
	if err := c.SetHold(before[0].ID, model.Hold{}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("setting a NAPI that is gone: got %v", err)
	}
	if err := h.LinkSetUp(dev); err != nil {
		t.Fatal(err)
	}
	after, err := c.List(index)
	if err != nil || len(after) != 2 {
		t.Fatalf("got %+v, %v", after, err)
	}
	for i := range after {
		if after[i].ID == before[0].ID || after[i].Hold != (model.Hold{}) {
			t.Errorf("NAPI %d: got %+v, was %+v", i, after[i], before[i])
		}
	}
}

func TestAChannelThatStaysKeepsItsNAPIWithItsTimers(t *testing.T) {
	c, ns, index := device(t, 2)
	before, err := c.List(index)
	if err != nil {
		t.Fatal(err)
	}
	hold := model.Hold{Timeout: time.Millisecond, DeferCount: 1}
	for _, n := range before {
		if err := c.SetHold(n.ID, hold); err != nil {
			t.Fatal(err)
		}
	}
	e, err := ethtool.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, rx := range []int{1, 2} {
		if err := e.SetChannels("eth0", ethtool.Channels{Rx: rx, Tx: -1, Other: -1, Combined: -1}); err != nil {
			t.Fatal(err)
		}
	}
	after, err := c.List(index)
	if err != nil || len(after) != 2 {
		t.Fatalf("got %+v, %v", after, err)
	}
	if after[0].ID != before[0].ID || after[0].Hold != hold {
		t.Errorf("the one that stayed: got %+v, was %+v", after[0], before[0])
	}
	if after[1].ID <= before[1].ID || after[1].Hold != (model.Hold{}) {
		t.Errorf("the one that came back: got %+v, was %+v", after[1], before[1])
	}
}

func TestWhatDoesNotExistIsNamedInTheError(t *testing.T) {
	testenv.Lab(t)
	c, err := Dial(kerneltest.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.List(4711); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a device that does not exist: got %v", err)
	} else if want := "list NAPIs of device 4711: no such device"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	_, err = c.Get(1 << 30)
	if want := "read NAPI 1073741824: it does not exist (no such file or directory)"; !errors.Is(err, unix.ENOENT) || err.Error() != want {
		t.Errorf("a NAPI that does not exist: got %v, want %s", err, want)
	}
}
