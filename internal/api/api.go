// Package api is the daemon's socket: who may connect, what may be asked, and
// how an answer or an error travels. It decides limits and access only; what
// the answers hold is decided by whoever implements Source, and how they look
// by display.
//
// The protocol is HTTP over a Unix socket with JSON bodies, one request a
// connection:
//
//	GET /v1/snapshot?device=eth0&max_connections=100
//	GET /v1/version
//	GET /v1/health
//	{"version":1,"result":{…}}  or  {"version":1,"error":{"code":"…","text":"…"}}
//
// HTTP was chosen over JSON lines of our own because net/http already has, kept
// and attacked by many, what a line protocol would have to grow here: framing,
// header limits, deadlines, cancelling a call whose client has gone. And any
// host can ask by hand: curl --unix-socket /run/xlane/xlane.sock http://x/v1/health.
//
// Everything is bounded (see Limits). Access is the socket file's mode: root and
// the group xlane; who can connect can read everything and change nothing.
package api

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"xlane/internal/model"
)

const (
	// Version is the protocol's version: the first part of every path and a
	// field of every answer. It rises when an old client would misunderstand.
	Version = 1

	// DefaultSocket is where the daemon listens unless --socket says otherwise.
	DefaultSocket = "/run/xlane/xlane.sock"

	// DefaultGroup may speak to the daemon, beside root, where it exists.
	DefaultGroup = "xlane"

	// AllConnections as Query.MaxConnections asks for every registered connection.
	AllConnections = -1

	// connectionsMax bounds how many connections an answer holds for each
	// interface, whatever was asked: the default size of the sorter's flow table.
	connectionsMax = 65536

	// deviceMax is the longest name a device can have: IFNAMSIZ-1 (linux/if.h).
	deviceMax = 15
)

// Source answers what clients ask. It is declared here because the server is
// what consumes it; the daemon implements it.
type Source interface {
	// Snapshot returns what is known now. It may be called from several
	// goroutines at once and must return soon after ctx ends. The query is a
	// hint for saving work: the server itself cuts the answer down to it. An
	// error's text reaches the client; an *Error keeps its code.
	Snapshot(ctx context.Context, q Query) (model.Snapshot, error)
}

// Query says what part of a snapshot is wanted.
type Query struct {
	// Device keeps the interfaces of that name; "" keeps all.
	Device string
	// MaxConnections limits the registered connections listed for each
	// interface: 0 lists none, AllConnections every one (at most 65,536).
	MaxConnections int
}

// Code says what kind of error an Error is, for programs.
type Code string

// The codes. A client that meets another treats it as CodeFailed.
const (
	CodeBadRequest  Code = "bad-request"         // the call or its arguments are malformed
	CodeBadVersion  Code = "unsupported-version" // the daemon does not speak that version
	CodeUnknownCall Code = "unknown-call"        // no such call in this version
	CodeNoInterface Code = "no-interface"        // the device is not managed here
	CodeBusy        Code = "busy"                // too many calls at once
	CodeTimeout     Code = "timeout"             // the daemon had no answer in time
	CodeFailed      Code = "failed"              // the call was tried and failed
)

// Error is how an error travels: a code for programs, a text for people.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// VersionInfo is the answer to the version call.
type VersionInfo struct {
	// API is Version; Build the daemon's build; PID its process.
	API   int    `json:"api"`
	Build string `json:"build"`
	PID   int    `json:"pid"`
}

// Health is the answer to the health call: the daemon answers, and this is how
// its interfaces are.
type Health struct {
	// Ready: every interface is READY, and there is at least one.
	Ready      bool              `json:"ready"`
	Interfaces []InterfaceHealth `json:"interfaces"`
}

// InterfaceHealth is one interface's state and, unless READY, the reason.
type InterfaceHealth struct {
	Device string               `json:"device"`
	Netns  string               `json:"netns"`
	State  model.InterfaceState `json:"state"`
	Reason string               `json:"reason"`
}

func healthOf(s model.Snapshot) Health {
	h := Health{Ready: len(s.Interfaces) > 0, Interfaces: []InterfaceHealth{}}
	for _, in := range s.Interfaces {
		h.Ready = h.Ready && in.State == model.StateReady
		h.Interfaces = append(h.Interfaces, InterfaceHealth{in.Device, in.Netns, in.State, in.Reason})
	}
	return h
}

// values writes a query as URL arguments.
func (q Query) values() url.Values {
	v := url.Values{}
	if q.Device != "" {
		v.Set("device", q.Device)
	}
	if q.MaxConnections == AllConnections {
		v.Set("max_connections", "*")
	} else if q.MaxConnections > 0 {
		v.Set("max_connections", strconv.Itoa(q.MaxConnections))
	}
	return v
}

// parseQuery reads what values writes, and refuses what it does not know: an
// argument that is ignored would be an answer to another question.
func parseQuery(raw string) (Query, *Error) {
	v, err := url.ParseQuery(raw)
	if err != nil {
		return Query{}, errorf(CodeBadRequest, "read arguments: %v", err)
	}
	var q Query
	for name, given := range v {
		if len(given) != 1 {
			return Query{}, errorf(CodeBadRequest, "argument %q is given %d times", name, len(given))
		}
		switch value := given[0]; name {
		case "device":
			if value == "" || len(value) > deviceMax {
				return Query{}, errorf(CodeBadRequest, "device is a name of 1 to %d bytes", deviceMax)
			}
			q.Device = value
		case "max_connections":
			n, err := strconv.Atoi(value)
			if value == "*" {
				n, err = AllConnections, nil
			} else if n < 0 {
				err = strconv.ErrRange
			}
			if err != nil {
				return Query{}, errorf(CodeBadRequest, "max_connections %q is neither a number from 0 nor *", value)
			}
			q.MaxConnections = n
		default:
			return Query{}, errorf(CodeBadRequest, "argument %q is not known; use device or max_connections", name)
		}
	}
	return q, nil
}

// cut returns the part of a snapshot that a query asks for.
func (q Query) cut(s model.Snapshot) (model.Snapshot, *Error) {
	limit := q.MaxConnections
	if limit == AllConnections {
		limit = connectionsMax
	}
	var kept []model.Interface
	for _, in := range s.Interfaces {
		if q.Device != "" && q.Device != in.Device {
			continue
		}
		in.Rules.Bulk = in.Rules.Bulk[:min(len(in.Rules.Bulk), limit, connectionsMax)]
		kept = append(kept, in)
	}
	if q.Device != "" && len(kept) == 0 {
		return s, errorf(CodeNoInterface, "interface %q is not managed by this daemon (%s)", q.Device, managed(s))
	}
	s.Interfaces = kept
	return s, nil
}

// managed names what could have been asked for, shortly.
func managed(s model.Snapshot) string {
	const namedMax = 8
	if len(s.Interfaces) == 0 {
		return "it manages none"
	}
	var names []string
	for _, in := range s.Interfaces[:min(len(s.Interfaces), namedMax)] {
		names = append(names, strconv.Quote(in.Device))
	}
	text := "it manages " + strings.Join(names, ", ")
	if more := len(s.Interfaces) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
