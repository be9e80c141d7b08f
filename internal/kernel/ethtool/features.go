package ethtool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
)

// Names of features, from netdev_features_strings in net/ethtool/common.c.
const (
	// GRO merges received segments; on veth it also makes NAPIs exist.
	GRO = "rx-gro"
	// TSO4 and the following three are NETIF_F_ALL_TSO. See TSO.
	TSO4          = "tx-tcp-segmentation"
	TSOECN        = "tx-tcp-ecn-segmentation"
	TSOMangleID   = "tx-tcp-mangleid-segmentation"
	TSO6          = "tx-tcp6-segmentation"
	GSO           = "tx-generic-segmentation"
	GROFraglist   = "rx-gro-list"
	UDPGROForward = "rx-udp-gro-forwarding"
)

// TSO returns the features of NETIF_F_ALL_TSO (include/linux/netdev_features.h):
// veth hands TCP to the other end's NAPI only when all of them are off. Linux
// 6.18 also has "tx-tcp-accecn-segmentation", which ethtool(8) switches along
// with them and which makes no difference here.
func TSO() []string { return []string{TSO4, TSOECN, TSOMangleID, TSO6} }

// ErrKept says that the device kept a feature as it was.
var ErrKept = errors.New("the device kept it")

// Feature is one feature of a device.
type Feature struct {
	// Active is what holds now; Wanted is what was last asked for.
	Active bool
	Wanted bool
	// Hardware reports whether the driver lets it be changed; NoChange whether
	// no driver may.
	Hardware bool
	NoChange bool
}

// Fixed reports whether asking for another value is in vain.
func (f Feature) Fixed() bool { return !f.Hardware || f.NoChange }

// Features is every feature that the kernel knows, by name.
type Features map[string]Feature

// Attributes ETHTOOL_A_FEATURES_* and ETHTOOL_A_BITSET_*.
const (
	attrFeaturesHW       = 2
	attrFeaturesWanted   = 3
	attrFeaturesActive   = 4
	attrFeaturesNoChange = 5

	attrBitsetNoMask   = 1
	attrBitsetBits     = 3
	attrBitsetBitsBit  = 1
	attrBitsetBitName  = 2
	attrBitsetBitValue = 3
)

// Features reads a device's features.
func (c *Conn) Features(dev string) (Features, error) {
	ad, err := c.get(msgFeaturesGet, dev)
	if err != nil {
		return nil, fmt.Errorf("read features of %q: %w", dev, err)
	}
	features, err := parseFeatures(ad)
	if err != nil {
		return nil, fmt.Errorf("read features of %q: %w", dev, err)
	}
	return features, nil
}

// SetFeatures asks for the given features to be on or off, in one request, and
// reads back. It returns what held before and an error that wraps ErrKept when
// the device kept any of them; the others are changed then. Switching GRO on
// or off on veth makes or destroys its NAPIs.
func (c *Conn) SetFeatures(dev string, want map[string]bool) (before Features, err error) {
	if before, err = c.Features(dev); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(want))
	for name := range want {
		if _, ok := before[name]; !ok {
			return before, fmt.Errorf("set feature %q of %q: this kernel has no such feature", name, dev)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return before, nil
	}
	slices.Sort(names)
	err = c.set(msgFeaturesSet, dev, func(ae *netlink.AttributeEncoder) {
		encodeFeatures(ae, names, want)
	})
	if err != nil {
		return before, fmt.Errorf("set features of %q: %w", dev, err)
	}
	after, err := c.Features(dev)
	if err != nil {
		return before, err
	}
	var kept []string
	for _, name := range names {
		if f := after[name]; f.Active != want[name] {
			kept = append(kept, name+" "+describeKept(f))
		}
	}
	if len(kept) > 0 {
		return before, fmt.Errorf("set features of %q: %w: %s", dev, ErrKept, strings.Join(kept, ", "))
	}
	return before, nil
}

func describeKept(f Feature) string {
	state := "off"
	if f.Active {
		state = "on"
	}
	if f.Fixed() {
		return state + " (fixed)"
	}
	return state
}

// encodeFeatures writes a bit set with a mask: only the named bits change.
func encodeFeatures(ae *netlink.AttributeEncoder, names []string, want map[string]bool) {
	ae.Nested(attrFeaturesWanted, func(set *netlink.AttributeEncoder) error {
		set.Nested(attrBitsetBits, func(bits *netlink.AttributeEncoder) error {
			for _, name := range names {
				bits.Nested(attrBitsetBitsBit, func(bit *netlink.AttributeEncoder) error {
					bit.String(attrBitsetBitName, name)
					bit.Flag(attrBitsetBitValue, want[name])
					return nil
				})
			}
			return nil
		})
		return nil
	})
}

// parseFeatures reads the four bit sets. The set of hardware features lists
// every name; the others list those that are set.
func parseFeatures(ad *netlink.AttributeDecoder) (Features, error) {
	features := make(Features)
	update := func(name string, change func(*Feature)) {
		f := features[name]
		change(&f)
		features[name] = f
	}
	for ad.Next() {
		var change func(f *Feature, on bool)
		switch ad.Type() {
		case attrFeaturesHW:
			change = func(f *Feature, on bool) { f.Hardware = on }
		case attrFeaturesWanted:
			change = func(f *Feature, on bool) { f.Wanted = on }
		case attrFeaturesActive:
			change = func(f *Feature, on bool) { f.Active = on }
		case attrFeaturesNoChange:
			change = func(f *Feature, on bool) { f.NoChange = on }
		default:
			continue
		}
		ad.Nested(func(set *netlink.AttributeDecoder) error {
			return parseBitset(set, func(name string, on bool) {
				update(name, func(f *Feature) { change(f, on) })
			})
		})
	}
	return features, ad.Err()
}

// parseBitset reads a verbose bit set (Documentation/networking/
// ethtool-netlink.rst, "Bit sets"): under NOMASK each bit that is listed is
// set, otherwise those with a VALUE are.
func parseBitset(set *netlink.AttributeDecoder, bit func(name string, on bool)) error {
	noMask := false
	for set.Next() {
		switch set.Type() {
		case attrBitsetNoMask:
			noMask = true
		case attrBitsetBits:
			set.Nested(func(bits *netlink.AttributeDecoder) error {
				for bits.Next() {
					bits.Nested(func(one *netlink.AttributeDecoder) error {
						name, on := "", noMask
						for one.Next() {
							switch one.Type() {
							case attrBitsetBitName:
								name = one.String()
							case attrBitsetBitValue:
								on = true
							}
						}
						bit(name, on)
						return one.Err()
					})
				}
				return bits.Err()
			})
		}
	}
	return set.Err()
}
