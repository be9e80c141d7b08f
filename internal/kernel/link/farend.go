package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
)

// ErrFarEndUnseen says that the far end exists, but that no namespace which
// this process can open has it.
var ErrFarEndUnseen = errors.New("is in a namespace that this process cannot see")

// Attributes of RTM_GETNSID: include/uapi/linux/net_namespace.h.
const (
	netnsaNSID = 1
	netnsaFD   = 3
)

// FarEnd finds the other end of a veth: the namespace that holds it, which the
// caller closes, and the device. The namespace is looked for among all that
// this process can see (netns.Search), each asked for its number as this
// namespace knows it. The error wraps ErrFarEndUnseen when none is it.
func (c *Conn) FarEnd(near Link) (*netns.Handle, Link, error) {
	if near.Kind != "veth" {
		kind := near.Kind
		if kind == "" {
			kind = "hardware"
		}
		return nil, Link{}, fmt.Errorf("find far end of %q: it is %s, not veth", near.Name, kind)
	}
	if !near.PeerElsewhere {
		far, err := c.ByIndex(near.PeerIndex)
		if err != nil {
			return nil, Link{}, fmt.Errorf("find far end of %q: %w", near.Name, err)
		}
		ns, err := c.ns.Clone()
		if err != nil {
			return nil, Link{}, fmt.Errorf("find far end of %q: %w", near.Name, err)
		}
		return ns, far, nil
	}
	ns, err := netns.Search(func(candidate *netns.Handle) (bool, error) {
		id, err := c.nsid(candidate)
		return err == nil && id == near.PeerNSID, err
	})
	if err != nil {
		return nil, Link{}, fmt.Errorf("find far end of %q: %w", near.Name, err)
	}
	if ns == nil {
		return nil, Link{}, fmt.Errorf("far end of %q %w", near.Name, ErrFarEndUnseen)
	}
	far, err := farLink(ns, near)
	if err != nil {
		ns.Close()
		return nil, Link{}, fmt.Errorf("find far end of %q: %w", near.Name, err)
	}
	return ns, far, nil
}

// farLink reads the far end and makes sure that it is one: a device may have
// been moved or deleted since near was read.
func farLink(ns *netns.Handle, near Link) (Link, error) {
	c, err := Dial(ns)
	if err != nil {
		return Link{}, err
	}
	defer c.Close()
	far, err := c.ByIndex(near.PeerIndex)
	if err != nil {
		return Link{}, err
	}
	if far.Kind != "veth" || far.PeerIndex != near.Index {
		return Link{}, fmt.Errorf("device %d in namespace %s is %q, which is not connected to it: %w", far.Index, ns, far.Name, unix.ENODEV)
	}
	return far, nil
}

// nsid asks by what number this namespace knows another; -1 when by none
// (NETNSA_NSID_NOT_ASSIGNED).
func (c *Conn) nsid(other *netns.Handle) (int, error) {
	// struct rtgenmsg, one byte, padded to the alignment of attributes.
	replies, err := c.ask(unix.RTM_GETNSID, 0, make([]byte, 4), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(netnsaFD, uint32(other.FD()))
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the number of namespace %s: %w", other, err)
	}
	if len(replies) != 1 || len(replies[0].Data) < 4 {
		return 0, fmt.Errorf("ask for the number of namespace %s: got %d answers, want 1", other, len(replies))
	}
	ad, err := netlink.NewAttributeDecoder(replies[0].Data[4:])
	if err != nil {
		return 0, fmt.Errorf("ask for the number of namespace %s: %w", other, err)
	}
	id := int32(-1)
	for ad.Next() {
		if ad.Type() == netnsaNSID {
			id = int32(binary.NativeEndian.Uint32(ad.Bytes()))
		}
	}
	return int(id), ad.Err()
}
