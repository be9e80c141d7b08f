package profile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// statementsMax bounds statements and the entries of their lists together: some
// are compared with all before them.
const statementsMax = 10_000

// parser reads tokens as statements. Statements have no terminator: one ends
// where the next statement's name stands (zos.md §1.1). After an error it goes
// on at the next operand, entry or statement, so that one run says everything.
type parser struct {
	tokens []token
	at     int
	msgs   *Messages
	cfg    *Config
	known  knownNames

	statements []statement
	// statement is the name in messages; exclusive the number of the original's
	// message for operands that exclude each other.
	statement string
	exclusive string
	// words are those of the operand tables being read: none of them is taken
	// for a value, so that a missing value is seen where it is missing.
	words []keyword
	// entries and end are those of the block being read.
	entries []entry
	end     keyword
	read    int // statements and entries so far
	// own are the addresses of this host's interfaces, and whose they are.
	own map[netip.Addr]string
	// endOf is the block whose end was looked for last, and endAt where it is.
	endOf *token
	endAt int
}

// statement is one that the language has.
type statement struct {
	word keyword
	// page is its page in docs/reference, without statement- and .md.
	page   string
	effect effect
	// linux says what it does on Linux, or what is not in effect yet.
	linux string
	// exclusive is the original's message for operands that exclude each other.
	exclusive string
	parse     func(*parser)
}

// effect is what an operand or statement does on Linux.
type effect uint8

const (
	inEffect  effect = iota // obeyed
	later                   // checked, not in effect yet
	noMeaning               // Linux has no such thing: accepted with a warning
)

// parse reads all statements.
func (p *parser) parse() {
	for t := p.peek(); t != nil; t = p.peek() {
		p.end, p.entries, p.words = "", nil, nil
		s := p.statementOf(t)
		if s == nil {
			p.stray()
			continue
		}
		p.next()
		p.begin(t, s.word, roleStatement)
		p.statement, p.exclusive = s.word.full(), s.exclusive
		if s.effect == later {
			p.pending(t, p.statement, s.linux)
		}
		if !p.count(t) {
			return
		}
		s.parse(p)
		p.rest()
	}
}

// count reports whether there may be one more statement or entry.
func (p *parser) count(t *token) bool {
	p.read++
	if p.read == statementsMax+1 {
		p.errorf(t, "", fmt.Sprintf("more than %d statements and entries", statementsMax), "split the profile")
	}
	return p.read <= statementsMax
}

func (p *parser) peek() *token {
	if p.at < len(p.tokens) {
		return &p.tokens[p.at]
	}
	return nil
}

func (p *parser) next() *token {
	t := p.peek()
	if t != nil {
		p.at++
	}
	return t
}

// last is the token that was read before this moment; p.at is at least 1.
func (p *parser) last() *token { return &p.tokens[p.at-1] }

// begin notes what a token was taken for.
func (p *parser) begin(t *token, word keyword, r role) { t.role, t.spelled = r, word.full() }

func (p *parser) statementOf(t *token) *statement {
	if t.word == "" {
		return nil
	}
	for i := range p.statements {
		if p.statements[i].word.is(t.word) {
			return &p.statements[i]
		}
	}
	return nil
}

// closed reports whether a token ends what is being read: the file's end, a
// statement's name, the end of the block, or its next entry.
func (p *parser) closed(t *token) bool {
	if t == nil || p.statementOf(t) != nil {
		return true
	}
	return t.word != "" && (p.end != "" && p.end.is(t.word) || p.entryOf(t) != nil)
}

// taken reports whether a token is no value: it ends what is being read or is
// an operand's word.
func (p *parser) taken(t *token) bool {
	if p.closed(t) {
		return true
	}
	return t.word != "" && slices.ContainsFunc(p.words, func(k keyword) bool { return k.is(t.word) })
}

func (p *parser) say(t *token, s Severity, code, what, instead string) {
	if t == nil {
		t = p.last()
	}
	p.msgs.add(Message{Pos: t.pos, Severity: s, Statement: p.statement, What: what, Instead: instead, Code: code, order: t.order})
}

func (p *parser) errorf(t *token, code, what, instead string) { p.say(t, Error, code, what, instead) }
func (p *parser) warnf(t *token, code, what, instead string)  { p.say(t, Warning, code, what, instead) }

// pending notes what is accepted and not in effect yet.
func (p *parser) pending(t *token, what, why string) {
	for i := range p.cfg.Pending {
		if p.cfg.Pending[i].What == what {
			return
		}
	}
	p.cfg.Pending = append(p.cfg.Pending, Pending{Pos: t.pos, What: what, Why: why})
}

// stray reads what stands where a statement should: one error, and on to the
// next statement.
func (p *parser) stray() {
	t := p.next()
	t.role = roleStatement
	p.statement = profileItself
	var names []string
	for _, s := range p.statements {
		names = append(names, s.word.full())
	}
	instead := "begin with a statement's name"
	for _, end := range blockEnds {
		if end.is(t.word) {
			instead = "take it out: no block is open"
		}
	}
	if near := p.guess(t.word, names); near != "" && !strings.HasPrefix(instead, "take") {
		instead = "did you mean " + near + "?"
	}
	if !t.unresolved {
		p.errorf(t, "", fmt.Sprintf("%q is not a statement", t.raw), instead)
	}
	for !p.closed(p.peek()) {
		p.next()
	}
}

// rest reads what a statement or entry has left over: one error for all of it.
func (p *parser) rest(words ...keyword) {
	t := p.peek()
	if p.closed(t) {
		return
	}
	p.unknown(t, "an operand here", words)
	for !p.closed(p.peek()) {
		p.next()
	}
}

// unknown says that a token is not what stands there, and what was meant. words are those
// that could stand there.
func (p *parser) unknown(t *token, what string, words []keyword) {
	if t.unresolved {
		return
	}
	var names []string
	for _, w := range words {
		names = append(names, w.full())
	}
	instead := "take it out"
	const fewWords = 8 // more than a line holds
	if len(names) > 0 && len(names) <= fewWords {
		instead = "use " + listOf(names)
	}
	for _, e := range p.entries {
		names = append(names, e.word.full())
	}
	for _, s := range p.statements {
		names = append(names, s.word.full())
	}
	if p.end != "" {
		names = append(names, p.end.full())
	}
	if near := p.guess(t.word, names); near != "" {
		instead = "did you mean " + near + "?"
	}
	p.errorf(t, "", fmt.Sprintf("%q is not %s", t.raw, what), instead)
}

// guess is nearest, unless the error it is for is not shown any more.
func (p *parser) guess(word string, among []string) string {
	if p.msgs.Errors >= messagesMax {
		return ""
	}
	return nearest(word, among)
}

// entry is one kind of entry of a block.
type entry struct {
	word  keyword
	parse func(*parser)
}

func (p *parser) entryOf(t *token) *entry {
	for i := range p.entries {
		if t.word != "" && p.entries[i].word.is(t.word) {
			return &p.entries[i]
		}
	}
	return nil
}

// block reads the entries of a block up to its end.
func (p *parser) block(end keyword, entries []entry) {
	open, name := p.last(), p.statement
	p.end, p.entries = end, entries
	for {
		p.statement, p.words = name, nil
		t := p.peek()
		if t == nil || p.statementOf(t) != nil && p.entryOf(t) == nil {
			if p.missingEnd(open, t) {
				return
			}
			continue
		}
		if end.is(t.word) {
			p.next()
			p.begin(t, end, roleEnd)
			break
		}
		e := p.entryOf(t)
		if e == nil {
			p.unknown(t, "an entry of "+name, words(entries))
			p.skip()
			continue
		}
		p.next()
		p.begin(t, e.word, roleEntry)
		if !p.count(t) {
			p.at = len(p.tokens)
			return
		}
		p.statement = e.word.full()
		e.parse(p)
		p.rest()
	}
	p.statement, p.end, p.entries = name, "", nil
}

func words(entries []entry) []keyword {
	var out []keyword
	for _, e := range entries {
		out = append(out, e.word)
	}
	return out
}

// missingEnd is called at a statement's name, or the file's end, inside a
// block. The original would take all that follows for operands of the block;
// since nothing of a profile with an error takes effect, the block is ended
// here, so that what follows is checked as what it is. If the block's end is
// still to come the statement is misplaced, and the block goes on after it.
func (p *parser) missingEnd(open, t *token) (over bool) {
	end := p.end
	if t != nil && !p.count(t) {
		p.at = len(p.tokens)
		return true
	}
	if t != nil && p.endAhead(open) {
		p.errorf(t, "", fmt.Sprintf("%s stands inside the block that begins at line %d", t.raw, open.pos.Line), "move it behind "+end.full())
		p.next()
		for t := p.peek(); !p.closed(t); t = p.peek() {
			p.next()
		}
		return false
	}
	p.end, p.entries = "", nil
	p.errorf(open, "", fmt.Sprintf("the block has no %s, and the original would take all that follows as part of it", end.full()), "write "+end.full()+" after its last entry")
	return true
}

// endAhead reports whether the block's end comes before another block like it.
func (p *parser) endAhead(open *token) bool {
	if p.endOf != open {
		p.endOf, p.endAt = open, -1
		p.findEnd(open)
	}
	return p.endAt >= p.at
}

func (p *parser) findEnd(open *token) {
	for i := p.at; i < len(p.tokens); i++ {
		t := &p.tokens[i]
		if t.word == "" {
			continue
		}
		if p.end.is(t.word) {
			p.endAt = i
			return
		}
		if t.word == open.word {
			return
		}
	}
}
