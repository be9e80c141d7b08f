package awm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind is what the connections of a class do.
type Kind uint8

// The kinds of workload, named as in the z/OS performance studies.
const (
	// RR exchanges requests and replies on persistent connections, with no
	// think time.
	RR Kind = iota
	// CRR connects, exchanges one request and reply, and closes.
	CRR
	// STR streams.
	STR
	// FTP puts or gets files: a control connection, and a data connection for
	// each file.
	FTP
	// PHASE cycles between interactive and streaming on one connection.
	PHASE
)

var kindNames = [...]string{"RR", "CRR", "STR", "FTP", "PHASE"}

// String returns the word that begins a spec of this kind.
func (k Kind) String() string { return kindNames[k] }

// Flow is the direction of an endless stream, as the server sees it.
type Flow uint8

// The flows. NoFlow means that sizes, not a direction, describe the work.
const (
	NoFlow Flow = iota
	// FlowIn streams from the client to the server.
	FlowIn
	// FlowOut streams from the server to the client.
	FlowOut
	// FlowBoth streams in both directions at once.
	FlowBoth
	// FlowAcks is FlowIn, and the server sends ackBytes for each ackEvery
	// bytes, for which the client does not wait (as rsync and scp do).
	FlowAcks
)

var flowNames = [...]string{"", "in", "out", "both", "acks"}

// String returns the word as it is written in a spec.
func (f Flow) String() string { return flowNames[f] }

// A stream with FlowAcks: what OpenSSH's scp and rsync look like from the
// receiver's side, a window update of some 40 bytes for every 32 KiB packet.
const (
	ackBytes = 40
	ackEvery = 32 * 1024
)

// Limits of a spec. ConnsMax and ThreadsMax hold for a whole run as well.
const (
	// ConnsMax is the most connections of a class, of a run, and (unless it is
	// told otherwise) of a server.
	ConnsMax = 10000
	// ClassesMax is the most classes of a run.
	ClassesMax = 32
	// SizeMax is the largest request, reply or file, in bytes (1 TB).
	SizeMax = 1_000_000_000_000
	// callMax is the largest read or write call; the pattern block is made so
	// that this much of it is contiguous from anywhere.
	callMax     = 1 << 20
	callDefault = 64 * 1024
	phasesMax   = 16
	rateMax     = 1_000_000
)

// Phase is one part of a PHASE connection's cycle: interactive when Flow is
// NoFlow, else a stream in that direction.
type Phase struct {
	In, Out int64
	Flow    Flow
	For     time.Duration
}

// Spec is one class of a mix. ParseSpec makes it; a Spec that was not parsed
// must keep the same limits.
type Spec struct {
	Kind  Kind
	Conns int
	// In and Out are the bytes of a request (towards the server) and of a
	// reply. For FTP one of them is the file's size and the other 0. Both are 0
	// where Flow or Phases say what is done.
	In, Out int64
	Flow    Flow
	Phases  []Phase

	// Name is what reports call the class; by default the spec's first word.
	Name string
	// Rate, in transactions a second and connection, makes an open loop; 0 is
	// a closed one.
	Rate float64
	// Pace limits the class to so many bits a second over all its
	// connections, in each direction that it sends in; 0 is no limit.
	Pace int64
	// SendBuf and RecvBuf are SO_SNDBUF and SO_RCVBUF in bytes, as given to the
	// kernel (which doubles them); 0 leaves them to the kernel.
	SendBuf, RecvBuf int
	// Call is the most bytes that one read or write call moves.
	Call int
	// CC is the congestion control of both ends.
	CC string
	// NoDelay is TCP_NODELAY of both ends.
	NoDelay bool
}

// SpecError says where a spec is wrong and what to write instead.
type SpecError struct {
	Spec    string
	Column  int // of the first character that is wrong, from 1
	What    string
	Instead string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("workload %q: column %d: %s; %s", e.Spec, e.Column, e.What, e.Instead)
}

// endless reports whether the class has no transactions to count.
func (s Spec) endless() bool { return s.Flow != NoFlow }

// word returns the spec without its options.
func (s Spec) word() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d(", s.Kind, s.Conns)
	switch {
	case s.Kind == PHASE:
		for i, p := range s.Phases {
			if i > 0 {
				b.WriteByte(';')
			}
			if p.Flow != NoFlow {
				fmt.Fprintf(&b, "%s,%s", p.Flow, p.For)
			} else {
				fmt.Fprintf(&b, "%s/%s,%s", formatSize(p.In), formatSize(p.Out), p.For)
			}
		}
	case s.Kind == FTP && s.In > 0:
		b.WriteString("put/" + formatSize(s.In))
	case s.Kind == FTP:
		b.WriteString("get/" + formatSize(s.Out))
	case s.Flow != NoFlow:
		b.WriteString(s.Flow.String())
	default:
		b.WriteString(formatSize(s.In) + "/" + formatSize(s.Out))
	}
	b.WriteByte(')')
	return b.String()
}

// String writes the spec so that ParseSpec reads the same Spec back.
func (s Spec) String() string {
	var opts []string
	if s.Name != s.word() {
		opts = append(opts, "name="+s.Name)
	}
	if s.Rate != 0 {
		opts = append(opts, "rate="+strconv.FormatFloat(s.Rate, 'f', -1, 64))
	}
	if s.Pace != 0 {
		opts = append(opts, "pace="+formatSize(s.Pace))
	}
	if s.SendBuf != 0 {
		opts = append(opts, "sndbuf="+formatSize(int64(s.SendBuf)))
	}
	if s.RecvBuf != 0 {
		opts = append(opts, "rcvbuf="+formatSize(int64(s.RecvBuf)))
	}
	if s.Call != callDefault {
		opts = append(opts, "call="+formatSize(int64(s.Call)))
	}
	if s.CC != ccDefault {
		opts = append(opts, "cc="+s.CC)
	}
	if !s.NoDelay {
		opts = append(opts, "nodelay=off")
	}
	if len(opts) == 0 {
		return s.word()
	}
	return s.word() + ":" + strings.Join(opts, ",")
}

// formatSize writes a number with the largest suffix that loses nothing.
func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
