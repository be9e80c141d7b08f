package link

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// NoQueue is the kind of qdisc that a software device has by default: none.
const NoQueue = "noqueue"

// rootParent is TC_H_ROOT (include/uapi/linux/pkt_sched.h).
const rootParent = 0xffffffff

// SetRootQdisc makes the device's root queueing discipline one of this kind,
// without options, or takes it away (NoQueue), after which the device has
// what it has by default. Whatever was there before is lost with its options,
// so the caller must not replace what somebody else configured.
func (c *Conn) SetRootQdisc(name, kind string) error {
	l, err := c.ByName(name)
	if err != nil {
		return err
	}
	if kind == NoQueue {
		_, err = c.ask(unix.RTM_DELQDISC, netlink.Acknowledge, tcmsg(l.Index), func(*netlink.AttributeEncoder) {})
	} else {
		_, err = c.ask(unix.RTM_NEWQDISC, netlink.Acknowledge|netlink.Create|netlink.Replace, tcmsg(l.Index),
			func(ae *netlink.AttributeEncoder) { ae.String(unix.TCA_KIND, kind) })
	}
	if err != nil {
		return fmt.Errorf("make %s the root qdisc of %q: %w", kind, name, err)
	}
	return nil
}

// SetTxQueueLen sets how many packets wait in each of the device's qdiscs that
// go by it (pfifo_fast, pfifo), also those in use.
func (c *Conn) SetTxQueueLen(name string, packets int) error {
	l, err := c.ByName(name)
	if err != nil {
		return err
	}
	_, err = c.ask(unix.RTM_NEWLINK, netlink.Acknowledge, ifinfomsg(l.Index),
		func(ae *netlink.AttributeEncoder) { ae.Uint32(unix.IFLA_TXQLEN, uint32(packets)) })
	if err != nil {
		return fmt.Errorf("set the transmit queue length of %q to %d: %w", name, packets, err)
	}
	return nil
}

// RootQdiscDrops returns how many packets the device's root qdisc has dropped
// since it was attached; a classful one, such as mq, counts what its children
// dropped. It is 0 where there is none.
func (c *Conn) RootQdiscDrops(index int) (uint64, error) {
	replies, err := c.ask(unix.RTM_GETQDISC, netlink.Dump, tcmsg(index), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return 0, fmt.Errorf("list the qdiscs of device %d: %w", index, err)
	}
	for _, r := range replies {
		if len(r.Data) < tcmsgLen || int(int32(binary.NativeEndian.Uint32(r.Data[4:]))) != index ||
			binary.NativeEndian.Uint32(r.Data[12:]) != rootParent {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(r.Data[tcmsgLen:])
		if err != nil {
			return 0, fmt.Errorf("read the qdiscs of device %d: %w", index, err)
		}
		for ad.Next() {
			// struct tc_stats: u64 bytes, u32 packets, u32 drops (pkt_sched.h)
			if b := ad.Bytes(); ad.Type() == unix.TCA_STATS && len(b) >= 16 {
				return uint64(binary.NativeEndian.Uint32(b[12:])), nil
			}
		}
	}
	return 0, nil
}

// tcmsgLen is the size of struct tcmsg.
const tcmsgLen = 20

// tcmsg is struct tcmsg for the root of a device: family, padding, s32 index,
// u32 handle, u32 parent, u32 info.
func tcmsg(index int) []byte {
	b := make([]byte, tcmsgLen)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[12:], rootParent)
	return b
}
