package profile

import (
	"fmt"
	"slices"
	"strings"
)

// Pos is where something is written. Line and Column count from 1; a column
// is a character, not a byte.
type Pos struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String returns file:line:column, which terminals and editors can follow.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Severity says whether a message keeps a profile from taking effect.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Message is one thing said about a profile.
type Message struct {
	Pos
	Severity Severity `json:"severity"`
	// Statement is the statement it is about, or PROFILE for the file itself.
	Statement string `json:"statement"`
	// What is wrong, and what to do Instead.
	What    string `json:"what"`
	Instead string `json:"instead"`
	// Code is the number of the original's message for the same mistake; "" if
	// none is known.
	Code string `json:"code,omitempty"`

	order int // the token it is about, so that messages come in reading order
}

// String returns file:line:col: severity: STATEMENT: what; what instead (code).
func (m Message) String() string {
	s := fmt.Sprintf("%v: %s: %s: %s; %s", m.Pos, m.Severity, m.Statement, m.What, m.Instead)
	if m.Code != "" {
		s += " (" + m.Code + ")"
	}
	return s
}

// messagesMax bounds what is shown of each severity: beyond it a reader
// learns nothing new.
const messagesMax = 100

// Messages is everything said about a profile, in reading order.
type Messages struct {
	// List holds at most 100 errors and 100 warnings.
	List []Message `json:"messages"`
	// Errors and Warnings count all of them, shown or not.
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
}

func (ms *Messages) add(m Message) {
	count := &ms.Errors
	if m.Severity == Warning {
		count = &ms.Warnings
	}
	if *count++; *count <= messagesMax {
		ms.List = append(ms.List, m)
	}
}

func (ms *Messages) sort() {
	slices.SortStableFunc(ms.List, func(a, b Message) int { return a.order - b.order })
}

// String returns one message a line, and a last line that counts those left out.
func (ms *Messages) String() string {
	var b strings.Builder
	for _, m := range ms.List {
		b.WriteString(m.String())
		b.WriteByte('\n')
	}
	if hidden := ms.Errors + ms.Warnings - len(ms.List); hidden > 0 {
		fmt.Fprintf(&b, "%d more messages are not shown\n", hidden)
	}
	return b.String()
}
