// Package setting changes a host one setting at a time, having had what it was
// written down first, and puts it back: in this process or, from the record,
// in another after a crash. What to change, and to what, is decided elsewhere;
// where the record is kept too.
package setting

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/link"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/sysctl"
	"xlane/internal/kernel/sysfs"
	"xlane/internal/model"
)

// Kind is what sort of setting is changed.
type Kind string

// The kinds. Key and value are written as the kernel or ethtool(8) writes them.
const (
	Feature  Kind = "feature"  // Key: name; value: on, off
	Channels Kind = "channels" // Key: rx, tx; value: count
	XPSCPUs  Kind = "xps_cpus" // Key: transmit queue; value: CPU list
	XPSRxQs  Kind = "xps_rxqs" // Key: transmit queue; value: list of receive queues
	Sysctl   Kind = "sysctl"   // Key: name; value as read; Device empty
	NAPI     Kind = "napi"     // Key: receive queue; value: see NAPIValue
	TxQLen   Kind = "txqlen"   // Key: txqlen; value: packets
	Qdisc    Kind = "qdisc"    // Key: root; value: the qdisc's kind; noqueue = none
)

// Setting is one setting of one device (or namespace) and its values before
// and after. It is what the record holds, as JSON.
type Setting struct {
	Kind   Kind     `json:"kind"`
	NS     netns.ID `json:"netns"`
	Device string   `json:"device,omitempty"`
	Key    string   `json:"key"`
	From   string   `json:"from"`
	To     string   `json:"to"`
}

// String names the setting for an operator.
func (s Setting) String() string {
	switch s.Kind {
	case Sysctl:
		return s.Key
	case Channels:
		return fmt.Sprintf("%s queues of %s", s.Key, s.Device)
	case XPSCPUs, XPSRxQs:
		return fmt.Sprintf("%s of %s tx-%s", s.Kind, s.Device, s.Key)
	case NAPI:
		return fmt.Sprintf("timers and thread of %s rx-%s", s.Device, s.Key)
	case TxQLen:
		return fmt.Sprintf("transmit queue length of %s", s.Device)
	case Qdisc:
		return fmt.Sprintf("root qdisc of %s", s.Device)
	}
	return fmt.Sprintf("%s of %s", s.Key, s.Device)
}

// same reports whether both are about one setting.
func (s Setting) same(o Setting) bool {
	return s.Kind == o.Kind && s.NS == o.NS && s.Device == o.Device && s.Key == o.Key
}

// Journal is where changes are written down before they are made. Record must
// have the setting on stable storage, as far as a crash of the process goes,
// when it returns.
type Journal interface {
	Record(Setting) error
	// Recorded returns everything recorded and not yet undone, oldest first.
	Recorded() []Setting
}

// Remember returns a record with one more change in it: one entry a setting,
// which keeps what the first change of it found and has the last one's value.
func Remember(record []Setting, s Setting) []Setting {
	for i := range record {
		if record[i].same(s) {
			record[i].To = s.To
			return record
		}
	}
	return append(record, s)
}

// Host reads and writes the settings of one namespace.
type Host struct {
	ns    *netns.Handle
	tool  *ethtool.Conn
	links *link.Conn
	napis *napi.Conn
	sys   *sysfs.FS
}

// Open opens a namespace for changes. The handle must stay open until Close.
func Open(ns *netns.Handle) (*Host, error) {
	h := &Host{ns: ns}
	var err error
	if h.tool, err = ethtool.Dial(ns); err == nil {
		if h.links, err = link.Dial(ns); err == nil {
			if h.napis, err = napi.Dial(ns); err == nil {
				h.sys, err = sysfs.Open(ns)
			}
		}
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Close closes what Open opened.
func (h *Host) Close() {
	if h.tool != nil {
		h.tool.Close()
	}
	if h.links != nil {
		h.links.Close()
	}
	if h.napis != nil {
		h.napis.Close()
	}
	if h.sys != nil {
		h.sys.Close()
	}
}

// Ethtool, Links and NAPIs are the host's connections, for reading.
func (h *Host) Ethtool() *ethtool.Conn { return h.tool }

// Links returns the connection that lists devices.
func (h *Host) Links() *link.Conn { return h.links }

// NAPIs returns the connection that lists polling instances.
func (h *Host) NAPIs() *napi.Conn { return h.napis }

// NS returns the namespace.
func (h *Host) NS() *netns.Handle { return h.ns }

// Set makes one setting be value. When it already is, nothing is written and
// nothing recorded; otherwise the change is recorded first, with the value
// that the first change of this setting found.
func (h *Host) Set(j Journal, kind Kind, dev, key, value string) error {
	s := Setting{Kind: kind, NS: h.ns.ID(), Device: dev, Key: key, To: value}
	var err error
	if s.From, err = h.read(s); err != nil {
		return fmt.Errorf("read %v: %w", s, err)
	}
	if s.From == value {
		return nil
	}
	for _, old := range j.Recorded() {
		if old.same(s) {
			s.From = old.From
		}
	}
	if err := j.Record(s); err != nil {
		return fmt.Errorf("write down %v before changing it: %w", s, err)
	}
	if err := h.write(s, value); err != nil {
		return fmt.Errorf("set %v to %s: %w", s, value, err)
	}
	return nil
}

// ErrChangedSince says that a setting was left alone because it no longer has
// the value that it was given: somebody else has changed it since.
var ErrChangedSince = errors.New("somebody else has changed it since")

// Undo puts one recorded setting back. What has disappeared with its device or
// namespace needs no undoing. A setting that somebody else has changed since
// is left, and the error wraps ErrChangedSince.
func (h *Host) Undo(s Setting) error {
	now, err := h.read(s)
	switch {
	case gone(err):
		return nil
	case err != nil:
		return fmt.Errorf("read %v: %w", s, err)
	case now == s.From:
		return nil
	case now != s.To && s.Kind != NAPI && s.Kind != Channels:
		return fmt.Errorf("put back %v: it is %s, not %s: %w", s, now, s.To, ErrChangedSince)
	}
	if err := h.write(s, s.From); err != nil && !gone(err) {
		return fmt.Errorf("put back %v to %s: %w", s, s.From, err)
	}
	return nil
}

func gone(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoQueue)
}

var errNoQueue = errors.New("the device has no such queue now")

func (h *Host) read(s Setting) (string, error) {
	switch s.Kind {
	case Feature:
		all, err := h.tool.Features(s.Device)
		if err != nil {
			return "", err
		}
		f, ok := all[s.Key]
		if !ok {
			return "", fmt.Errorf("this kernel has no feature %q", s.Key)
		}
		return onOff(f.Active), nil
	case Channels:
		ch, err := h.tool.Channels(s.Device)
		if err != nil {
			return "", err
		}
		if s.Key == "rx" {
			return strconv.Itoa(ch.Rx), nil
		}
		return strconv.Itoa(ch.Tx), nil
	case XPSCPUs, XPSRxQs:
		q, err := strconv.Atoi(s.Key)
		if err != nil {
			return "", err
		}
		get := h.sys.XPSCPUs
		if s.Kind == XPSRxQs {
			get = h.sys.XPSRxQueues
		}
		set, err := get(s.Device, q)
		return set.String(), err
	case Sysctl:
		return sysctl.Read(h.ns, s.Key)
	case NAPI:
		n, err := h.napiOf(s)
		if err != nil {
			return "", err
		}
		return NAPIValue(n.Hold, n.Threaded), nil
	case TxQLen:
		l, err := h.links.ByName(s.Device)
		return strconv.Itoa(l.TxQueueLen), err
	case Qdisc:
		l, err := h.links.ByName(s.Device)
		return l.Qdisc, err
	}
	return "", fmt.Errorf("no setting of kind %q", s.Kind)
}

func (h *Host) write(s Setting, value string) error {
	switch s.Kind {
	case Feature:
		_, err := h.tool.SetFeatures(s.Device, map[string]bool{s.Key: value == "on"})
		return err
	case Channels:
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		ch := ethtool.Channels{Rx: -1, Tx: -1, Other: -1, Combined: -1}
		if s.Key == "rx" {
			ch.Rx = n
		} else {
			ch.Tx = n
		}
		return h.tool.SetChannels(s.Device, ch)
	case XPSCPUs, XPSRxQs:
		q, err := strconv.Atoi(s.Key)
		if err != nil {
			return err
		}
		set, err := cpu.ParseList(value)
		if err != nil {
			return err
		}
		if s.Kind == XPSRxQs {
			return h.sys.SetXPSRxQueues(s.Device, q, set)
		}
		return h.sys.SetXPSCPUs(s.Device, q, set)
	case Sysctl:
		return sysctl.Write(h.ns, s.Key, value)
	case NAPI:
		n, err := h.napiOf(s)
		if err != nil {
			return err
		}
		hold, threaded, err := parseNAPIValue(value)
		if err != nil {
			return err
		}
		if n.Threaded != threaded {
			if err := h.napis.SetThreaded(n.ID, threaded); err != nil {
				return err
			}
		}
		return h.napis.SetHold(n.ID, hold)
	case TxQLen:
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		return h.links.SetTxQueueLen(s.Device, n)
	case Qdisc:
		return h.links.SetRootQdisc(s.Device, value)
	}
	return fmt.Errorf("no setting of kind %q", s.Kind)
}

// napiOf finds a receive queue's NAPI: the kernel lists them in the order in
// which they were made, which is that of the queues (package napi).
func (h *Host) napiOf(s Setting) (napi.NAPI, error) {
	q, err := strconv.Atoi(s.Key)
	if err != nil {
		return napi.NAPI{}, err
	}
	l, err := h.links.ByName(s.Device)
	if err != nil {
		return napi.NAPI{}, err
	}
	all, err := h.napis.List(l.Index)
	if err != nil {
		return napi.NAPI{}, err
	}
	if q >= len(all) {
		return napi.NAPI{}, errNoQueue
	}
	return all[q], nil
}

// NAPIValue writes the timers and thread of a NAPI as one value.
func NAPIValue(hold model.Hold, threaded bool) string {
	return fmt.Sprintf("hold %v defer %d threaded %s", hold.Timeout, hold.DeferCount, onOff(threaded))
}

func parseNAPIValue(v string) (hold model.Hold, threaded bool, err error) {
	f := strings.Fields(v)
	if len(f) != 6 || f[0] != "hold" || f[2] != "defer" || f[4] != "threaded" {
		return hold, false, fmt.Errorf("read %q: not the timers of a queue", v)
	}
	if hold.Timeout, err = time.ParseDuration(f[1]); err != nil {
		return hold, false, err
	}
	n, err := strconv.ParseUint(f[3], 10, 32)
	if err != nil {
		return hold, false, err
	}
	hold.DeferCount = uint32(n)
	return hold, f[5] == "on", nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
