package profile

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// value reads the next token as the value of an operand. want says, for the
// error, what it could be.
func (p *parser) value(what, want string) (*token, bool) {
	t := p.peek()
	if p.taken(t) {
		p.errorf(nil, "", what+" has no value", "write "+want+" after it")
		return nil, false
	}
	return p.next(), !t.unresolved
}

// wrong says that a value is not allowed.
func (p *parser) wrong(t *token, what, instead string) {
	if !t.unresolved {
		p.errorf(t, "", fmt.Sprintf("%s %s is not allowed", what, t.raw), instead)
	}
}

// ranged is a range of whole numbers with their unit.
func ranged(lo, hi uint64, unit string) string {
	s := fmt.Sprintf("%d to %d", lo, hi)
	if unit != "" {
		s += " " + unit
	}
	return s
}

// number reads a decimal number between lo and hi.
func (p *parser) number(what string, lo, hi uint64, unit string) (uint32, bool) {
	t, ok := p.value(what, ranged(lo, hi, unit))
	if !ok {
		return 0, false
	}
	n, ok := decimal(t)
	if !ok || n < lo || n > hi {
		p.wrong(t, what, "use "+ranged(lo, hi, unit))
		return 0, false
	}
	return uint32(n), true
}

// optionalNumber reads a number if one comes next.
func (p *parser) optionalNumber(what string, lo, hi uint64, unit string) (n uint32, given bool) {
	t := p.peek()
	if t == nil || t.word == "" || t.word[0] < '0' || t.word[0] > '9' {
		return 0, false
	}
	return p.number(what, lo, hi, unit)
}

func decimal(t *token) (uint64, bool) {
	if t.quoted || t.text == "" || t.text[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseUint(t.text, 10, 32)
	return n, err == nil
}

// size reads bytes, with K or M for 1024 and 1048576 of them.
func (p *parser) size(what string, lo, hi uint64) (uint32, bool) {
	want := fmt.Sprintf("%s to %s, in bytes or with K or M", sizeText(lo), sizeText(hi))
	t, ok := p.value(what, want)
	if !ok {
		return 0, false
	}
	digits, unit := t.word, uint64(1)
	if d, k := strings.CutSuffix(digits, "K"); k {
		digits, unit = d, 1<<10
	} else if d, m := strings.CutSuffix(digits, "M"); m {
		digits, unit = d, 1<<20
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if n *= unit; err != nil || n < lo || n > hi {
		p.wrong(t, what, "use "+want)
		return 0, false
	}
	t.spelled = t.word
	return uint32(n), true
}

// sizeText writes bytes as size reads them, in the largest unit that is exact.
func sizeText(n uint64) string {
	switch {
	case n != 0 && n%(1<<20) == 0:
		return strconv.FormatUint(n>>20, 10) + "M"
	case n != 0 && n%(1<<10) == 0:
		return strconv.FormatUint(n>>10, 10) + "K"
	}
	return strconv.FormatUint(n, 10)
}

// optional reads the next token if it is one of the words, and returns that
// word in full, or "".
func (p *parser) optional(among ...keyword) string {
	t := p.peek()
	if t == nil || t.word == "" {
		return ""
	}
	for _, k := range among {
		if k.is(t.word) {
			p.next()
			t.spelled = k.full()
			return t.spelled
		}
	}
	return ""
}

// oneOf reads a value that is one of the words.
func (p *parser) oneOf(what string, among ...keyword) (string, bool) {
	if w := p.optional(among...); w != "" {
		return w, true
	}
	names := make([]string, len(among))
	for i, k := range among {
		names[i] = k.full()
	}
	if t := p.peek(); isAddress(t) && !t.unresolved {
		p.errorf(nil, "", what+" has no value", "write "+listOf(names)+" after it")
		return "", false
	}
	t, ok := p.value(what, listOf(names))
	if !ok {
		return "", false
	}
	instead := "use " + listOf(names)
	if near := p.guess(t.word, names); near != "" {
		instead = "did you mean " + near + "?"
	}
	p.wrong(t, what, instead)
	return "", false
}

// name reads a name of the original's kind: folded, 1 to max letters.
func (p *parser) name(what string, max int) (string, bool) {
	t, ok := p.value(what, fmt.Sprintf("a name of 1 to %d characters", max))
	if t != nil && t.unresolved {
		return fold(t.raw), true // a name of its own, so that what refers to it finds it
	}
	if !ok {
		return "", false
	}
	n := fold(t.text)
	if len(n) == 0 || len(n) > max || strings.ContainsAny(n, " \t/:\";&") {
		p.wrong(t, what, fmt.Sprintf("use 1 to %d characters, without blanks and /:\";&", max))
		return "", false
	}
	if !t.quoted {
		t.spelled = n
	}
	return n, true
}

// asWritten reads a value whose case matters.
func (p *parser) asWritten(what, want string, max int) (string, bool) {
	t, ok := p.value(what, want)
	if !ok {
		return "", false
	}
	if t.text == "" || len(t.text) > max {
		p.wrong(t, what, fmt.Sprintf("use %s, 1 to %d characters", want, max))
		return "", false
	}
	return t.text, true
}

// version is the IP version that an operand takes.
type version uint8

const (
	anyVersion version = 0
	v4         version = 4
	v6         version = 6
)

func (v version) of(a netip.Addr) bool {
	return v == anyVersion || (v == v4) == a.Is4()
}

func (v version) String() string {
	switch v {
	case v4:
		return "an IPv4 address"
	case v6:
		return "an IPv6 address"
	}
	return "an IP address"
}

// isAddress reports whether a token looks like an address rather than a word.
func isAddress(t *token) bool {
	if t == nil || t.word == "" {
		return false
	}
	return t.unresolved || strings.Contains(t.word, ":") || strings.Contains(t.word, ".") && t.word[0] >= '0' && t.word[0] <= '9'
}

// address reads one address without a prefix length.
func (p *parser) address(what string, v version) (netip.Addr, bool) {
	t, ok := p.value(what, v.String())
	if !ok {
		return netip.Addr{}, false
	}
	a, err := parseAddr(t.text)
	if err != nil || !v.of(a) {
		p.wrong(t, what, wantedAddress(t.text, v))
		return netip.Addr{}, false
	}
	return a, true
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && (a.Zone() != "" || a.Is4In6()) {
		return a, fmt.Errorf("%s has a zone or is IPv4 within IPv6", s)
	}
	return a, err
}

func wantedAddress(s string, v version) string {
	for _, octet := range strings.Split(s, ".") {
		if len(octet) > 1 && octet[0] == '0' {
			return "write its numbers without leading zeros"
		}
	}
	return "use " + v.String()
}

// prefixed reads a, a/n, or for IPv4 a and a mask, the forms of IPADDR. bits is
// -1 when neither length nor mask is given.
func (p *parser) prefixed(what string, v version) (a netip.Addr, bits int, ok bool) {
	t, ok := p.value(what, v.String())
	if !ok {
		return a, 0, false
	}
	text, length, hasLength := strings.Cut(t.text, "/")
	a, err := parseAddr(text)
	if err != nil || !v.of(a) {
		p.wrong(t, what, wantedAddress(text, v))
		p.optionalMask()
		return a, 0, false
	}
	if hasLength {
		n, err := strconv.ParseUint(length, 10, 8)
		if err != nil || int(n) > a.BitLen() {
			p.wrong(t, what, fmt.Sprintf("use a prefix length of 0 to %d", a.BitLen()))
			return a, 0, false
		}
		return a, int(n), true
	}
	if a.Is4() {
		return p.masked(what, a)
	}
	return a, -1, true
}

func (p *parser) masked(what string, a netip.Addr) (netip.Addr, int, bool) {
	t, bits, given := p.optionalMask()
	switch {
	case !given:
		return a, -1, true
	case bits < 0:
		p.wrong(t, what+" mask", "use a mask whose ones are all on the left, such as 255.255.255.0")
		return a, 0, false
	}
	return a, bits, true
}

// optionalMask reads a subnet mask if one comes next; bits is -1 for an address
// that is none.
func (p *parser) optionalMask() (t *token, bits int, given bool) {
	t = p.peek()
	if !isAddress(t) || t.unresolved || strings.Contains(t.word, "/") {
		return nil, 0, false
	}
	m, err := parseAddr(t.text)
	if err != nil || !m.Is4() {
		return nil, 0, false
	}
	p.next()
	return t, maskBits(m), true
}

// maskBits is the prefix length that a mask stands for, or -1.
func maskBits(m netip.Addr) int {
	b := m.As4()
	word := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	bits := 0
	for bits < 32 && word&(1<<(31-bits)) != 0 {
		bits++
	}
	if word<<bits != 0 {
		return -1
	}
	return bits
}

// mask reads a subnet mask.
func (p *parser) mask(what string) (int, bool) {
	t, ok := p.value(what, "a subnet mask")
	if !ok {
		return 0, false
	}
	m, err := parseAddr(t.text)
	if err == nil && m.Is4() {
		if bits := maskBits(m); bits >= 0 {
			return bits, true
		}
	}
	p.wrong(t, what, "use a mask whose ones are all on the left, such as 255.255.255.0")
	return 0, false
}
