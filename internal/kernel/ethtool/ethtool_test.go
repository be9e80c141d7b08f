package ethtool

import (
	"encoding/binary"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/kerneltest"
)

func dial(t *testing.T, queues int) (*Conn, kerneltest.Pair) {
	t.Helper()
	pair := kerneltest.NewPair(t, queues)
	c, err := Dial(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, pair
}

func TestABitSetIsReadWithAndWithoutAMask(t *testing.T) {
	bits := func(ae *netlink.AttributeEncoder, noMask bool, values map[string]bool) {
		ae.Flag(attrBitsetNoMask, noMask)
		ae.Nested(attrBitsetBits, func(in *netlink.AttributeEncoder) error {
			for name, on := range values {
				in.Nested(attrBitsetBitsBit, func(bit *netlink.AttributeEncoder) error {
					bit.String(attrBitsetBitName, name)
					bit.Flag(attrBitsetBitValue, on)
					return nil
				})
			}
			return nil
		})
	}
	ae := netlink.NewAttributeEncoder()
	ae.Nested(attrFeaturesHW, func(in *netlink.AttributeEncoder) error {
		bits(in, false, map[string]bool{"rx-gro": true, "rx-vlan-filter": false})
		return nil
	})
	ae.Nested(attrFeaturesActive, func(in *netlink.AttributeEncoder) error {
		bits(in, true, map[string]bool{"rx-gro": false})
		return nil
	})
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseFeatures(ad)
	want := Features{"rx-gro": {Hardware: true, Active: true}, "rx-vlan-filter": {}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestFeaturesAreSwitchedAndReadBack(t *testing.T) {
	c, pair := dial(t, 1)
	want := map[string]bool{GRO: true}
	for _, name := range TSO() {
		want[name] = false
	}
	before, err := c.SetFeatures(pair.NearName, want)
	if err != nil {
		t.Fatal(err)
	}
	if before[GRO].Active || !before[TSO4].Active || before[GRO].Fixed() {
		t.Errorf("before: GRO %+v, TSO %+v", before[GRO], before[TSO4])
	}
	after, err := c.Features(pair.NearName)
	if err != nil {
		t.Fatal(err)
	}
	for name, on := range want {
		if f := after[name]; f.Active != on || f.Wanted != on {
			t.Errorf("%s: got %+v, want %v", name, f, on)
		}
	}
	for name, f := range before {
		if _, changed := want[name]; !changed && after[name] != f {
			t.Errorf("%s: was %+v, is %+v", name, f, after[name])
		}
	}
	// Setting the same again is no error.
	if _, err := c.SetFeatures(pair.NearName, want); err != nil {
		t.Error(err)
	}
}

func TestAFixedOrUnknownFeatureIsRefused(t *testing.T) {
	c, pair := dial(t, 1)
	_, err := c.SetFeatures(pair.NearName, map[string]bool{"rx-ntuple-filter": true})
	if want := `set features of "eth0": the device kept it: rx-ntuple-filter off (fixed)`; !errors.Is(err, ErrKept) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if before, err := c.SetFeatures(pair.NearName, nil); err != nil || len(before) == 0 {
		t.Errorf("asking for nothing: got %d features, %v", len(before), err)
	}
	_, err = c.SetFeatures(pair.NearName, map[string]bool{"rx-magic": true})
	if want := `set feature "rx-magic" of "eth0": this kernel has no such feature`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestChannelsAreChangedAndReadBack(t *testing.T) {
	c, pair := dial(t, 4)
	got, err := c.Channels(pair.NearName)
	if err != nil || got != (Channels{RxMax: 4, TxMax: 4, Rx: 4, Tx: 4}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	far, err := Dial(pair.Far)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if err := far.SetChannels(pair.FarName, Channels{Rx: -1, Tx: 2, Other: -1, Combined: -1}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetChannels(pair.NearName, Channels{Rx: 3, Tx: 2, Other: -1, Combined: -1}); err != nil {
		t.Fatal(err)
	}
	got, err = c.Channels(pair.NearName)
	if err != nil || got.Rx != 3 || got.Tx != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTheKernelsSentenceIsInTheError(t *testing.T) {
	c, pair := dial(t, 2)
	for name, err := range map[string]error{
		`set channels of "eth0": invalid argument (requested channel count exceeds maximum)`: c.SetChannels(pair.NearName, Channels{Rx: 3, Tx: -1, Other: -1, Combined: -1}),
		`read channels of "eth9": no such device (no device matches name)`:                   second(c.Channels("eth9")),
		`read features of "eth9": no such device (no device matches name)`:                   second(c.Features("eth9")),
		`read statistics of "eth9": no such device`:                                          second(c.Statistics("eth9")),
		`read coalescing of "eth0": operation not supported`:                                 second(c.Coalesce(pair.NearName)),
	} {
		if err == nil || err.Error() != name {
			t.Errorf("got  %v\nwant %s", err, name)
		}
	}
	if err := second(c.Channels("eth9")); !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v does not wrap ENODEV", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAVethCountsPerQueue(t *testing.T) {
	c, pair := dial(t, 2)
	stats, err := c.Statistics(pair.NearName)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rx_queue_0_xdp_packets", "rx_queue_1_drops", "peer_ifindex"} {
		if _, ok := stats[name]; !ok {
			t.Errorf("%q is missing in %v", name, stats)
		}
	}
	far := kerneltest.Device(t, kerneltest.Netlink(t, pair.Far), pair.FarName)
	if got := stats["peer_ifindex"]; got != uint64(far.Attrs().Index) {
		t.Errorf("peer_ifindex is %d, want %d", got, far.Attrs().Index)
	}
}

func TestStatisticsWhoseNamesAndValuesDifferAreRefused(t *testing.T) {
	names := make([]byte, 12+2*ethStringSize)
	binary.NativeEndian.PutUint32(names[8:], 2)
	copy(names[12:], "first")
	copy(names[12+ethStringSize:], strings.Repeat("x", ethStringSize))
	values := make([]byte, 8+2*8)
	binary.NativeEndian.PutUint32(values[4:], 2)
	binary.NativeEndian.PutUint64(values[8:], 5)
	got, err := pairStatistics(names, values)
	if want := map[string]uint64{"first": 5, strings.Repeat("x", ethStringSize): 0}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	binary.NativeEndian.PutUint32(values[4:], 1)
	if got, err := pairStatistics(names, values); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestRingsAreReadOrRefusedWithAReason(t *testing.T) {
	c, pair := dial(t, 1)
	if rings, err := c.Rings(pair.NearName); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("got %+v, %v", rings, err)
	}
}
