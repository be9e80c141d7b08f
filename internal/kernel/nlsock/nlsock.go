// Package nlsock opens netlink and generic netlink sockets inside a namespace,
// asks the kernel, and words its refusals. It knows no message's meaning; that
// is left to the packages that ask.
package nlsock

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
)

// Error is the kernel's refusal: its error number, and the sentence that the
// kernel added (the extended acknowledgement), which may be empty.
type Error struct {
	Errno syscall.Errno
	Text  string
}

// Error gives both in the kernel's words.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Errno.Error()
	}
	return e.Errno.Error() + " (" + e.Text + ")"
}

// Unwrap lets errors.Is find the error number.
func (e *Error) Unwrap() error { return e.Errno }

// Explain turns a netlink library's error into an Error if the kernel sent it,
// and returns any other error as it is.
func Explain(err error) error {
	var op *netlink.OpError
	var errno syscall.Errno
	if errors.As(err, &op) && errors.As(op.Err, &errno) {
		return &Error{Errno: errno, Text: op.Message}
	}
	return err
}

// Dial opens a socket of a netlink protocol (NETLINK_ROUTE and the like) in
// the namespace, with extended acknowledgements and strict checking of
// requests. The socket stays in its namespace wherever it is used, and does
// not keep the namespace alive.
func Dial(ns *netns.Handle, protocol int) (*netlink.Conn, error) {
	return dial(ns, protocol, &netlink.Config{Strict: true})
}

// DialDump is Dial for long dumps: each receive takes one datagram into a
// buffer that is used again, so that memory does not grow with the answer.
func DialDump(ns *netns.Handle, protocol int) (*netlink.Conn, error) {
	// 32 KiB is the largest skb that netlink_dump fills (SKB_WITH_OVERHEAD(32768)
	// in net/netlink/af_netlink.c).
	return dial(ns, protocol, &netlink.Config{Strict: true, MessageBufferSize: 32 << 10})
}

func dial(ns *netns.Handle, protocol int, config *netlink.Config) (*netlink.Conn, error) {
	var c *netlink.Conn
	err := ns.Do(func() error {
		var err error
		c, err = netlink.Dial(protocol, config)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket in namespace %s: %w", ns, err)
	}
	return c, nil
}

// Family is a generic netlink family, resolved, with a socket in a namespace.
// It may be used from several goroutines; their requests take turns.
type Family struct {
	conn   *genetlink.Conn
	family genetlink.Family
}

// DialFamily opens a socket in the namespace and resolves a family by name.
// The error wraps ENOENT when the kernel does not have the family.
func DialFamily(ns *netns.Handle, name string) (*Family, error) {
	c, err := Dial(ns, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	g := genetlink.NewConn(c)
	f, err := g.GetFamily(name)
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("resolve generic netlink family %q: %w", name, Explain(err))
	}
	return &Family{conn: g, family: f}, nil
}

// Ask sends one request and returns the attributes of each reply, in order.
// Dump asks for all there is, Acknowledge for a yes or no to a change. The
// error is an *Error when the kernel refused.
func (f *Family) Ask(command uint8, flags netlink.HeaderFlags, attrs func(*netlink.AttributeEncoder)) ([][]byte, error) {
	ae := netlink.NewAttributeEncoder()
	attrs(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	replies, err := f.conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: command, Version: f.family.Version},
		Data:   data,
	}, f.family.ID, netlink.Request|flags)
	if err != nil {
		return nil, Explain(err)
	}
	if flags&netlink.Acknowledge != 0 {
		// What came is the acknowledgement itself.
		return nil, nil
	}
	payloads := make([][]byte, len(replies))
	for i, r := range replies {
		payloads[i] = r.Data
	}
	return payloads, nil
}

// Group returns the number of one of the family's multicast groups, to be
// joined by a socket of its own.
func (f *Family) Group(name string) (uint32, error) {
	for _, g := range f.family.Groups {
		if g.Name == name {
			return g.ID, nil
		}
	}
	return 0, fmt.Errorf("find group %q of generic netlink family %q: no such group", name, f.family.Name)
}

// Close closes the socket.
func (f *Family) Close() error { return f.conn.Close() }
