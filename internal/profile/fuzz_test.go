package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seeds are the inputs of all golden cases and the sample profiles.
func seeds(f *testing.F) {
	f.Helper()
	for _, pattern := range []string{"testdata/*.txt", "../../profiles/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				continue // a folder
			}
			input, _, _ := strings.Cut(string(raw), dashes)
			f.Add(input)
		}
	}
}

// FuzzLexer: every byte of a word is in exactly one token, at its place.
func FuzzLexer(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text string) {
		msgs := &Messages{}
		out, ok := lex("f", []byte(text), msgs)
		if !ok && msgs.Errors == 0 {
			t.Error("not read, and nothing says why")
		}
		lines := strings.Split(text, "\n")
		for _, tok := range out.tokens {
			line := []rune(lines[tok.pos.Line-1])
			if at := string(line[tok.pos.Column-1:]); !strings.HasPrefix(at, tok.raw) {
				t.Errorf("token %q is not at %v", tok.raw, tok.pos)
			}
		}
	})
}

// FuzzProfile: no text makes the parser or the formatter fail, formatting is
// stable and keeps the meaning, and an effective configuration reads as itself.
func FuzzProfile(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text string) {
		holds(t, text)
	})
}
