package profile

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Source is a profile and what it may refer to.
type Source struct {
	// Name is how messages call the file.
	Name string
	// Text is the profile.
	Text []byte
	// Include reads a file that INCLUDE names. A name that does not begin with
	// a slash is relative to the file that has the INCLUDE, and is joined with
	// that file's folder first. nil refuses INCLUDE.
	Include func(name string) ([]byte, error)
	// Symbols are the system symbols by name, without & and period: SYSNAME.
	Symbols map[string]string
	// Defined are names of interfaces and virtual addresses that exist already,
	// because a running configuration has them: START, ROUTE and VIPADISTRIBUTE
	// may refer to them.
	Defined []string
}

// Limits on included files. A profile that includes more is most likely
// including itself by another name.
const (
	includeDepthMax = 8
	includesMax     = 64
	tokensMax       = 400_000
)

// symbolNameMax is the length of a system symbol's name, symbolValueMax that
// of its value (zos.md §1.1 names the symbols; the lengths are the original's
// for static symbols, rounded up for host names).
const (
	symbolNameMax  = 16
	symbolValueMax = 256
)

type loader struct {
	src      Source
	msgs     *Messages
	tokens   []token
	includes int
	// told are the symbols that are known to be missing: one error for each.
	told map[string]bool
}

// load reads a profile and everything it includes into one row of tokens.
func load(src Source, msgs *Messages) []token {
	l := &loader{src: src, msgs: msgs, told: map[string]bool{}}
	l.file(src.Name, src.Text, nil)
	return l.tokens
}

func (l *loader) file(name string, text []byte, within []string) {
	out, ok := lex(name, text, l.msgs)
	if !ok {
		return
	}
	within = append(slices.Clip(within), name)
	for i := 0; i < len(out.tokens); i++ {
		t := out.tokens[i]
		if t.word == "INCLUDE" {
			i++
			if i == len(out.tokens) {
				l.errorf(t, "INCLUDE", "INCLUDE names no file", "write the file's name after it")
				return
			}
			l.include(out.tokens[i], within)
			continue
		}
		l.substitute(t)
	}
}

func (l *loader) errorf(t token, statement, what, instead string) {
	l.msgs.add(Message{Pos: t.pos, Severity: Error, Statement: statement, What: what, Instead: instead, order: len(l.tokens)})
}

func (l *loader) include(t token, within []string) {
	text := l.replaced(&t)
	if text == "" {
		l.errorf(t, "INCLUDE", "the file's name is empty", "write the file's name after INCLUDE")
		return
	}
	name := text
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(within[len(within)-1]), name)
	}
	l.includes++
	switch {
	case l.src.Include == nil:
		l.errorf(t, "INCLUDE", "files cannot be included here", "write what it holds in this file")
	case slices.Contains(within, name):
		l.errorf(t, "INCLUDE", fmt.Sprintf("%q includes itself", name), "take one INCLUDE of the circle out")
	case len(within) > includeDepthMax:
		l.errorf(t, "INCLUDE", fmt.Sprintf("files are included more than %d deep", includeDepthMax), "include them from a file nearer to the first")
	case l.includes > includesMax:
		if l.includes == includesMax+1 {
			l.errorf(t, "INCLUDE", fmt.Sprintf("more than %d files are included", includesMax), "join some of them")
		}
	default:
		body, err := l.src.Include(name)
		if err != nil {
			l.errorf(t, "INCLUDE", err.Error(), "name a file that can be read")
			return
		}
		l.file(name, body, within)
	}
}

// substitute replaces the symbols of a token and appends what it has become. A
// symbol's value may be several words; all of them are at the token's place.
func (l *loader) substitute(t token) {
	if len(l.tokens) >= tokensMax {
		if !l.told[""] {
			l.told[""] = true
			l.errorf(t, profileItself, fmt.Sprintf("more than %d words, with all that is included", tokensMax), "split the profile")
		}
		return
	}
	t.order = len(l.tokens)
	if !strings.Contains(t.text, "&") {
		l.tokens = append(l.tokens, t)
		return
	}
	text := l.replaced(&t)
	if t.quoted {
		t.text = text
		l.tokens = append(l.tokens, t)
		return
	}
	if t.unresolved {
		l.tokens = append(l.tokens, t)
		return
	}
	for _, word := range strings.Fields(text) {
		if len(word) > wordMax {
			l.errorf(t, profileItself, fmt.Sprintf("with its symbols replaced, a word has %d bytes", len(word)), fmt.Sprintf("use at most %d", wordMax))
			return
		}
		t.text, t.raw, t.word, t.order = word, word, fold(word), len(l.tokens)
		l.tokens = append(l.tokens, t)
	}
}

// replaced returns a token's text with its symbols replaced. In a quoted
// string an ampersand that begins no known symbol is text.
func (l *loader) replaced(t *token) string {
	var b strings.Builder
	rest := t.text
	for {
		before, after, found := strings.Cut(rest, "&")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n := 0
		for n < len(after) && n < symbolNameMax && isSymbolLetter(after[n]) {
			n++
		}
		name := fold(after[:n])
		value, known := l.symbol(name)
		switch {
		case known && len(value) > symbolValueMax, known && strings.ContainsAny(value, ";\"\n"):
			l.symbolError(t, name, fmt.Sprintf("symbol &%s. is too long or holds a semicolon, a quote or a line end", name), "give it a plain value")
		case known:
			b.WriteString(value)
		case t.quoted:
			b.WriteString("&" + after[:n])
			rest = after[n:]
			continue
		case n == 0:
			l.symbolError(t, "&", "& begins no symbol", "write &NAME. with the name of a system symbol")
		default:
			l.symbolError(t, name, fmt.Sprintf("symbol &%s. has no value", name), l.symbolHint(name))
		}
		rest = strings.TrimPrefix(after[n:], ".")
	}
}

func (l *loader) symbolError(t *token, name, what, instead string) {
	t.unresolved = true
	if !l.told[name] {
		l.told[name] = true
		l.errorf(*t, profileItself, what, instead)
	}
}

func (l *loader) symbolHint(name string) string {
	names := l.symbolNames()
	if near := nearest(name, names); near != "" {
		return "did you mean &" + near + ".?"
	}
	return "define it, or write the value itself"
}

// symbolNames are folded and sorted, so that a hint never depends on the
// order of a map.
func (l *loader) symbolNames() []string {
	var names []string
	for n := range l.src.Symbols {
		names = append(names, fold(n))
	}
	slices.Sort(names)
	return names
}

func (l *loader) symbol(name string) (string, bool) {
	if v, ok := l.src.Symbols[name]; ok {
		return v, true
	}
	// Two spellings of one name: the first in order wins, on every run.
	var best string
	for n := range l.src.Symbols {
		if fold(n) == name && (best == "" || n < best) {
			best = n
		}
	}
	if best == "" {
		return "", false
	}
	return l.src.Symbols[best], true
}

func isSymbolLetter(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '@' || c == '#' || c == '$'
}
