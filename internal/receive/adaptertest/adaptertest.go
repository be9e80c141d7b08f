// Package adaptertest is the suite that every adapter must pass: it judges an
// adapter through the contract alone, on hosts of a lab, with real connections
// whose every byte is checked. It decides what "as before", "in order" and
// "noticed" mean; what a device can and cannot have is the adapter's to say.
package adaptertest

import (
	"testing"

	"xlane/internal/kernel/netns"
	"xlane/internal/lab"
	"xlane/internal/receive"
	"xlane/internal/testenv"
)

// Disturbance is something that is done to a managed device from outside.
type Disturbance string

// The disturbances. An adapter notices those that harm it; the others it must
// outlive without being told.
const (
	DeviceDownUp    Disturbance = "the device goes down and up"
	FarDownUp       Disturbance = "the far end goes down and up"
	GROToggled      Disturbance = "receive GRO is toggled"
	ChannelsChanged Disturbance = "the device's channels are changed"
	FarTSOOn        Disturbance = "segmentation offload of the far end is switched on"
	FarChecksumOn   Disturbance = "checksum offload of the far end is switched on"
	FarXPSSet       Disturbance = "XPS of the far end is set"
	ProgramDetached Disturbance = "each program is detached in turn"
	TimersReset     Disturbance = "a queue's timers are reset"
	FarMoved        Disturbance = "the far end is moved to another namespace"
)

// Can is what an adapter claims about itself.
type Can struct {
	// Hold: SetHold changes how long a queue holds. Without it SetHold returns
	// errors.ErrUnsupported and Cannot says so.
	Hold bool
	// Places is how many queues have a place of their own on a device made for
	// four; the rest shares PRIMARY's.
	Places int
	// Minds are the disturbances that Check must notice.
	Minds []Disturbance
}

// Subject is one adapter.
type Subject struct {
	Name string
	New  func(receive.Spec) (receive.Adapter, error)
	Can  Can
	// Also are links of this adapter's own, beside those that every adapter
	// must take.
	Also []Link
}

// Link is what a managed device is like.
type Link struct {
	Name string
	Spec lab.LinkSpec
	// Over makes a device on top of the host's and gives it the host's
	// addresses, by running programs there; it returns the device's name. nil
	// means that the host's own is managed.
	Over func(run func(name string, args ...string)) string
}

func (s Subject) minds(d Disturbance) bool {
	for _, m := range s.Can.Minds {
		if m == d {
			return true
		}
	}
	return false
}

// links are the links that every adapter is tried on: a host that the lab
// made, and a veth as ip(8) makes it, with TSO, one queue in use and no NAPI.
var links = []Link{
	{Name: "a host of the lab"},
	{Name: "a plain veth", Spec: lab.LinkSpec{PlainVeth: true}},
}

// Run runs the whole suite. It needs root, BPF and namespaces.
func Run(t *testing.T, s Subject) {
	testenv.Lab(t)
	for _, l := range append(links, s.Also...) {
		t.Run(l.Name, func(t *testing.T) {
			t.Run("is applied, and applied again without a change", func(t *testing.T) { testApply(t, s, l) })
			t.Run("a stream goes to BULKDATA, questions and answers stay", func(t *testing.T) { testSorts(t, s, l) })
			t.Run("order is kept over many moves", func(t *testing.T) { testOrder(t, s, l) })
			t.Run("everything is put back", func(t *testing.T) { testPutBack(t, s, l) })
		})
	}
	t.Run("rules send their traffic to SYSDIST and EE", func(t *testing.T) { testRules(t, s) })
	t.Run("a hold is read back from the kernel, or refused", func(t *testing.T) { testHold(t, s) })
	t.Run("Check is silent while nothing happens", func(t *testing.T) { testSilent(t, s) })
	for _, d := range disturbances {
		t.Run(string(d.what), func(t *testing.T) { testDisturbance(t, s, d) })
	}
	t.Run("the far end is down at the start", func(t *testing.T) { testDownAtStart(t, s) })
	t.Run("the device is deleted", func(t *testing.T) { testDeleted(t, s) })
	t.Run("the device's namespace vanishes", func(t *testing.T) { testNamespaceVanishes(t, s) })
	t.Run("the far end's namespace vanishes", func(t *testing.T) { testFarVanishes(t, s) })
	t.Run("there is no such device", func(t *testing.T) { testNoDevice(t, s) })
	t.Run("pinned programs go on sorting, and are adopted", func(t *testing.T) { testAdopt(t, s) })
	t.Run("adopting loses and reorders nothing", func(t *testing.T) { testAdoptUnderTraffic(t, s) })
	t.Run("two adapters share one set of pins", func(t *testing.T) { testTwoOnOnePin(t, s) })
}

// openNS opens the namespace of a lab's node until the test ends.
func openNS(t testing.TB, path string) *netns.Handle {
	t.Helper()
	ns, err := netns.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}
