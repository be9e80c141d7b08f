// Package ethtool reads and changes what drivers offer: features (offloads),
// channels, ring sizes, interrupt coalescing and driver statistics. It speaks
// generic netlink, so that refusals carry the kernel's sentence; statistics
// alone still need the ioctl. Which settings are wanted is decided elsewhere.
package ethtool

import (
	"fmt"

	"github.com/mdlayher/netlink"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/nlsock"
)

// Commands and attributes: include/uapi/linux/ethtool_netlink_generated.h and
// ethtool_netlink.h, Linux 6.18.
const (
	msgFeaturesGet = 11
	msgFeaturesSet = 12
	msgRingsGet    = 15
	msgChannelsGet = 17
	msgChannelsSet = 18
	msgCoalesceGet = 19

	// Every message keeps its header in attribute 1.
	attrHeader        = 1
	attrHeaderDevName = 2
	attrHeaderFlags   = 3
	flagOmitReply     = 1 << 1 // ETHTOOL_FLAG_OMIT_REPLY: only the acknowledgement
)

// Conn asks one namespace. It may be used from several goroutines.
type Conn struct {
	family *nlsock.Family
	ns     *netns.Handle
}

// Dial opens a connection to the namespace's ethtool family. The namespace
// handle must stay open until Close.
func Dial(ns *netns.Handle) (*Conn, error) {
	f, err := nlsock.DialFamily(ns, "ethtool")
	if err != nil {
		return nil, err
	}
	return &Conn{family: f, ns: ns}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.family.Close() }

// get asks for one device and returns a decoder of the answer's attributes.
func (c *Conn) get(message uint8, dev string) (*netlink.AttributeDecoder, error) {
	replies, err := c.family.Ask(message, 0, func(ae *netlink.AttributeEncoder) {
		encodeHeader(ae, dev, 0)
	})
	if err != nil {
		return nil, err
	}
	if len(replies) != 1 {
		return nil, fmt.Errorf("got %d answers, want 1", len(replies))
	}
	return netlink.NewAttributeDecoder(replies[0])
}

// set changes one device and waits for the kernel's yes or no.
func (c *Conn) set(message uint8, dev string, attrs func(*netlink.AttributeEncoder)) error {
	_, err := c.family.Ask(message, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		encodeHeader(ae, dev, flagOmitReply)
		attrs(ae)
	})
	return err
}

func encodeHeader(ae *netlink.AttributeEncoder, dev string, flags uint32) {
	ae.Nested(attrHeader, func(h *netlink.AttributeEncoder) error {
		h.String(attrHeaderDevName, dev)
		if flags != 0 {
			h.Uint32(attrHeaderFlags, flags)
		}
		return nil
	})
}

// Channels is how many queues a device has and may have. A device has either
// separate receive and transmit channels (veth) or combined ones, or both.
type Channels struct {
	RxMax, TxMax, OtherMax, CombinedMax int
	Rx, Tx, Other, Combined             int
}

// Attributes ETHTOOL_A_CHANNELS_*.
const (
	attrChannelsRxMax         = 2
	attrChannelsTxMax         = 3
	attrChannelsOtherMax      = 4
	attrChannelsCombinedMax   = 5
	attrChannelsRxCount       = 6
	attrChannelsTxCount       = 7
	attrChannelsOtherCount    = 8
	attrChannelsCombinedCount = 9
)

// Channels reads a device's channel counts.
func (c *Conn) Channels(dev string) (Channels, error) {
	ad, err := c.get(msgChannelsGet, dev)
	if err != nil {
		return Channels{}, fmt.Errorf("read channels of %q: %w", dev, err)
	}
	var ch Channels
	fields := map[uint16]*int{
		attrChannelsRxMax: &ch.RxMax, attrChannelsTxMax: &ch.TxMax,
		attrChannelsOtherMax: &ch.OtherMax, attrChannelsCombinedMax: &ch.CombinedMax,
		attrChannelsRxCount: &ch.Rx, attrChannelsTxCount: &ch.Tx,
		attrChannelsOtherCount: &ch.Other, attrChannelsCombinedCount: &ch.Combined,
	}
	for ad.Next() {
		if field := fields[ad.Type()]; field != nil {
			*field = int(ad.Uint32())
		}
	}
	if err := ad.Err(); err != nil {
		return Channels{}, fmt.Errorf("read channels of %q: %w", dev, err)
	}
	return ch, nil
}

// SetChannels changes the counts Rx, Tx, Other and Combined; a count that is
// negative is left as it is. On veth a receive queue that stays keeps its NAPI
// with its settings, and one that is added gets a NAPI without any; this is
// announced by ethtool's notification alone, not by RTNLGRP_LINK.
func (c *Conn) SetChannels(dev string, ch Channels) error {
	err := c.set(msgChannelsSet, dev, func(ae *netlink.AttributeEncoder) {
		for _, f := range []struct {
			attr  uint16
			count int
		}{
			{attrChannelsRxCount, ch.Rx}, {attrChannelsTxCount, ch.Tx},
			{attrChannelsOtherCount, ch.Other}, {attrChannelsCombinedCount, ch.Combined},
		} {
			if f.count >= 0 {
				ae.Uint32(f.attr, uint32(f.count))
			}
		}
	})
	if err != nil {
		return fmt.Errorf("set channels of %q: %w", dev, err)
	}
	return nil
}

// Rings is how many packets a device's queues hold.
type Rings struct {
	RxMax, TxMax int
	Rx, Tx       int
}

// Rings reads a device's ring sizes.
func (c *Conn) Rings(dev string) (Rings, error) {
	ad, err := c.get(msgRingsGet, dev)
	if err != nil {
		return Rings{}, fmt.Errorf("read rings of %q: %w", dev, err)
	}
	var r Rings
	// ETHTOOL_A_RINGS_RX_MAX, _TX_MAX, _RX, _TX.
	fields := map[uint16]*int{2: &r.RxMax, 5: &r.TxMax, 6: &r.Rx, 9: &r.Tx}
	for ad.Next() {
		if field := fields[ad.Type()]; field != nil {
			*field = int(ad.Uint32())
		}
	}
	if err := ad.Err(); err != nil {
		return Rings{}, fmt.Errorf("read rings of %q: %w", dev, err)
	}
	return r, nil
}

// Coalesce is how a device holds back its interrupts. A driver reports only
// what it has; the rest is zero.
type Coalesce struct {
	RxMicros, RxFrames     uint32
	TxMicros, TxFrames     uint32
	AdaptiveRx, AdaptiveTx bool
}

// Attributes ETHTOOL_A_COALESCE_*.
const (
	attrCoalesceRxUsecs    = 2
	attrCoalesceRxFrames   = 3
	attrCoalesceTxUsecs    = 6
	attrCoalesceTxFrames   = 7
	attrCoalesceAdaptiveRx = 11
	attrCoalesceAdaptiveTx = 12
)

// Coalesce reads a device's interrupt coalescing. The error wraps EOPNOTSUPP
// when the driver has none, as veth.
func (c *Conn) Coalesce(dev string) (Coalesce, error) {
	ad, err := c.get(msgCoalesceGet, dev)
	if err != nil {
		return Coalesce{}, fmt.Errorf("read coalescing of %q: %w", dev, err)
	}
	var co Coalesce
	for ad.Next() {
		switch ad.Type() {
		case attrCoalesceRxUsecs:
			co.RxMicros = ad.Uint32()
		case attrCoalesceRxFrames:
			co.RxFrames = ad.Uint32()
		case attrCoalesceTxUsecs:
			co.TxMicros = ad.Uint32()
		case attrCoalesceTxFrames:
			co.TxFrames = ad.Uint32()
		case attrCoalesceAdaptiveRx:
			co.AdaptiveRx = ad.Uint8() != 0
		case attrCoalesceAdaptiveTx:
			co.AdaptiveTx = ad.Uint8() != 0
		}
	}
	if err := ad.Err(); err != nil {
		return Coalesce{}, fmt.Errorf("read coalescing of %q: %w", dev, err)
	}
	return co, nil
}
