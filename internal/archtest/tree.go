// Package archtest reads the project's own source and decides whether it keeps
// the rules that no compiler checks: which room may import which, which rooms
// are pure, which outside library has which doorkeeper, and the house rules on
// size, names and comments. It parses files in this process, because a cached
// `go list` has been seen to miss an import that had just been added. It does
// not judge behaviour: that is what every other test does.
package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Module is the import path of the module whose tree is checked.
const Module = "xlane"

// File is one text file of the tree. The Go fields are set for .go files only.
type File struct {
	Path      string // slash-separated, from the root of the tree
	Src       []byte
	Generated bool // carries the "Code generated ... DO NOT EDIT." line

	AST     *ast.File
	Test    bool // its name ends in _test.go
	Ignored bool // a "//go:build ignore" file: a program of its own, in no package
}

// Tree is every text file of a checkout, parsed where it is Go.
type Tree struct {
	Files []*File
	fset  *token.FileSet
}

// Finding is one broken rule: where, and what to do about it.
type Finding struct {
	Path string
	Line int // 1-based; 0 when the finding is about the whole file or folder
	Text string
}

// String returns the finding in the clickable form path:line: text.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Path, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// skipped are folders that hold nothing of the project's own source: git's
// store and what the Makefile builds.
var skipped = map[string]bool{".git": true, "bin": true, "out": true}

// generatedLine is the form that https://go.dev/s/generatedcode fixes.
var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

var ignoreLine = regexp.MustCompile(`(?m)^//go:build ignore$`)

// Load reads the tree. A Go file that does not parse is an error, since no
// rule can be checked on it.
func Load(root fs.FS) (*Tree, error) {
	t := &Tree{fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped[p] {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		src, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		// A NUL byte marks what is no text: compiled BPF objects, pictures.
		if bytes.IndexByte(src, 0) >= 0 {
			return nil
		}
		f := &File{Path: p, Src: src}
		t.Files = append(t.Files, f)
		return t.parse(f)
	})
	if err != nil {
		return nil, fmt.Errorf("read the source tree: %w", err)
	}
	return t, nil
}

func (t *Tree) parse(f *File) error {
	// vmlinux.h is a kernel's types written out by bpftool: nobody edits it.
	f.Generated = path.Base(f.Path) == "vmlinux.h" || generatedLine.Match(f.Src)
	if !strings.HasSuffix(f.Path, ".go") {
		return nil
	}
	f.Test = strings.HasSuffix(f.Path, "_test.go")
	f.Ignored = ignoreLine.Match(f.Src)
	var err error
	f.AST, err = parser.ParseFile(t.fset, f.Path, f.Src, parser.ParseComments|parser.SkipObjectResolution)
	return err
}

// GoFiles returns the files that belong to a package.
func (t *Tree) GoFiles() []*File {
	var out []*File
	for _, f := range t.Files {
		if f.AST != nil && !f.Ignored {
			out = append(out, f)
		}
	}
	return out
}

func (t *Tree) line(n ast.Node) int { return t.fset.Position(n.Pos()).Line }

func (t *Tree) endLine(n ast.Node) int { return t.fset.Position(n.End()).Line }

// Room returns the name of the room that a file lies in: its folder, without
// the leading "internal/" that nearly all of them share.
func (f *File) Room() string {
	return strings.TrimPrefix(path.Dir(f.Path), "internal/")
}

// imported is one import of a file.
type imported struct {
	path string
	name string // what the file calls it: the alias, or the path's last element
	line int
}

func (t *Tree) imports(f *File) []imported {
	var out []imported
	for _, spec := range f.AST.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepts quoted strings only
		}
		i := imported{path: p, name: path.Base(p), line: t.line(spec)}
		// math/rand/v2 is called rand, not v2.
		if regexp.MustCompile(`^v[0-9]+$`).MatchString(i.name) {
			i.name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			i.name = spec.Name.Name
		}
		out = append(out, i)
	}
	return out
}

// isStandard tells the standard library's packages: the first element of
// their path has no dot, and is not this module's name.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".") && first != Module
}
