package profile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// role is what the parser took a token for; format lays out by it.
type role uint8

const (
	roleNone      role = iota // not understood, or a value: stays as written
	roleStatement             // begins a statement
	roleEnd                   // ends a block
	roleEntry                 // begins an entry of a list or block
	roleOperand               // begins an operand that may have a line of its own
	roleInclude               // INCLUDE, which stands between tokens
)

// token is one word or quoted string.
type token struct {
	// text is what it says: as written, without quotes, symbols replaced.
	text string
	// word is text folded, "" for a quoted string, which is never a keyword.
	word string
	// raw is the token as written, with its quotes.
	raw string
	// spelled is how format writes it when that is not as written.
	spelled string
	quoted  bool
	// unresolved: it holds a symbol without a value, or has no end, which has
	// been said, so that it fits wherever a value is wanted.
	unresolved bool
	role       role
	pos        Pos
	order      int // its place among all tokens, included files in theirs

	// above are the comment lines before it, beside is the comment that ends
	// its line, blank says that an empty line came before it (and before above).
	above  []comment
	beside string
	blank  bool
}

// comment is a comment on a line of its own, from its semicolon on.
type comment struct {
	text  string
	blank bool // an empty line came before it
}

// lexed is the text of one file as tokens.
type lexed struct {
	tokens []token
	below  []comment // after the last token
}

// Limits of one file. They are far above any profile and keep a mistaken
// file name from filling the memory.
const (
	fileBytesMax  = 1 << 20
	fileTokensMax = 200_000
	wordMax       = 512 // of a word or quoted string, in bytes
)

// lexer cuts text into tokens. A semicolon begins a comment where a word could
// begin, and nowhere else (zos.md §1.1: VMAC;x is one word).
type lexer struct {
	file string
	msgs *Messages
	out  lexed

	line, column int
	// onLine counts the tokens of the current line; blank and above wait for
	// the next token.
	onLine int
	blank  bool
	above  []comment
}

func (l *lexer) errorf(line, column int, what, instead string) {
	l.msgs.add(Message{Pos: Pos{l.file, line, column}, Severity: Error, Statement: profileItself, What: what, Instead: instead})
}

// profileItself stands for the statement in messages that are about none.
const profileItself = "PROFILE"

// lex reads one file. ok is false when the text cannot be read as a profile
// at all; single errors do not make it so.
func lex(file string, text []byte, msgs *Messages) (out lexed, ok bool) {
	l := &lexer{file: file, msgs: msgs}
	if len(text) > fileBytesMax {
		l.errorf(1, 1, fmt.Sprintf("the file has %d bytes", len(text)), fmt.Sprintf("use at most %d", fileBytesMax))
		return out, false
	}
	if !utf8.Valid(text) {
		l.notText(string(text))
		return out, false
	}
	for n, line := range strings.Split(string(text), "\n") {
		l.line, l.onLine = n+1, 0
		if !l.readLine(line) {
			return out, false
		}
	}
	l.out.below = l.above
	return l.out, true
}

func (l *lexer) notText(text string) {
	at := 0
	for at < len(text) {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	head := text[:at]
	lineStart := strings.LastIndexByte(head, '\n') + 1
	l.errorf(strings.Count(head, "\n")+1, utf8.RuneCountInString(head[lineStart:])+1,
		fmt.Sprintf("byte %#02x is not UTF-8 text", text[at]), "convert the file to UTF-8")
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

func (l *lexer) readLine(line string) bool {
	if strings.Trim(line, " \t\r") == "" {
		l.blank = true
		return true
	}
	if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' || r == 0x7f }); i >= 0 {
		l.errorf(l.line, utf8.RuneCountInString(line[:i])+1, fmt.Sprintf("character %#02x is not text", line[i]), "remove it")
		return false
	}
	l.column = 1
	for at := 0; at < len(line); {
		if isBlank(line[at]) {
			at++
			l.column++
			continue
		}
		if line[at] == ';' {
			l.comment(strings.TrimRight(strings.ReplaceAll(line[at:], "\r", ""), " \t"))
			return true
		}
		n := l.token(line[at:])
		if n == 0 {
			return false
		}
		l.column += utf8.RuneCountInString(line[at : at+n])
		at += n
	}
	return true
}

func (l *lexer) comment(text string) {
	if l.onLine > 0 {
		l.out.tokens[len(l.out.tokens)-1].beside = text
		return
	}
	l.above = append(l.above, comment{text, l.blank})
	l.blank = false
}

// token reads the token that line begins with and returns its length in bytes.
func (l *lexer) token(line string) int {
	if len(l.out.tokens) == fileTokensMax {
		l.errorf(l.line, l.column, fmt.Sprintf("the file has more than %d words", fileTokensMax), "split it")
		return 0
	}
	t := token{pos: Pos{l.file, l.line, l.column}, above: l.above, blank: l.blank}
	n := 0
	if line[0] == '"' {
		n = l.quoted(line, &t)
	} else {
		for n < len(line) && !isBlank(line[n]) {
			n++
		}
		t.raw, t.text, t.word = line[:n], line[:n], fold(line[:n])
	}
	if len(t.text) > wordMax {
		l.errorf(l.line, l.column, fmt.Sprintf("a word of %d bytes", len(t.text)), fmt.Sprintf("use at most %d", wordMax))
		return 0
	}
	l.above, l.blank = nil, false
	l.onLine++
	l.out.tokens = append(l.out.tokens, t)
	return n
}

// quoted reads a quoted string. One without an end goes to the end of its
// line, so that the rest of the file is still read as it was meant.
func (l *lexer) quoted(line string, t *token) int {
	t.quoted = true
	end := strings.IndexByte(line[1:], '"')
	if end < 0 {
		l.errorf(l.line, l.column, "the quoted string has no end", `close it with " on the same line`)
		t.raw = strings.TrimRight(line, " \t\r")
		t.text, t.unresolved = t.raw[1:], true
		return len(line)
	}
	n := end + 2
	t.raw, t.text = line[:n], line[1:n-1]
	if n < len(line) && !isBlank(line[n]) {
		l.errorf(l.line, l.column+utf8.RuneCountInString(t.raw), "no blank after the quoted string", "put one there")
	}
	return n
}
