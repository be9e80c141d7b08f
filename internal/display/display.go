// Package display turns a snapshot into the reports an operator knows: DEVLINKS,
// OSAINFO and TNSTATS. It decides how a fact is written and nothing else: it
// reads no clock, no file and no socket (the snapshot's own time is "now"), and
// it leaves gathering facts to the daemon and printing them to cli.
//
// Every report keeps to these rules:
//
//   - The original's fields come first, in the original's order and layout.
//     What it does not have follows under a heading of our own.
//   - A field with no meaning on Linux, or one that was not read, says *NA*
//     (the original's own mark). Nothing is invented to fill a field; Reference
//     says of each field what it is here.
//   - Lines have at most 80 columns of plain ASCII. Names from the host are
//     printed as the host spells them (Linux tells eth0 from ETH0), but whatever
//     is not printable ASCII in them becomes "?", so that a device's name cannot
//     steer the operator's terminal.
package display

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"xlane/internal/model"
)

const (
	// columns is the width of the console that the original's reports are laid
	// out for, and of a terminal that nobody has widened.
	columns = 80

	// na marks what Linux has no meaning for, and what was not read.
	na = "*NA*"

	// DefaultMax is how many connections a report shows when nobody says.
	DefaultMax = 100

	// All as a Filter's Max shows every connection (MAX=*).
	All = -1

	stampLayout = "2006-01-02 15:04:05"
)

// Filter says what part of a snapshot a report is about.
type Filter struct {
	// Device keeps the interfaces of that name (two namespaces may each have
	// one); "" keeps all.
	Device string
	// Max limits the connections listed per interface; All lists every one.
	Max int
}

// maxText writes Max as the operator writes it.
func (f Filter) maxText() string {
	if f.Max == All {
		return "*"
	}
	return strconv.Itoa(f.Max)
}

// ParseMax reads a Filter's Max: a number of connections from 0, or * for all.
func ParseMax(text string) (int, error) {
	if text == "*" {
		return All, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("MAX %q is not a limit; use a number of connections, or * for all", text)
	}
	return n, nil
}

// chosen returns the interfaces that the filter keeps.
func (f Filter) chosen(s model.Snapshot) []model.Interface {
	if f.Device == "" {
		return s.Interfaces
	}
	var kept []model.Interface
	for _, in := range s.Interfaces {
		if in.Device == f.Device {
			kept = append(kept, in)
		}
	}
	return kept
}

// sheet is a report being written. Every line goes through line, which is what
// keeps the promise of 80 columns of ASCII.
type sheet struct {
	text  strings.Builder
	lines int
}

// line writes one line, or several if it is too wide: it is broken at spaces,
// and what is continued is indented by two more columns than the line itself.
func (s *sheet) line(format string, args ...any) {
	text := strings.TrimRight(plain(fmt.Sprintf(format, args...)), " ")
	indent := len(text) - len(strings.TrimLeft(text, " "))
	// A name may begin with many spaces; the continuation must still have room.
	margin := strings.Repeat(" ", min(indent, columns/2)+2)
	for len(text) > columns {
		cut := strings.LastIndexByte(text[:columns+1], ' ')
		if cut <= len(margin) {
			cut = columns // one word that fills the line: nothing to break at
		}
		s.put(strings.TrimRight(text[:cut], " "))
		text = margin + strings.TrimLeft(text[cut:], " ")
	}
	s.put(text)
}

func (s *sheet) put(text string) {
	s.text.WriteString(text)
	s.text.WriteByte('\n')
	s.lines++
}

// at writes cells that begin at fixed columns (from 0). A cell that does not
// leave room for the next pushes it on, two columns apart.
func (s *sheet) at(cells ...cell) {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		if pad := c.column - b.Len(); pad > 0 {
			b.WriteString(strings.Repeat(" ", pad))
		}
		b.WriteString(plain(c.text))
	}
	s.line("%s", b.String())
}

type cell struct {
	column int
	text   string
}

func (s *sheet) String() string { return s.text.String() }

// plain returns text as printable ASCII. The few signs that the project's own
// sentences may hold keep their meaning; all else becomes "?".
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' {
			return r
		}
		return '?'
	}, asciiSigns.Replace(text))
}

var asciiSigns = strings.NewReplacer(
	"\u00b5", "u", "\u03bc", "u", // micro sign, Greek mu
	"\u2192", "->", "\u2264", "<=", "\u2265", ">=",
	"\u2013", "-", "\u2014", "-", "\u2026", "...",
	"\n", " ", "\t", " ",
)

// orNA returns text, or the mark for "not available" when it is empty.
func orNA(text string) string {
	if text == "" {
		return na
	}
	return text
}

func numberOrNA[N int | uint64](n N) string {
	if n <= 0 {
		return na
	}
	return fmt.Sprint(n)
}

func countOrNA(c model.Count) string {
	if !c.Known {
		return na
	}
	return fmt.Sprint(c.N)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return na
	}
	return t.Format(stampLayout)
}

// microseconds writes a duration in us, with the fraction only if it has one.
func microseconds(d time.Duration) string {
	if d%time.Microsecond == 0 {
		return fmt.Sprint(d.Microseconds())
	}
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond))
}

// hardwareAddress writes a MAC as the original does: 12 hex digits, no colons.
func hardwareAddress(mac string) string {
	return orNA(strings.ToUpper(strings.ReplaceAll(mac, ":", "")))
}

// socket writes an address and port as the original does: two dots between
// them. A zone is dropped: it names an interface, which the report already does.
func socket(a netip.AddrPort) string {
	return fmt.Sprintf("%s..%d", a.Addr().WithZone(""), a.Port())
}

// nameOfQueue is RD/n, as TNSTATS and the TRL display number queues.
func nameOfQueue(id model.QueueID) string { return fmt.Sprintf("RD/%d", uint8(id)) }

// hasFamily tells whether an interface has addresses of IPv4 and of IPv6.
func hasFamily(in model.Interface) (v4, v6 bool) {
	for _, a := range in.Addresses {
		if a.Addr().Is4() {
			v4 = true
		} else {
			v6 = true
		}
	}
	return v4, v6
}

// cannot writes what the adapter is unable to do, the same way in each report.
func (s *sheet) cannot(indent int, heading string, in model.Interface) {
	if len(in.Cannot) == 0 {
		return
	}
	margin := strings.Repeat(" ", indent)
	s.line("%s%s", margin, heading)
	for _, sentence := range in.Cannot {
		s.line("%s  %s", margin, sentence)
	}
}
