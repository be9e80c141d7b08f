// Package link reads the devices of a namespace, finds the far end of a veth
// wherever it is, and watches for whatever resets a device's settings. It
// changes no device.
package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/nlsock"
)

// Link is one device as the kernel reports it.
type Link struct {
	Index int
	Name  string
	// Kind is the driver's word ("veth", "bridge"), empty for hardware.
	Kind string
	// PeerIndex is the far end of a veth or the device below, numbered in that
	// one's namespace; zero when there is none.
	PeerIndex int
	// PeerElsewhere reports that PeerIndex is in another namespace, the one
	// that this namespace knows as PeerNSID.
	PeerElsewhere bool
	PeerNSID      int
	MAC           net.HardwareAddr
	MTU           int // bytes
	// Up is the administrator's wish, LowerUp that there is a carrier too.
	Up      bool
	LowerUp bool
	// Master is the index of the bridge or bond that it is a port of, or zero.
	Master int
	// Qdisc is the kind of the root queueing discipline: "noqueue", "mq", "htb".
	Qdisc string
	// TxQueueLen is how many packets wait in each of its simple qdiscs.
	TxQueueLen int
	// RxQueues and TxQueues were allocated when the device was made and bound
	// what it can use; package sysfs and package ethtool know what it uses.
	RxQueues int
	TxQueues int
	// XDP is the number of the XDP program attached, zero when there is none.
	XDP   uint32
	Stats Stats
}

// Loopback reports whether the device is the namespace's own loopback.
func (l Link) Loopback() bool { return l.Kind == "" && l.Name == "lo" }

// Stats are the device's totals since it was made.
type Stats struct {
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxErrors, TxErrors   uint64
	RxDropped, TxDropped uint64
}

// Conn asks one namespace. It may be used from several goroutines.
type Conn struct {
	conn *netlink.Conn
	ns   *netns.Handle
}

// Dial opens a connection to the namespace's devices. The namespace handle
// must stay open until Close.
func Dial(ns *netns.Handle) (*Conn, error) {
	c, err := nlsock.Dial(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: c, ns: ns}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// ByName returns a device. The error wraps ENODEV when there is none of that
// name.
func (c *Conn) ByName(name string) (Link, error) {
	l, err := c.one(0, func(ae *netlink.AttributeEncoder) { ae.String(unix.IFLA_IFNAME, name) })
	if errors.Is(err, unix.ERANGE) || errors.Is(err, unix.EINVAL) {
		// The name is too long or empty, so no device can have it.
		err = unix.ENODEV
	}
	if err != nil {
		return Link{}, fmt.Errorf("find device %q in namespace %s: %w", name, c.ns, err)
	}
	return l, nil
}

// ByIndex returns a device. The error wraps ENODEV when there is none of that
// number.
func (c *Conn) ByIndex(index int) (Link, error) {
	l, err := c.one(index, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return Link{}, fmt.Errorf("find device %d in namespace %s: %w", index, c.ns, err)
	}
	return l, nil
}

// List returns every device, in ascending order of index.
func (c *Conn) List() ([]Link, error) {
	replies, err := c.ask(unix.RTM_GETLINK, netlink.Dump, ifinfomsg(0), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("list devices of namespace %s: %w", c.ns, err)
	}
	links := make([]Link, 0, len(replies))
	for _, r := range replies {
		l, err := parseLink(r.Data)
		if err != nil {
			return nil, fmt.Errorf("list devices of namespace %s: %w", c.ns, err)
		}
		links = append(links, l)
	}
	return links, nil
}

// Addresses returns a device's IPv4 and IPv6 addresses with their prefix
// lengths. Index 0 asks for those of all devices.
func (c *Conn) Addresses(index int) ([]netip.Prefix, error) {
	// struct ifaddrmsg: family, prefixlen, flags, scope, u32 index.
	header := make([]byte, 8)
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	replies, err := c.ask(unix.RTM_GETADDR, netlink.Dump, header, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("list addresses of device %d in namespace %s: %w", index, c.ns, err)
	}
	var prefixes []netip.Prefix
	for _, r := range replies {
		p, ok, err := parseAddress(r.Data)
		if err != nil {
			return nil, fmt.Errorf("list addresses of device %d in namespace %s: %w", index, c.ns, err)
		}
		if ok {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, nil
}

func (c *Conn) one(index int, attrs func(*netlink.AttributeEncoder)) (Link, error) {
	replies, err := c.ask(unix.RTM_GETLINK, 0, ifinfomsg(index), attrs)
	if err != nil {
		return Link{}, err
	}
	if len(replies) != 1 {
		return Link{}, fmt.Errorf("got %d answers, want 1", len(replies))
	}
	return parseLink(replies[0].Data)
}

// ask sends one request. A dump that ran while devices came or went is marked
// so by the kernel and asked for again.
func (c *Conn) ask(kind netlink.HeaderType, flags netlink.HeaderFlags, header []byte, attrs func(*netlink.AttributeEncoder)) ([]netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	attrs(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	const attempts = 5
	for range attempts {
		replies, err := c.conn.Execute(netlink.Message{
			Header: netlink.Header{Type: kind, Flags: netlink.Request | flags},
			Data:   append(append([]byte(nil), header...), data...),
		})
		if err != nil {
			return nil, nlsock.Explain(err)
		}
		interrupted := false
		for _, r := range replies {
			interrupted = interrupted || r.Header.Flags&netlink.DumpInterrupted != 0
		}
		if !interrupted {
			return replies, nil
		}
	}
	return nil, fmt.Errorf("the list changed during %d readings", attempts)
}

// ifinfomsg is struct ifinfomsg: family, pad, u16 type, s32 index, u32 flags,
// u32 change mask.
func ifinfomsg(index int) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

// parseLink reads the data of RTM_NEWLINK or RTM_DELLINK.
func parseLink(data []byte) (Link, error) {
	if len(data) < unix.SizeofIfInfomsg {
		return Link{}, fmt.Errorf("decode device: %d bytes are too short", len(data))
	}
	flags := binary.NativeEndian.Uint32(data[8:])
	l := Link{
		Index:   int(int32(binary.NativeEndian.Uint32(data[4:]))),
		Up:      flags&unix.IFF_UP != 0,
		LowerUp: flags&unix.IFF_LOWER_UP != 0,
	}
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return Link{}, fmt.Errorf("decode device %d: %w", l.Index, err)
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.Name = ad.String()
		case unix.IFLA_ADDRESS:
			l.MAC = net.HardwareAddr(ad.Bytes())
		case unix.IFLA_MTU:
			l.MTU = int(ad.Uint32())
		case unix.IFLA_LINK:
			l.PeerIndex = int(ad.Uint32())
		case unix.IFLA_LINK_NETNSID:
			l.PeerElsewhere, l.PeerNSID = true, int(ad.Int32())
		case unix.IFLA_TXQLEN:
			l.TxQueueLen = int(ad.Uint32())
		case unix.IFLA_QDISC:
			l.Qdisc = ad.String()
		case unix.IFLA_MASTER:
			l.Master = int(ad.Uint32())
		case unix.IFLA_NUM_RX_QUEUES:
			l.RxQueues = int(ad.Uint32())
		case unix.IFLA_NUM_TX_QUEUES:
			l.TxQueues = int(ad.Uint32())
		case unix.IFLA_STATS64:
			l.Stats = parseStats(ad.Bytes())
		case unix.IFLA_LINKINFO:
			l.Kind = nestedString(ad, unix.IFLA_INFO_KIND)
		case unix.IFLA_XDP:
			l.XDP = nestedUint32(ad, unix.IFLA_XDP_PROG_ID)
		}
	}
	if err := ad.Err(); err != nil {
		return Link{}, fmt.Errorf("decode device %d: %w", l.Index, err)
	}
	return l, nil
}

func nestedString(ad *netlink.AttributeDecoder, kind uint16) (s string) {
	ad.Nested(func(in *netlink.AttributeDecoder) error {
		for in.Next() {
			if in.Type() == kind {
				s = in.String()
			}
		}
		return in.Err()
	})
	return s
}

func nestedUint32(ad *netlink.AttributeDecoder, kind uint16) (v uint32) {
	ad.Nested(func(in *netlink.AttributeDecoder) error {
		for in.Next() {
			if in.Type() == kind {
				v = in.Uint32()
			}
		}
		return in.Err()
	})
	return v
}

// parseStats reads the first eight counters of struct rtnl_link_stats64
// (include/uapi/linux/if_link.h). A short attribute leaves zeros.
func parseStats(b []byte) Stats {
	at := func(i int) uint64 {
		if len(b) < 8*(i+1) {
			return 0
		}
		return binary.NativeEndian.Uint64(b[8*i:])
	}
	return Stats{
		RxPackets: at(0), TxPackets: at(1),
		RxBytes: at(2), TxBytes: at(3),
		RxErrors: at(4), TxErrors: at(5),
		RxDropped: at(6), TxDropped: at(7),
	}
}

// parseAddress reads the data of RTM_NEWADDR. IFA_LOCAL is the device's own
// address and IFA_ADDRESS that of a point-to-point peer; where only the latter
// is sent, as for IPv6, both are the same.
func parseAddress(data []byte) (netip.Prefix, bool, error) {
	if len(data) < unix.SizeofIfAddrmsg {
		return netip.Prefix{}, false, fmt.Errorf("decode address: %d bytes are too short", len(data))
	}
	bits := int(data[1])
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return netip.Prefix{}, false, fmt.Errorf("decode address: %w", err)
	}
	var local, address netip.Addr
	for ad.Next() {
		switch ad.Type() {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(ad.Bytes())
		}
	}
	if err := ad.Err(); err != nil {
		return netip.Prefix{}, false, fmt.Errorf("decode address: %w", err)
	}
	if !local.IsValid() {
		local = address
	}
	return netip.PrefixFrom(local, bits), local.IsValid(), nil
}
