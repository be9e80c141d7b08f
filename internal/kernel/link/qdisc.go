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

// tcmsg is struct tcmsg for the root of a device: family, padding, s32 index,
// u32 handle, u32 parent, u32 info.
func tcmsg(index int) []byte {
	b := make([]byte, 20)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[12:], rootParent)
	return b
}
