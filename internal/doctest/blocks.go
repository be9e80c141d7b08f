// Package doctest runs the command blocks of README.md and docs/start.md as a
// reader would: one after the other, in one shell, with the xlane that was
// just built first in PATH. It decides which blocks are run (those whose first
// line is "# tested") and whether a run did what the reader was promised,
// including that nothing is left behind. What the commands do is tested in
// their own rooms.
package doctest

import (
	"fmt"
	"strings"
	"time"
)

// Limits on the time that one block may take.
const (
	// LimitDefault is for a block that names no limit of its own.
	LimitDefault = 60 * time.Second
	// LimitMax is what start.md promises for all of it: ten minutes.
	LimitMax = 10 * time.Minute
)

// marker opens the first line of a block that is run. It may be followed by a
// limit: "# tested, 180s".
const marker = "# tested"

// Block is one fenced block whose language is sh.
type Block struct {
	Line   int    // 1-based, of the opening fence
	Script string // without the fences and the marker
	Tested bool
	Limit  time.Duration // how long it may take, when tested
}

// Parse finds the sh blocks of a Markdown document, in order. A fence that is
// never closed, and a marker that cannot be read, are errors: both would leave
// commands untested unseen.
func Parse(markdown string) ([]Block, error) {
	var out []Block
	var body []string
	fence, lang, start := "", "", 0
	for n, line := range strings.Split(markdown, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(text, "```"):
			rest := strings.TrimLeft(text, "`")
			fence, lang, start = text[:len(text)-len(rest)], rest, n+1
			body = nil
		case fence != "" && text == fence:
			if lang == "sh" {
				b, err := newBlock(start, body)
				if err != nil {
					return nil, err
				}
				out = append(out, b)
			}
			fence = ""
		case fence != "":
			body = append(body, line)
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("line %d: block is never closed", start)
	}
	return out, nil
}

func newBlock(start int, body []string) (Block, error) {
	b := Block{Line: start, Limit: LimitDefault}
	if len(body) > 0 && strings.HasPrefix(body[0], marker) {
		b.Tested = true
		limit := strings.TrimSpace(strings.TrimPrefix(body[0], marker))
		if limit != "" {
			d, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(limit, ",")))
			if err != nil || d <= 0 || d > LimitMax || limit[0] != ',' {
				return b, fmt.Errorf("line %d: %q is no marker; write %q or %q, at most %v", start, body[0], marker, marker+", 180s", LimitMax)
			}
			b.Limit = d
		}
		body = body[1:]
	}
	b.Script = strings.Join(body, "\n") + "\n"
	return b, nil
}
