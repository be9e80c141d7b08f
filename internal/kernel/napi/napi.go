// Package napi lists a device's NAPI instances and queues and sets each
// instance's own timers and thread, through the kernel's "netdev" generic
// netlink family. It remembers nothing: on veth the instances and their
// settings die with a link down, a GRO toggle or the removal of their channel,
// and a write to the device's own gro_flush_timeout, napi_defer_hard_irqs or
// threaded in sysfs overwrites them. Noticing that is left to the caller
// (package link has a watch for all but the last, which nothing announces).
package napi

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/nlsock"
	"xlane/internal/model"
)

// Commands and attributes of the family: include/uapi/linux/netdev.h, Linux
// 6.18 (Documentation/netlink/specs/netdev.yaml).
const (
	cmdQueueGet = 10
	cmdNAPIGet  = 11
	cmdNAPISet  = 14

	attrNAPIIfindex         = 1
	attrNAPIID              = 2
	attrNAPIIRQ             = 3
	attrNAPIPID             = 4
	attrNAPIDeferHardIRQs   = 5
	attrNAPIGROFlushTimeout = 6 // ns
	attrNAPISuspendTimeout  = 7 // ns
	attrNAPIThreaded        = 8 // enum netdev_napi_threaded: 0 no, 1 yes

	attrQueueID      = 1
	attrQueueIfindex = 2
	attrQueueType    = 3 // enum netdev_queue_type
	attrQueueNAPIID  = 4
)

// Direction is which way a queue carries packets.
type Direction uint32

// The directions: enum netdev_queue_type.
const (
	RX Direction = 0
	TX Direction = 1
)

// String returns "rx" or "tx".
func (d Direction) String() string {
	if d == TX {
		return "tx"
	}
	return "rx"
}

// NAPI is one polling instance as the kernel reports it.
type NAPI struct {
	// ID is unique on the host until the instance is destroyed.
	ID      uint32
	Ifindex int
	// IRQ is zero when the device has none, as veth.
	IRQ uint32
	// PID is the polling thread in the initial PID namespace, zero when the
	// instance is not threaded.
	PID int
	// Hold is gro_flush_timeout and napi_defer_hard_irqs of this instance.
	Hold model.Hold
	// SuspendTimeout is irq-suspend-timeout: how long a busy-polling
	// application may keep interrupts off.
	SuspendTimeout time.Duration
	Threaded       bool
}

// Queue is one queue of a device that is up. NAPIID is zero when the driver
// does not report it; veth does not.
type Queue struct {
	ID        int
	Direction Direction
	NAPIID    uint32
}

// Change is a set of new values for one NAPI; a nil field is left as it is.
// Durations are of 0 or more; DeferHardIRQs is at most math.MaxInt32.
type Change struct {
	DeferHardIRQs   *uint32
	GROFlushTimeout *time.Duration
	SuspendTimeout  *time.Duration
	// Threaded starts or stops the instance's own kernel thread.
	Threaded *bool
}

// Conn asks one namespace. It may be used from several goroutines.
type Conn struct{ family *nlsock.Family }

// Dial opens a connection to the namespace's netdev family.
func Dial(ns *netns.Handle) (*Conn, error) {
	f, err := nlsock.DialFamily(ns, "netdev")
	if err != nil {
		return nil, err
	}
	return &Conn{family: f}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.family.Close() }

// List returns the device's NAPI instances in ascending order of ID. On veth
// that is the order of the receive queues: they are made in that order, and
// channels are added and removed at the end. A device that is down, or a veth
// without GRO and XDP, has none. A new instance starts with the values that
// the device has in sysfs.
func (c *Conn) List(ifindex int) ([]NAPI, error) {
	replies, err := c.family.Ask(cmdNAPIGet, netlink.Dump, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrNAPIIfindex, uint32(ifindex))
	})
	if err != nil {
		return nil, fmt.Errorf("list NAPIs of device %d: %w", ifindex, err)
	}
	list := make([]NAPI, 0, len(replies))
	for _, r := range replies {
		n, err := parseNAPI(r)
		if err != nil {
			return nil, fmt.Errorf("list NAPIs of device %d: %w", ifindex, err)
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b NAPI) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// Get returns one instance. The error wraps ENOENT when it is gone.
func (c *Conn) Get(id uint32) (NAPI, error) {
	replies, err := c.family.Ask(cmdNAPIGet, 0, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrNAPIID, id)
	})
	if err != nil {
		return NAPI{}, fmt.Errorf("read NAPI %d: %w", id, explain(err))
	}
	if len(replies) != 1 {
		return NAPI{}, fmt.Errorf("read NAPI %d: got %d answers, want 1", id, len(replies))
	}
	return parseNAPI(replies[0])
}

// Set changes one instance. The error wraps ENOENT when the instance is gone,
// which on veth means that its link was reset and new ones may exist.
func (c *Conn) Set(id uint32, change Change) error {
	encode, err := change.encoder(id)
	if err != nil {
		return fmt.Errorf("set NAPI %d: %w", id, err)
	}
	if _, err := c.family.Ask(cmdNAPISet, netlink.Acknowledge, encode); err != nil {
		return fmt.Errorf("set NAPI %d: %w", id, explain(err))
	}
	return nil
}

// explain says what the kernel's "no such file or directory" is about.
func explain(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("it does not exist (%w)", err)
	}
	return err
}

// SetHold changes both timers of one instance in one request.
func (c *Conn) SetHold(id uint32, hold model.Hold) error {
	return c.Set(id, Change{DeferHardIRQs: &hold.DeferCount, GROFlushTimeout: &hold.Timeout})
}

// SetThreaded starts or stops the thread of one instance. When it returns, the
// thread's number is in Get.
func (c *Conn) SetThreaded(id uint32, threaded bool) error {
	return c.Set(id, Change{Threaded: &threaded})
}

// Queues lists the device's real queues, receive before transmit, each in
// ascending order. A device that is down has none.
func (c *Conn) Queues(ifindex int) ([]Queue, error) {
	replies, err := c.family.Ask(cmdQueueGet, netlink.Dump, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrQueueIfindex, uint32(ifindex))
	})
	if err != nil {
		return nil, fmt.Errorf("list queues of device %d: %w", ifindex, err)
	}
	queues := make([]Queue, 0, len(replies))
	for _, r := range replies {
		q, err := parseQueue(r)
		if err != nil {
			return nil, fmt.Errorf("list queues of device %d: %w", ifindex, err)
		}
		queues = append(queues, q)
	}
	slices.SortFunc(queues, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.ID, b.ID))
	})
	return queues, nil
}

// encoder checks the limits that the kernel would otherwise report as a bare
// "numerical result out of range", and returns the request's attributes.
func (ch Change) encoder(id uint32) (func(*netlink.AttributeEncoder), error) {
	for _, d := range []*time.Duration{ch.GROFlushTimeout, ch.SuspendTimeout} {
		if d != nil && *d < 0 {
			return nil, fmt.Errorf("a timeout of %v is below zero", *d)
		}
	}
	// napi-defer-hard-irqs-max in netdev.yaml is S32_MAX.
	if ch.DeferHardIRQs != nil && *ch.DeferHardIRQs > math.MaxInt32 {
		return nil, fmt.Errorf("a defer count of %d is over the limit of %d", *ch.DeferHardIRQs, math.MaxInt32)
	}
	return func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrNAPIID, id)
		if ch.DeferHardIRQs != nil {
			ae.Uint32(attrNAPIDeferHardIRQs, *ch.DeferHardIRQs)
		}
		if ch.GROFlushTimeout != nil {
			ae.Uint64(attrNAPIGROFlushTimeout, uint64(*ch.GROFlushTimeout))
		}
		if ch.SuspendTimeout != nil {
			ae.Uint64(attrNAPISuspendTimeout, uint64(*ch.SuspendTimeout))
		}
		if ch.Threaded != nil {
			var v uint32
			if *ch.Threaded {
				v = 1
			}
			ae.Uint32(attrNAPIThreaded, v)
		}
	}, nil
}

// number reads an attribute of type "uint", which the kernel sends in 4 bytes
// when the value fits and in 8 when it does not.
func number(ad *netlink.AttributeDecoder) (v uint64) {
	ad.Do(func(b []byte) error {
		switch len(b) {
		case 4:
			v = uint64(binary.NativeEndian.Uint32(b))
		case 8:
			v = binary.NativeEndian.Uint64(b)
		default:
			return fmt.Errorf("a number of %d bytes", len(b))
		}
		return nil
	})
	return v
}

func parseNAPI(attrs []byte) (NAPI, error) {
	ad, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return NAPI{}, fmt.Errorf("decode NAPI: %w", err)
	}
	var n NAPI
	for ad.Next() {
		switch ad.Type() {
		case attrNAPIIfindex:
			n.Ifindex = int(ad.Uint32())
		case attrNAPIID:
			n.ID = ad.Uint32()
		case attrNAPIIRQ:
			n.IRQ = ad.Uint32()
		case attrNAPIPID:
			n.PID = int(ad.Uint32())
		case attrNAPIDeferHardIRQs:
			n.Hold.DeferCount = ad.Uint32()
		case attrNAPIGROFlushTimeout:
			n.Hold.Timeout = time.Duration(number(ad))
		case attrNAPISuspendTimeout:
			n.SuspendTimeout = time.Duration(number(ad))
		case attrNAPIThreaded:
			n.Threaded = number(ad) != 0
		}
	}
	if err := ad.Err(); err != nil {
		return NAPI{}, fmt.Errorf("decode NAPI: %w", err)
	}
	return n, nil
}

func parseQueue(attrs []byte) (Queue, error) {
	ad, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return Queue{}, fmt.Errorf("decode queue: %w", err)
	}
	var q Queue
	for ad.Next() {
		switch ad.Type() {
		case attrQueueID:
			q.ID = int(ad.Uint32())
		case attrQueueType:
			q.Direction = Direction(ad.Uint32())
		case attrQueueNAPIID:
			q.NAPIID = ad.Uint32()
		}
	}
	if err := ad.Err(); err != nil {
		return Queue{}, fmt.Errorf("decode queue: %w", err)
	}
	return q, nil
}
