package profile

import "strings"

// keyword is a word of the language as its syntax diagram prints it: the
// capital letters at its front are the shortest form that is understood, so
// that "INTERFace" may be written INTERF.
type keyword string

// full is the word as format writes it.
func (k keyword) full() string { return fold(string(k)) }

// is reports whether a folded word stands for the keyword. It is asked for
// every word of a profile many times over.
func (k keyword) is(word string) bool {
	if len(word) == 0 || len(word) > len(k) {
		return false
	}
	for i := range len(word) {
		c := k[i]
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return len(word) == len(k) || k[len(word)] >= 'a' && k[len(word)] <= 'z'
}

// fold makes capitals of ASCII letters alone: the language has no other
// letters in its words, and some that Unicode folds would turn into them.
func fold(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'a' && s[i] <= 'z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'a' && b[i] <= 'z' {
					b[i] -= 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// nearest returns the word that a misspelling most likely stands for, or "".
// A third of its letters may be wrong, and no more than three: beyond that a
// guess is noise. A word cut too short counts as one wrong letter.
func nearest(word string, among []string) string {
	const lettersMax = 64 // far longer than any word of the language
	const cutMin = 3      // fewer letters begin too many words
	if len(word) > lettersMax {
		return ""
	}
	best, bestDistance := "", min(3, max(1, len(word)/3))+1
	for _, candidate := range among {
		d := distance(word, candidate)
		if len(word) >= cutMin && strings.HasPrefix(candidate, word) {
			d = 1
		}
		if d < bestDistance && d < len(candidate) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace, or swap with their
// neighbour to make one word of the other (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// listOf writes words as a sentence does: "A, B or C".
func listOf(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
}
