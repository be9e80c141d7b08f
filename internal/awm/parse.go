package awm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ccDefault is named because a host's own default may be bbr, which measures
// the path for itself and so answers a hold with a rate of its own.
const ccDefault = "cubic"

// sizeUnits are decimal as in the z/OS papers (20M is 20,000,000 bytes), and
// binary with an i. Largest first, and decimal before binary, so that
// formatSize picks one way to write a number.
var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"G", 1_000_000_000}, {"M", 1_000_000}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"K", 1000}, {"Ki", 1 << 10},
}

// ParseSpecs reads the classes of one run, whose names must differ.
func ParseSpecs(words []string) ([]Spec, error) {
	specs := make([]Spec, 0, len(words))
	for _, w := range words {
		s, err := ParseSpec(w)
		if err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	return specs, checkMix(specs)
}

// checkMix checks what only a whole mix can get wrong.
func checkMix(specs []Spec) error {
	if len(specs) == 0 {
		return fmt.Errorf("no workload is given; name at least one, such as RR1(100/800)")
	}
	if len(specs) > ClassesMax {
		return fmt.Errorf("%d classes are more than the %d that a run may have", len(specs), ClassesMax)
	}
	conns, seen := 0, map[string]bool{}
	for _, s := range specs {
		conns += s.Conns
		if seen[s.Name] {
			return fmt.Errorf("two classes are called %q; tell them apart with name=", s.Name)
		}
		seen[s.Name] = true
	}
	if conns > ConnsMax {
		return fmt.Errorf("%d connections are more than the %d that a run may have", conns, ConnsMax)
	}
	return nil
}

// parser walks a spec once, from left to right.
type parser struct {
	text string
	at   int
}

// ParseSpec reads one class, such as RR1(100/800) or STR1(in):pace=1G. A wrong
// one is a *SpecError.
func ParseSpec(text string) (Spec, error) {
	p := &parser{text: text}
	s, err := p.spec()
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

func (p *parser) errorAt(at int, instead, format string, args ...any) error {
	return &SpecError{Spec: p.text, Column: at + 1, What: fmt.Sprintf(format, args...), Instead: instead}
}

func (p *parser) spec() (Spec, error) {
	s := Spec{Call: callDefault, CC: ccDefault, NoDelay: true}
	if err := p.kind(&s); err != nil {
		return s, err
	}
	if err := p.conns(&s); err != nil {
		return s, err
	}
	if err := p.expect('(', "write "+example(s.Kind)); err != nil {
		return s, err
	}
	if err := p.body(&s); err != nil {
		return s, err
	}
	if err := p.expect(')', "close the brackets: "+example(s.Kind)); err != nil {
		return s, err
	}
	s.Name = s.word()
	if p.at == len(p.text) {
		return s, nil
	}
	if err := p.expect(':', "write options behind a colon: "+example(s.Kind)+":pace=1G"); err != nil {
		return s, err
	}
	return s, p.options(&s)
}

func example(k Kind) string {
	return [...]string{"RR1(100/800)", "CRR8(64/8K)", "STR1(in) or STR1(20M/1)", "FTP1(put/20M)", "PHASE1(100/800,2s;in,1s)"}[k]
}

func (p *parser) kind(s *Spec) error {
	word := p.while(isLetter)
	for k, name := range kindNames {
		if word == name {
			s.Kind = Kind(k)
			return nil
		}
	}
	return p.errorAt(0, "begin with RR, CRR, STR, FTP or PHASE", "%q is not a kind of workload", word)
}

func (p *parser) conns(s *Spec) error {
	at := p.at
	digits := p.while(isDigit)
	if digits == "" {
		return p.errorAt(at, "write "+example(s.Kind), "the number of connections is missing")
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > ConnsMax {
		return p.errorAt(at, fmt.Sprintf("use 1 to %d", ConnsMax), "%s connections are not possible", digits)
	}
	s.Conns = n
	return nil
}

func (p *parser) body(s *Spec) error {
	switch s.Kind {
	case RR, CRR:
		return p.sizes(&s.In, &s.Out, s.Kind)
	case STR:
		if p.at < len(p.text) && isLetter(p.text[p.at]) {
			return p.flow(&s.Flow, true)
		}
		return p.sizes(&s.In, &s.Out, s.Kind)
	case FTP:
		return p.file(s)
	}
	return p.phases(s)
}

func (p *parser) sizes(in, out *int64, k Kind) (err error) {
	if *in, err = p.size("the request"); err != nil {
		return err
	}
	if err = p.expect('/', "write request/reply sizes: "+example(k)); err != nil {
		return err
	}
	*out, err = p.size("the reply")
	return err
}

func (p *parser) flow(f *Flow, acks bool) error {
	at := p.at
	word := p.while(isLetter)
	for i, name := range flowNames {
		if i > 0 && word == name && (acks || Flow(i) != FlowAcks) {
			*f = Flow(i)
			return nil
		}
	}
	instead := "use in, out or both"
	if acks {
		instead = "use in, out, both or acks, or sizes: STR1(20M/1)"
	}
	return p.errorAt(at, instead, "%q is not a direction", word)
}

func (p *parser) file(s *Spec) (err error) {
	at := p.at
	verb := p.while(isLetter)
	if verb != "put" && verb != "get" {
		return p.errorAt(at, "write FTP1(put/20M) or FTP1(get/20M)", "%q is not a transfer", verb)
	}
	if err = p.expect('/', "write FTP1("+verb+"/20M)"); err != nil {
		return err
	}
	if verb == "put" {
		s.In, err = p.size("the file")
	} else {
		s.Out, err = p.size("the file")
	}
	return err
}

func (p *parser) phases(s *Spec) error {
	for {
		at := p.at
		if len(s.Phases) == phasesMax {
			return p.errorAt(at, fmt.Sprintf("use at most %d", phasesMax), "there are too many phases")
		}
		ph, err := p.phase()
		if err != nil {
			return err
		}
		s.Phases = append(s.Phases, ph)
		if p.at < len(p.text) && p.text[p.at] == ';' {
			p.at++
			continue
		}
		if len(s.Phases) < 2 {
			return p.errorAt(p.at, "add another behind a semicolon: "+example(PHASE), "one phase alone never changes")
		}
		return nil
	}
}

func (p *parser) phase() (Phase, error) {
	var ph Phase
	at := p.at
	if at < len(p.text) && isLetter(p.text[at]) {
		if err := p.flow(&ph.Flow, false); err != nil {
			return ph, err
		}
	} else if err := p.sizes(&ph.In, &ph.Out, PHASE); err != nil {
		return ph, err
	}
	if ph.Flow == NoFlow && (ph.In < frameHead || ph.Out < frameHead) {
		return ph, p.errorAt(at, fmt.Sprintf("use sizes of at least %d", frameHead),
			"a phase's messages carry %d bytes of their own", frameHead)
	}
	if err := p.expect(',', "write how long the phase lasts: "+example(PHASE)); err != nil {
		return ph, err
	}
	at = p.at
	text := p.while(func(c byte) bool { return c != ';' && c != ')' })
	d, err := time.ParseDuration(text)
	if err != nil || d < 10*time.Millisecond || d > time.Hour {
		return ph, p.errorAt(at, "use 10ms to 1h, such as 2s", "%q is not how long a phase can last", text)
	}
	ph.For = d
	return ph, nil
}

func (p *parser) options(s *Spec) error {
	seen := map[string]bool{}
	for {
		at := p.at
		key := p.while(isLetter)
		if err := p.expect('=', "write options as name=value, with commas between"); err != nil {
			return err
		}
		if seen[key] {
			return p.errorAt(at, "give it once", "option %q is given twice", key)
		}
		seen[key] = true
		if err := p.option(s, at, key); err != nil {
			return err
		}
		if p.at == len(p.text) {
			return nil
		}
		p.at++ // the comma: an option's value ends nowhere else
	}
}

func (p *parser) option(s *Spec, keyAt int, key string) error {
	at := p.at
	value := p.while(func(c byte) bool { return c != ',' })
	switch key {
	case "name":
		if len(value) < 1 || len(value) > 32 || strings.IndexFunc(value, notNameRune) >= 0 {
			return p.errorAt(at, "use 1 to 32 letters, digits, dots, dashes and underscores", "%q is not a name", value)
		}
		s.Name = value
	case "rate":
		return p.rate(s, keyAt, at, value)
	case "pace":
		return p.number(&s.Pace, at, value, 1000, 1_000_000_000_000, "bits a second")
	case "sndbuf":
		return p.bytes(&s.SendBuf, at, value, 1000, 1<<30)
	case "rcvbuf":
		return p.bytes(&s.RecvBuf, at, value, 1000, 1<<30)
	case "call":
		return p.bytes(&s.Call, at, value, 1, callMax)
	case "cc":
		// TCP_CA_NAME_MAX in linux/tcp.h is 16 with the terminator.
		if len(value) < 1 || len(value) > 15 || strings.IndexFunc(value, notNameRune) >= 0 {
			return p.errorAt(at, "use a name from net.ipv4.tcp_available_congestion_control", "%q is not a congestion control", value)
		}
		s.CC = value
	case "nodelay":
		if value != "on" && value != "off" {
			return p.errorAt(at, "use on or off", "nodelay cannot be %q", value)
		}
		s.NoDelay = value == "on"
	default:
		return p.errorAt(keyAt, "use name, rate, pace, sndbuf, rcvbuf, call, cc or nodelay", "%q is not an option", key)
	}
	return nil
}

func (p *parser) rate(s *Spec, keyAt, at int, value string) error {
	if s.endless() || s.Kind == PHASE || s.Kind == FTP {
		return p.errorAt(keyAt, "use pace= to slow it", "%s has no transactions at a rate", s.word())
	}
	r, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(r) || r < 0.001 || r > rateMax {
		return p.errorAt(at, fmt.Sprintf("use 0.001 to %d transactions a second and connection", rateMax), "%q is not a rate", value)
	}
	s.Rate = r
	return nil
}

func (p *parser) bytes(to *int, at int, value string, least, most int64) error {
	var n int64
	if err := p.number(&n, at, value, least, most, "bytes"); err != nil {
		return err
	}
	*to = int(n)
	return nil
}

func (p *parser) number(to *int64, at int, value string, least, most int64, unit string) error {
	n, ok := parseSize(value)
	if !ok || n < least || n > most {
		return p.errorAt(at, fmt.Sprintf("use %s to %s", formatSize(least), formatSize(most)), "%q is not a number of %s", value, unit)
	}
	*to = n
	return nil
}

// size reads a size that a delimiter ends.
func (p *parser) size(what string) (int64, error) {
	at := p.at
	text := p.while(func(c byte) bool { return isDigit(c) || isLetter(c) || c == '.' || c == '-' })
	n, ok := parseSize(text)
	if !ok || n < 1 || n > SizeMax {
		return 0, p.errorAt(at, "use 1 to 1000G bytes, with K, M, G (decimal) or Ki, Mi, Gi (binary)", "%q is not the size of %s", text, what)
	}
	return n, nil
}

// parseSize reads digits and one suffix of sizeUnits.
func parseSize(text string) (int64, bool) {
	digits := strings.TrimRight(text, "KMGi")
	if digits == "" || strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) >= 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, false
	}
	suffix := text[len(digits):]
	if suffix == "" {
		return n, true
	}
	for _, u := range sizeUnits {
		if u.suffix == suffix && n <= math.MaxInt64/u.factor {
			return n * u.factor, true
		}
	}
	return 0, false
}

func (p *parser) expect(c byte, instead string) error {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return nil
	}
	if p.at == len(p.text) {
		return p.errorAt(p.at, instead, "it ends where %q is expected", c)
	}
	return p.errorAt(p.at, instead, "%q stands where %q is expected", p.text[p.at], c)
}

func (p *parser) while(ok func(byte) bool) string {
	from := p.at
	for p.at < len(p.text) && ok(p.text[p.at]) {
		p.at++
	}
	return p.text[from:p.at]
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

func notNameRune(r rune) bool {
	return !(r < 128 && (isLetter(byte(r)) || isDigit(byte(r)))) && r != '.' && r != '-' && r != '_'
}
