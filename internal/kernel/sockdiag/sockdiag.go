// Package sockdiag lists the TCP sockets of a namespace with what the kernel
// knows of each connection. Which of them matter is decided by the caller.
package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/nlsock"
)

// State is a TCP state, numbered as in include/net/tcp_states.h.
type State uint8

// The states.
const (
	Established State = iota + 1
	SynSent
	SynRecv
	FinWait1
	FinWait2
	TimeWait
	Close
	CloseWait
	LastAck
	Listen
	Closing
	NewSynRecv
)

var stateNames = [...]string{
	"", "ESTABLISHED", "SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT",
	"CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING", "SYN-RECEIVED",
}

// String returns the state's name in RFC 9293.
func (s State) String() string {
	if s > 0 && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("STATE-%d", uint8(s))
}

// States is a set of states to ask for.
type States uint32

// AllStates asks for every socket.
const AllStates States = ^States(0)

// In returns the set of the given states.
func In(states ...State) States {
	var s States
	for _, one := range states {
		s |= 1 << one
	}
	return s
}

// Socket is one TCP socket.
type Socket struct {
	// Local and Remote are as the socket has them: an IPv6 socket that carries
	// IPv4 has IPv4-mapped addresses.
	Local, Remote netip.AddrPort
	State         State
	// Cookie tells sockets apart for the life of the host; the same number as
	// bpf_get_socket_cookie returns.
	Cookie uint64
	// Ifindex is the device that the socket is bound to, or zero.
	Ifindex int
	UID     uint32
	Inode   uint32
	// RxQueue is the bytes that the application has not read, TxQueue those
	// not yet acknowledged by the peer. For a listener they are the length
	// and the limit of its queue of connections.
	RxQueue, TxQueue uint32
	// Info is the zero value where the kernel gave none (TIME-WAIT).
	Info Info
}

// Info is the part of struct tcp_info (include/uapi/linux/tcp.h) in use here.
type Info struct {
	BytesReceived, BytesAcked, BytesSent uint64
	SegmentsIn, SegmentsOut              uint32
	DataSegmentsIn, DataSegmentsOut      uint32
	RTT, RTTVar, MinRTT                  time.Duration
	// RcvRTT is the receiver's own estimate, zero until it has one.
	RcvRTT time.Duration
	// RcvSpace is the receive window's autotuning, in bytes.
	RcvSpace uint32
	// Retransmits counts segments sent again; OutOfOrder those that arrived
	// out of order.
	Retransmits uint32
	OutOfOrder  uint32
	SendCwnd    uint32 // segments
	SendMSS     uint32 // bytes
	RcvMSS      uint32 // bytes
	// LastDataSent and LastDataReceived are how long ago, in steps of 1 ms.
	LastDataSent, LastDataReceived time.Duration
}

// inet_diag's numbers: include/uapi/linux/inet_diag.h.
const (
	inetDiagInfo     = 2
	requestV2Bytes   = 56 // struct inet_diag_req_v2
	diagMessageBytes = 72 // struct inet_diag_msg
)

// ErrStop ends a listing early when the callback returns it; TCP then returns
// nil.
var ErrStop = errors.New("stop listing")

// TCP calls each for every TCP socket of the namespace in one of the states,
// IPv4 first, and stops at the first error. Sockets are handed over as the
// kernel sends them, so memory does not grow with their number; each socket is
// seen as it was at its turn, not all at one moment.
func TCP(ns *netns.Handle, states States, each func(Socket) error) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dump(ns, family, states, each)
		if errors.Is(err, ErrStop) {
			return nil
		}
		if errors.Is(err, unix.ENOENT) && family == unix.AF_INET6 {
			// The kernel runs without IPv6.
			continue
		}
		if err != nil {
			return fmt.Errorf("list TCP sockets of namespace %s: %w", ns, err)
		}
	}
	return nil
}

func dump(ns *netns.Handle, family uint8, states States, each func(Socket) error) error {
	// A socket of its own: an early end leaves the rest of the dump behind.
	c, err := nlsock.DialDump(ns, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer c.Close()
	request := make([]byte, requestV2Bytes)
	request[0], request[1], request[2] = family, unix.IPPROTO_TCP, 1<<(inetDiagInfo-1)
	binary.NativeEndian.PutUint32(request[4:], uint32(states))
	if _, err := c.Send(netlink.Message{
		Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump},
		Data:   request,
	}); err != nil {
		return nlsock.Explain(err)
	}
	for m, err := range c.ReceiveIter() {
		if err != nil {
			return nlsock.Explain(err)
		}
		s, err := parseSocket(m.Data)
		if err != nil {
			return err
		}
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}

// parseSocket reads struct inet_diag_msg and the attributes after it.
func parseSocket(b []byte) (Socket, error) {
	if len(b) < diagMessageBytes {
		return Socket{}, fmt.Errorf("decode socket: %d bytes are too short", len(b))
	}
	host := binary.NativeEndian
	s := Socket{
		State:   State(b[1]),
		Local:   netip.AddrPortFrom(address(b[0], b[8:24]), binary.BigEndian.Uint16(b[4:])),
		Remote:  netip.AddrPortFrom(address(b[0], b[24:40]), binary.BigEndian.Uint16(b[6:])),
		Ifindex: int(host.Uint32(b[40:])),
		// Two words, the lower first, whatever the byte order
		// (sock_diag_save_cookie).
		Cookie:  uint64(host.Uint32(b[44:])) | uint64(host.Uint32(b[48:]))<<32,
		RxQueue: host.Uint32(b[56:]),
		TxQueue: host.Uint32(b[60:]),
		UID:     host.Uint32(b[64:]),
		Inode:   host.Uint32(b[68:]),
	}
	ad, err := netlink.NewAttributeDecoder(b[diagMessageBytes:])
	if err != nil {
		return Socket{}, fmt.Errorf("decode socket: %w", err)
	}
	for ad.Next() {
		if ad.Type() == inetDiagInfo {
			s.Info = parseInfo(ad.Bytes())
		}
	}
	if err := ad.Err(); err != nil {
		return Socket{}, fmt.Errorf("decode socket: %w", err)
	}
	return s, nil
}

func address(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b[:16]))
}

// parseInfo reads as much of struct tcp_info as the kernel sent: it only ever
// grows at its end.
func parseInfo(b []byte) Info {
	var raw unix.TCPInfo
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&raw)), unsafe.Sizeof(raw)), b)
	micros := func(v uint32) time.Duration { return time.Duration(v) * time.Microsecond }
	millis := func(v uint32) time.Duration { return time.Duration(v) * time.Millisecond }
	return Info{
		BytesReceived: raw.Bytes_received, BytesAcked: raw.Bytes_acked, BytesSent: raw.Bytes_sent,
		SegmentsIn: raw.Segs_in, SegmentsOut: raw.Segs_out,
		DataSegmentsIn: raw.Data_segs_in, DataSegmentsOut: raw.Data_segs_out,
		RTT: micros(raw.Rtt), RTTVar: micros(raw.Rttvar), MinRTT: micros(raw.Min_rtt),
		RcvRTT: micros(raw.Rcv_rtt), RcvSpace: raw.Rcv_space,
		Retransmits: raw.Total_retrans, OutOfOrder: raw.Rcv_ooopack,
		SendCwnd: raw.Snd_cwnd, SendMSS: raw.Snd_mss, RcvMSS: raw.Rcv_mss,
		LastDataSent: millis(raw.Last_data_sent), LastDataReceived: millis(raw.Last_data_recv),
	}
}
