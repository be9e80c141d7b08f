package lab

import (
	"fmt"
	"net"
	"strings"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// clearSegmentation turns off every offload by which a device takes frames
// larger than its MTU. It speaks to the thread's namespace.
func clearSegmentation(dev string) error {
	conn, err := genetlink.Dial(&netlink.Config{Strict: true})
	if err != nil {
		return fmt.Errorf("open ethtool netlink: %w", err)
	}
	defer conn.Close()
	family, err := conn.GetFamily(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return fmt.Errorf("find ethtool netlink: %w", err)
	}
	link, err := net.InterfaceByName(dev)
	if err != nil {
		return fmt.Errorf("find %q: %w", dev, err)
	}
	active, err := activeFeatures(conn, family, link.Index)
	if err != nil {
		return fmt.Errorf("read features of %q: %w", dev, err)
	}
	if err := clearFeatures(conn, family, link.Index, active); err != nil {
		return fmt.Errorf("clear segmentation offloads of %q: %w", dev, err)
	}
	return nil
}

// isSegmentation goes by the names of net/ethtool/common.c, where every
// segmentation offload but that of fragment lists ends alike. Going by name
// takes in those that later kernels add (6.18 has tx-tcp-accecn-segmentation).
func isSegmentation(feature string) bool {
	return strings.HasPrefix(feature, "tx-") &&
		(strings.HasSuffix(feature, "-segmentation") || feature == "tx-gso-list")
}

func ethtoolHeader(ae *netlink.AttributeEncoder, attr uint16, index int) {
	ae.Nested(attr, func(h *netlink.AttributeEncoder) error {
		h.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, uint32(index))
		return nil
	})
}

// activeFeatures returns the names of the segmentation offloads that are on.
func activeFeatures(conn *genetlink.Conn, family genetlink.Family, index int) ([]string, error) {
	ae := netlink.NewAttributeEncoder()
	ethtoolHeader(ae, unix.ETHTOOL_A_FEATURES_HEADER, index)
	request, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	answers, err := conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: unix.ETHTOOL_MSG_FEATURES_GET, Version: family.Version},
		Data:   request,
	}, family.ID, netlink.Request)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range answers {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return nil, err
		}
		for ad.Next() {
			if ad.Type() == unix.ETHTOOL_A_FEATURES_ACTIVE {
				ad.Nested(func(set *netlink.AttributeDecoder) error {
					found, err := bitNames(set)
					names = append(names, found...)
					return err
				})
			}
		}
		if err := ad.Err(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// bitNames reads a verbose bitset without mask: its bits are those that are set.
func bitNames(set *netlink.AttributeDecoder) ([]string, error) {
	var names []string
	for set.Next() {
		if set.Type() != unix.ETHTOOL_A_BITSET_BITS {
			continue
		}
		set.Nested(func(bits *netlink.AttributeDecoder) error {
			for bits.Next() {
				bits.Nested(func(bit *netlink.AttributeDecoder) error {
					for bit.Next() {
						if bit.Type() == unix.ETHTOOL_A_BITSET_BIT_NAME && isSegmentation(bit.String()) {
							names = append(names, bit.String())
						}
					}
					return bit.Err()
				})
			}
			return bits.Err()
		})
	}
	return names, set.Err()
}

// clearFeatures asks for the named features to be off: in a bitset with a
// mask, a bit that is listed without value is cleared, the others stay.
func clearFeatures(conn *genetlink.Conn, family genetlink.Family, index int, names []string) error {
	if len(names) == 0 {
		return nil
	}
	ae := netlink.NewAttributeEncoder()
	ethtoolHeader(ae, unix.ETHTOOL_A_FEATURES_HEADER, index)
	ae.Nested(unix.ETHTOOL_A_FEATURES_WANTED, func(set *netlink.AttributeEncoder) error {
		set.Nested(unix.ETHTOOL_A_BITSET_BITS, func(bits *netlink.AttributeEncoder) error {
			for _, name := range names {
				bits.Nested(unix.ETHTOOL_A_BITSET_BITS_BIT, func(bit *netlink.AttributeEncoder) error {
					bit.String(unix.ETHTOOL_A_BITSET_BIT_NAME, name)
					return nil
				})
			}
			return nil
		})
		return nil
	})
	request, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: unix.ETHTOOL_MSG_FEATURES_SET, Version: family.Version},
		Data:   request,
	}, family.ID, netlink.Request|netlink.Acknowledge)
	return err
}
