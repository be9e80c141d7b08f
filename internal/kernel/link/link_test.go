package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	vnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/netns"
)

func dial(t *testing.T, ns *netns.Handle) *Conn {
	t.Helper()
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAVethIsReadAsItWasMade(t *testing.T) {
	pair := kerneltest.NewPair(t, 3)
	c := dial(t, pair.Near)
	l, err := c.ByName(pair.NearName)
	if err != nil {
		t.Fatal(err)
	}
	near := kerneltest.Device(t, kerneltest.Netlink(t, pair.Near), pair.NearName).Attrs()
	far := kerneltest.Device(t, kerneltest.Netlink(t, pair.Far), pair.FarName).Attrs()
	if l.Name != "eth0" || l.Kind != "veth" || l.Index != near.Index || l.PeerIndex != far.Index ||
		!l.PeerElsewhere || l.MTU != 1500 || !l.Up || !l.LowerUp || l.RxQueues != 3 || l.TxQueues != 3 ||
		l.MAC.String() != near.HardwareAddr.String() || l.Master != 0 || l.XDP != 0 {
		t.Errorf("got %+v", l)
	}
	byIndex, err := c.ByIndex(l.Index)
	if err != nil || byIndex.Name != l.Name {
		t.Errorf("by index: got %+v, %v", byIndex, err)
	}
	addresses, err := c.Addresses(l.Index)
	if err != nil || !slices.Contains(addresses, netip.MustParsePrefix("10.77.0.1/24")) {
		t.Errorf("got addresses %v, %v", addresses, err)
	}
	hasV6 := slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr().Is6() && p.Bits() == 64 })
	if !hasV6 {
		t.Errorf("the link-local IPv6 address is missing in %v", addresses)
	}
	links, err := c.List()
	if err != nil || len(links) != 2 || !links[0].Loopback() || links[1].Name != "eth0" {
		t.Errorf("got %+v, %v", links, err)
	}
}

func TestABridgeAndItsPortAreTold(t *testing.T) {
	pair := kerneltest.NewPair(t, 1)
	h := kerneltest.Netlink(t, pair.Far)
	attrs := vnetlink.NewLinkAttrs()
	attrs.Name = "br0"
	if err := h.LinkAdd(&vnetlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	bridge := kerneltest.Device(t, h, "br0")
	if err := h.LinkSetMaster(kerneltest.Device(t, h, pair.FarName), bridge); err != nil {
		t.Fatal(err)
	}
	c := dial(t, pair.Far)
	port, err := c.ByName(pair.FarName)
	if err != nil || port.Master != bridge.Attrs().Index {
		t.Errorf("port: got %+v, %v", port, err)
	}
	br, err := c.ByName("br0")
	if err != nil || br.Kind != "bridge" || br.PeerIndex != 0 {
		t.Errorf("bridge: got %+v, %v", br, err)
	}
	_, _, err = c.FarEnd(br)
	if want := `find far end of "br0": it is bridge, not veth`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	lo, err := c.ByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.FarEnd(lo)
	if want := `find far end of "lo": it is hardware, not veth`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestADeviceThatDoesNotExistIsNamedWithItsNamespace(t *testing.T) {
	name, ns := kerneltest.Named(t)
	opened, err := netns.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	c := dial(t, opened)
	_, err = c.ByName("eth9")
	if want := fmt.Sprintf("find device \"eth9\" in namespace %q: no such device", name); err == nil || err.Error() != want || !errors.Is(err, unix.ENODEV) {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, odd := range []string{"", "a-name-that-no-device-can-have"} {
		if _, err := c.ByName(odd); !errors.Is(err, unix.ENODEV) {
			t.Errorf("%q: got %v", odd, err)
		}
	}
	if _, err := dial(t, ns).ByIndex(4711); !errors.Is(err, unix.ENODEV) {
		t.Errorf("got %v", err)
	}
}

// expectFarEnd checks that the far end of a device is found where it is.
func expectFarEnd(t *testing.T, from *netns.Handle, device string, want *netns.Handle, wantName string) {
	t.Helper()
	c := dial(t, from)
	near, err := c.ByName(device)
	if err != nil {
		t.Fatal(err)
	}
	ns, far, err := c.FarEnd(near)
	if err != nil {
		t.Error(err)
		return
	}
	defer ns.Close()
	if !ns.Same(want) || far.Name != wantName || far.PeerIndex != near.Index {
		t.Errorf("far end of %q: got %q in %s, want %q", device, far.Name, ns, wantName)
	}
}

func TestTheFarEndIsFoundFromBothSides(t *testing.T) {
	_, a := kerneltest.Named(t)
	_, b := kerneltest.Named(t)
	// A third namespace, connected to both, must not be mistaken for either.
	_, other := kerneltest.Named(t)
	pair := kerneltest.Connect(t, a, b, 1)
	kerneltest.Connect(t, other, kerneltest.Namespace(t), 1)
	expectFarEnd(t, a, pair.NearName, b, pair.FarName)
	expectFarEnd(t, b, pair.FarName, a, pair.NearName)
}

func TestTheFarEndIsFoundInANamespaceThatOnlyAProcessHolds(t *testing.T) {
	_, a := kerneltest.Named(t)
	held, err := netns.OpenPID(kerneltest.HeldByProcess(t))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	pair := kerneltest.Connect(t, a, held, 1)
	expectFarEnd(t, a, pair.NearName, held, pair.FarName)
	expectFarEnd(t, held, pair.FarName, a, pair.NearName)
}

func TestTheFarEndInTheSameNamespaceIsFound(t *testing.T) {
	ns := kerneltest.Namespace(t)
	pair := kerneltest.Connect(t, ns, ns, 1)
	expectFarEnd(t, ns, pair.NearName, ns, pair.FarName)
	expectFarEnd(t, ns, pair.FarName, ns, pair.NearName)
}

func TestAFarEndOutOfSightIsSaidToBe(t *testing.T) {
	// Namespaces without a name or a process cannot be seen.
	pair := kerneltest.NewPair(t, 1)
	c := dial(t, pair.Near)
	near, err := c.ByName(pair.NearName)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.FarEnd(near)
	if want := `far end of "eth0" is in a namespace that this process cannot see`; !errors.Is(err, ErrFarEndUnseen) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
