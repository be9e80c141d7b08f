package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/nlsock"
)

// EventKind is what happened.
type EventKind uint8

// The kinds of events.
const (
	// Changed: the device was made, went up or down, or changed; Link holds
	// its new state. The kernel may report a lost or found carrier up to a
	// second late (net/core/link_watch.c).
	Changed EventKind = iota + 1
	// Deleted: the device left the namespace; Link holds its last state.
	Deleted
	// Setting: a driver setting changed; Event.Setting says which.
	Setting
	// Resync: events were lost, because they came faster than they were taken;
	// the receiver reads everything anew.
	Resync
)

// String returns the kind's word.
func (k EventKind) String() string {
	switch k {
	case Changed:
		return "changed"
	case Deleted:
		return "deleted"
	case Setting:
		return "setting"
	case Resync:
		return "resync"
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is one thing that happened to a device. The kernel often reports one
// act several times; an event says "look again", and nothing about how many
// acts there were.
type Event struct {
	Kind EventKind
	// Index is the device, zero for Resync.
	Index int
	// Link is set for Changed and Deleted.
	Link Link
	// Moved reports, for Deleted, that the device lives on in another
	// namespace.
	Moved bool
	// Setting is "features", "channels", "rings", "coalesce" or "xdp", the
	// last for what XDP on the device may do.
	Setting string
}

// watchBufferBytes is each socket's receive buffer: some 500 link messages of
// about 2 KiB with their overhead, before events are lost and a Resync comes.
const watchBufferBytes = 1 << 20

// ethtool's notifications (ETHTOOL_MSG_*_NTF in ethtool_netlink_generated.h,
// Linux 6.18), and those of "netdev" (netdev.h).
var (
	ethtoolSettings = map[uint8]string{13: "features", 17: "rings", 19: "channels", 21: "coalesce"}
	netdevSettings  = map[uint8]string{4: "xdp"} // NETDEV_CMD_DEV_CHANGE_NTF
)

// Watch is a subscription to what happens to the devices of one namespace.
type Watch struct{ sources []source }

// source is one socket, and how to read its messages.
type source struct {
	conn   *netlink.Conn
	decode func(netlink.Message) (Event, bool)
}

// Subscribe starts to collect events: RTNLGRP_LINK, and the notifications of
// ethtool and netdev. Everything that happens after it returns will be
// reported by Run. The caller must call Run or Close.
func Subscribe(ns *netns.Handle) (*Watch, error) {
	return subscribe(ns, watchBufferBytes)
}

func subscribe(ns *netns.Handle, bufferBytes int) (_ *Watch, err error) {
	w := &Watch{}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	links, err := nlsock.Dial(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	w.sources = append(w.sources, source{links, decodeLink})
	if err := links.JoinGroup(unix.RTNLGRP_LINK); err != nil {
		return nil, fmt.Errorf("subscribe to devices of namespace %s: %w", ns, err)
	}
	for _, f := range []struct {
		family, group string
		settings      map[uint8]string
		ifindex       func(*netlink.AttributeDecoder) int
	}{
		{"ethtool", "monitor", ethtoolSettings, ethtoolIndex},
		{"netdev", "mgmt", netdevSettings, netdevIndex},
	} {
		c, err := dialGroup(ns, f.family, f.group)
		if err != nil {
			return nil, err
		}
		w.sources = append(w.sources, source{c, func(m netlink.Message) (Event, bool) {
			return decodeSetting(m, f.settings, f.ifindex)
		}})
	}
	for _, s := range w.sources {
		if err := s.conn.SetReadBuffer(bufferBytes); err != nil {
			return nil, fmt.Errorf("size buffer of watch on namespace %s: %w", ns, err)
		}
	}
	return w, nil
}

// dialGroup opens a second socket in the generic netlink group, after one that
// resolved the family: an answer and a notification must not mix.
func dialGroup(ns *netns.Handle, family, group string) (*netlink.Conn, error) {
	f, err := nlsock.DialFamily(ns, family)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	id, err := f.Group(group)
	if err != nil {
		return nil, err
	}
	c, err := nlsock.Dial(ns, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	if err := c.JoinGroup(id); err != nil {
		c.Close()
		return nil, fmt.Errorf("join group %q of %q in namespace %s: %w", group, family, ns, err)
	}
	return c, nil
}

// Close ends the subscription without Run.
func (w *Watch) Close() error {
	var errs []error
	for _, s := range w.sources {
		errs = append(errs, s.conn.Close())
	}
	return errors.Join(errs...)
}

// Run calls emit for every event, one at a time, until the context ends, and
// then closes the subscription and returns nil. Events wait in the kernel's
// bounded buffers while emit works; when these overflow, emit gets a Resync.
// Run starts no goroutine that outlives it, and may be called once.
func (w *Watch) Run(ctx context.Context, emit func(Event)) error {
	defer w.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for _, s := range w.sources {
			// A deadline in the past wakes the reader. Its error can only be
			// that the socket is closed, which wakes it as well.
			_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer stop()

	var turn sync.Mutex
	serial := func(e Event) {
		turn.Lock()
		defer turn.Unlock()
		if ctx.Err() == nil {
			emit(e)
		}
	}
	var readers sync.WaitGroup
	failures := make([]error, len(w.sources))
	for i, s := range w.sources {
		readers.Go(func() {
			defer cancel()
			failures[i] = s.read(ctx, serial)
		})
	}
	readers.Wait()
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("watch devices: %w", err)
	}
	return nil
}

// read takes messages until the context ends.
func (s source) read(ctx context.Context, emit func(Event)) error {
	for {
		messages, err := s.conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			emit(Event{Kind: Resync})
			continue
		case err != nil:
			return err
		}
		for _, m := range messages {
			if e, ok := s.decode(m); ok {
				emit(e)
			}
		}
	}
}

// decodeLink reads a message of RTNLGRP_LINK. Those of another address family
// than AF_UNSPEC are a bridge's about its ports, and their RTM_DELLINK means
// that the device left the bridge, not that it is gone.
func decodeLink(m netlink.Message) (Event, bool) {
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC {
		return Event{}, false
	}
	l, err := parseLink(m.Data)
	if err != nil {
		// What cannot be read may be anything, so everything is read anew.
		return Event{Kind: Resync}, true
	}
	switch m.Header.Type {
	case unix.RTM_NEWLINK:
		return Event{Kind: Changed, Index: l.Index, Link: l}, true
	case unix.RTM_DELLINK:
		return Event{Kind: Deleted, Index: l.Index, Link: l, Moved: hasNewIndex(m.Data)}, true
	}
	return Event{}, false
}

// hasNewIndex reports whether the device got a number in another namespace.
func hasNewIndex(data []byte) bool {
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return false
	}
	for ad.Next() {
		if ad.Type() == unix.IFLA_NEW_IFINDEX {
			return true
		}
	}
	return false
}

// decodeSetting reads a generic netlink notification: 4 bytes of header, the
// first of them the command, then attributes.
func decodeSetting(m netlink.Message, settings map[uint8]string, ifindex func(*netlink.AttributeDecoder) int) (Event, bool) {
	if len(m.Data) < unix.GENL_HDRLEN {
		return Event{}, false
	}
	setting, ok := settings[m.Data[0]]
	if !ok {
		return Event{}, false
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.GENL_HDRLEN:])
	if err != nil {
		return Event{Kind: Resync}, true
	}
	index := ifindex(ad)
	if ad.Err() != nil || index == 0 {
		return Event{Kind: Resync}, true
	}
	return Event{Kind: Setting, Index: index, Setting: setting}, true
}

// ethtoolIndex finds ETHTOOL_A_HEADER_DEV_INDEX (1) in the header nest, which
// is attribute 1 of every ethtool message.
func ethtoolIndex(ad *netlink.AttributeDecoder) (index int) {
	for ad.Next() {
		if ad.Type() == 1 {
			index = int(nestedUint32(ad, 1))
		}
	}
	return index
}

// netdevIndex finds NETDEV_A_DEV_IFINDEX (1).
func netdevIndex(ad *netlink.AttributeDecoder) (index int) {
	for ad.Next() {
		if ad.Type() == 1 {
			index = int(ad.Uint32())
		}
	}
	return index
}
