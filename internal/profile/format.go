package profile

import (
	"strings"
	"unicode/utf8"
)

// Layout of a formatted profile.
const (
	formatWidth  = 72 // what 80 columns show with a line number before it
	formatIndent = 2
)

// Format returns a profile in its one layout: statements at the left, in
// capitals and without abbreviations, what fits on a line there, otherwise an
// operand or entry a line. Comments keep their places; symbols and INCLUDE stay
// as they are. Formatting what is formatted changes nothing. A profile may be
// wrong and still be formatted; only text that cannot be read at all is not:
// then the result is nil and the messages say why.
func Format(name string, text []byte) ([]byte, *Messages) {
	msgs := &Messages{List: []Message{}}
	file, ok := lex(name, text, msgs)
	if !ok || msgs.Errors > 0 {
		return nil, msgs
	}
	understand(file.tokens)
	f := &formatter{}
	for from := 0; from < len(file.tokens); {
		to := statementEnd(file.tokens, from)
		f.statement(file.tokens[from:to])
		from = to
	}
	f.endLine()
	for _, c := range file.below {
		f.comment(c, 0, true)
	}
	return []byte(f.b.String()), msgs
}

// understand lets the parser say what each token is. It sees neither INCLUDE
// nor the file names after it, which may stand anywhere.
func understand(tokens []token) {
	var seen []token
	var place []int
	for i := 0; i < len(tokens); i++ {
		if tokens[i].word == "INCLUDE" {
			tokens[i].role, tokens[i].spelled = roleInclude, tokens[i].word
			i++
			continue
		}
		t := tokens[i]
		t.unresolved = !t.quoted && strings.Contains(t.text, "&")
		t.order = len(seen)
		seen, place = append(seen, t), append(place, i)
	}
	newParser(seen, &Messages{}).parse()
	for i, t := range seen {
		tokens[place[i]].role, tokens[place[i]].spelled = t.role, t.spelled
	}
}

// statementEnd is where the statement that begins at from ends. An INCLUDE is a
// statement of its own when another follows it, and part of one otherwise.
func statementEnd(tokens []token, from int) int {
	if tokens[from].role == roleInclude {
		return min(from+2, len(tokens))
	}
	for i := from + 1; i < len(tokens); i++ {
		at := i
		for at < len(tokens) && tokens[at].role == roleInclude {
			at += 2
		}
		if at >= len(tokens) || tokens[at].role == roleStatement {
			return i
		}
		i = at
	}
	return len(tokens)
}

type formatter struct {
	b      strings.Builder
	column int  // characters on the line that is being written
	broken bool // a comment ended the line, so that what follows needs another
}

func (f *formatter) endLine() {
	if f.column > 0 {
		f.b.WriteByte('\n')
		f.column = 0
	}
	f.broken = false
}

// empty writes an empty line, but not at the beginning.
func (f *formatter) empty() {
	f.endLine()
	if f.b.Len() > 0 {
		f.b.WriteByte('\n')
	}
}

func (f *formatter) comment(c comment, indent int, mayEmpty bool) {
	f.endLine()
	if c.blank && mayEmpty {
		f.empty()
	}
	f.b.WriteString(strings.Repeat(" ", indent))
	f.b.WriteString(c.text)
	f.b.WriteByte('\n')
}

// begin starts a line for a token, with the comments above it. An empty line
// stays where a statement or an entry begins.
func (f *formatter) begin(t *token, indent int, mayEmpty bool) {
	f.endLine()
	for _, c := range t.above {
		f.comment(c, indent, mayEmpty)
	}
	if t.blank && mayEmpty {
		f.empty()
	}
	f.b.WriteString(strings.Repeat(" ", indent))
	f.column = indent
	f.word(t)
}

func (f *formatter) word(t *token) {
	f.b.WriteString(spelling(t))
	f.column += utf8.RuneCountInString(spelling(t))
	if t.beside != "" {
		f.b.WriteString("  " + t.beside)
		f.broken = true
	}
}

// spelling is how a token is written: a keyword in full, all else as it was.
func spelling(t *token) string {
	if t.spelled != "" {
		return t.spelled
	}
	return t.raw
}

func (f *formatter) statement(tokens []token) {
	if fitsLine(tokens) {
		f.begin(&tokens[0], 0, true)
		for i := range tokens[1:] {
			f.flow(&tokens[i+1])
		}
		return
	}
	indent, included, inEntries := 0, -1, false
	for i := range tokens {
		t := &tokens[i]
		switch {
		case i == 0:
			f.begin(t, 0, true)
		case t.role == roleEnd:
			indent = 0
			f.begin(t, indent, true)
		case t.role == roleEntry:
			indent, inEntries = formatIndent, true
			f.begin(t, indent, true)
		case t.role == roleOperand && !inEntries:
			indent = formatIndent
			f.begin(t, indent, false)
		case t.role == roleInclude:
			indent, included = formatIndent, i
			f.begin(t, indent, false)
		case included >= 0 && i == included+2:
			f.begin(t, indent+formatIndent, false)
		case len(t.above) > 0 || f.broken || f.column+1+utf8.RuneCountInString(spelling(t)) > formatWidth:
			f.begin(t, indent+formatIndent, false)
		default:
			f.flow(t)
		}
	}
}

func (f *formatter) flow(t *token) {
	f.b.WriteByte(' ')
	f.column++
	f.word(t)
}

// fitsLine reports whether a statement is written on one line: no comment or
// INCLUDE inside, no block, at most one entry, and short enough.
func fitsLine(tokens []token) bool {
	width, entries := -1, 0
	for i := range tokens {
		t := &tokens[i]
		width += 1 + utf8.RuneCountInString(spelling(t))
		switch {
		case i > 0 && (len(t.above) > 0 || t.role == roleInclude), i < len(tokens)-1 && t.beside != "", t.role == roleEnd:
			return false
		case t.role == roleEntry:
			entries++
		}
	}
	return width <= formatWidth && entries <= 1
}
