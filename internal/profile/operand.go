package profile

import (
	"fmt"
	"strconv"
	"strings"
)

// operand is one row of a statement's table: how it is written, what it does
// on Linux, how it is read and how it is shown. T is what it changes.
type operand[T any] struct {
	word keyword
	// values says what follows the word, for the reference page.
	values string
	// group names operands that exclude each other; "" is the word alone.
	group  string
	effect effect
	// linux says what it does there, or for noMeaning why it does nothing.
	linux string
	// equals allows WORD=value.
	equals bool
	take   func(*parser, *T)
	// show writes the operand that the value stands for, "" for none. One
	// operand of a group shows for all of it.
	show func(*T) string
}

// operands reads the operands of a table in any order, up to the end of the
// statement or entry.
func operands[T any](p *parser, table []operand[T], c *T) {
	readOperands(p, table, c, true, false)
}

// suboperands reads operands as long as they are of the table.
func suboperands[T any](p *parser, table []operand[T], c *T) {
	readOperands(p, table, c, false, false)
}

// inOrder reads operands that must come in the order of the table.
func inOrder[T any](p *parser, table []operand[T], c *T) {
	readOperands(p, table, c, true, true)
}

func readOperands[T any](p *parser, table []operand[T], c *T, whole, ordered bool) {
	before := len(p.words)
	for i := range table {
		p.words = append(p.words, table[i].word)
	}
	defer func() { p.words = p.words[:before] }()
	seen, furthest := map[string]*token{}, -1
	for {
		t := p.peek()
		if t == nil {
			return
		}
		i := find(table, t)
		if i < 0 && !whole || i < 0 && p.closed(t) {
			return
		}
		if i < 0 {
			p.next()
			p.unknown(t, "an operand here", p.words[before:])
			for !p.taken(p.peek()) {
				p.next()
			}
			continue
		}
		op := &table[i]
		p.next()
		if whole {
			p.begin(t, op.word, roleOperand)
		}
		if head, rest, ok := strings.Cut(t.raw, "="); ok && op.equals && head != "" {
			t.spelled = op.word.full() + "=" + rest
		} else {
			t.spelled = op.word.full()
		}
		p.again(op.group, t, seen)
		if ordered && i < furthest {
			p.errorf(t, "", op.word.full()+" comes too late", "put it before "+table[furthest].word.full())
		}
		furthest = max(furthest, i)
		switch op.effect {
		case noMeaning:
			p.warnf(t, "", fmt.Sprintf("%s has no effect: %s", op.word.full(), op.linux), "it is accepted, and may be left out")
		case later:
			if s := p.statementOf(&token{word: p.statement}); s == nil || s.effect != later {
				p.pending(t, p.statement+" "+op.word.full(), op.linux)
			}
		}
		op.take(p, c)
	}
}

func find[T any](table []operand[T], t *token) int {
	if t.word == "" {
		return -1
	}
	for i := range table {
		if table[i].word.is(t.word) {
			return i
		}
		if head, _, ok := strings.Cut(t.word, "="); ok && table[i].equals && table[i].word.is(head) {
			return i
		}
	}
	return -1
}

// again says that an operand is there twice, or beside one it excludes.
func (p *parser) again(group string, t *token, seen map[string]*token) {
	if group == "" {
		group = t.spelled
	}
	first := seen[group]
	seen[group] = t
	switch {
	case first == nil:
	case first.spelled == t.spelled:
		p.errorf(t, "", fmt.Sprintf("%s is written twice, first at line %d", t.spelled, first.pos.Line), "take one out")
	default:
		p.errorf(t, p.exclusive, fmt.Sprintf("%s and %s (line %d) exclude each other", t.spelled, first.spelled, first.pos.Line), "take one out")
	}
}

// flag is an operand and its opposite. One of the words may be "" when the
// language has none; the default is what the field holds before.
func flag[T any](on, off keyword, field func(*T) *bool, e effect, linux string) []operand[T] {
	set := func(v bool) func(*parser, *T) {
		return func(_ *parser, c *T) { *field(c) = v }
	}
	group := on.full() + "/" + off.full()
	var out []operand[T]
	if on != "" {
		out = append(out, operand[T]{word: on, group: group, effect: e, linux: linux, take: set(true), show: func(c *T) string {
			if *field(c) {
				return on.full()
			}
			return off.full()
		}})
	}
	if off != "" {
		o := operand[T]{word: off, group: group, linux: "the opposite", take: set(false)}
		if on == "" {
			o.linux, o.effect, o.show = linux, e, func(c *T) string {
				if !*field(c) {
					return off.full()
				}
				return ""
			}
		}
		out = append(out, o)
	}
	return out
}

// number is an operand with a number; a zero that is not allowed means "not
// written" and is not shown.
func number[T any](word keyword, lo, hi uint64, unit string, field func(*T) *uint32, e effect, linux string) []operand[T] {
	return []operand[T]{{word: word, values: ranged(lo, hi, unit), effect: e, linux: linux,
		take: func(p *parser, c *T) {
			if n, ok := p.number(word.full(), lo, hi, unit); ok {
				*field(c) = n
			}
		},
		show: func(c *T) string {
			if n := *field(c); n != 0 || lo == 0 {
				return word.full() + " " + strconv.FormatUint(uint64(n), 10)
			}
			return ""
		}}}
}

// bytes is an operand with a size in bytes.
func bytes[T any](word keyword, lo, hi uint64, field func(*T) *uint32, e effect, linux string) []operand[T] {
	return []operand[T]{{word: word, values: sizeText(lo) + " to " + sizeText(hi) + ", bytes or with K or M", effect: e, linux: linux,
		take: func(p *parser, c *T) {
			if n, ok := p.size(word.full(), lo, hi); ok {
				*field(c) = n
			}
		},
		show: func(c *T) string { return word.full() + " " + sizeText(uint64(*field(c))) }}}
}

// choice is an operand with one of several words.
func choice[T any](word keyword, field func(*T) *string, e effect, linux string, among ...keyword) []operand[T] {
	var names []string
	for _, k := range among {
		names = append(names, string(k))
	}
	return []operand[T]{{word: word, values: strings.Join(names, ", "), effect: e, linux: linux,
		take: func(p *parser, c *T) {
			if w, ok := p.oneOf(word.full(), among...); ok {
				*field(c) = w
			}
		},
		show: func(c *T) string { return word.full() + " " + *field(c) }}}
}

// named is an operand with a name of the original's kind.
func named[T any](word keyword, max int, field func(*T) *string, e effect, linux string) []operand[T] {
	return []operand[T]{{word: word, values: fmt.Sprintf("a name of 1 to %d characters", max), effect: e, linux: linux,
		take: func(p *parser, c *T) {
			if n, ok := p.name(word.full(), max); ok {
				*field(c) = n
			}
		},
		show: func(c *T) string { return withWord(word, *field(c)) }}}
}

func withWord(word keyword, value string) string {
	if value == "" {
		return ""
	}
	return word.full() + " " + plain(value)
}

// shown writes the operands that a value stands for, one a line. Those without
// a meaning on Linux are left out where they are as in preset.
func shown[T any](table []operand[T], c, preset *T) []string {
	var out []string
	for i := range table {
		op := &table[i]
		if op.show == nil {
			continue
		}
		if s := op.show(c); s != "" && (op.effect != noMeaning || s != op.show(preset)) {
			out = append(out, s)
		}
	}
	return out
}
