package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Limits of the house style.
const (
	// FileLinesMax is where a file holds more than one idea.
	FileLinesMax = 800
	// FuncLinesMax is about two screens. A longer function carries a comment
	// that begins with "long:" and says why it is better whole.
	FuncLinesMax = 100
)

// CheckPackages finds packages that do not have exactly one package comment,
// and names that say nothing.
func CheckPackages(t *Tree) []Finding {
	var out []Finding
	docs := map[string][]string{} // folder → its files with a package comment
	var order []string
	for _, f := range t.GoFiles() {
		name := f.AST.Name.Name
		if strings.HasSuffix(name, "_test") && f.Test {
			continue // the outside half of a package, which its inside half describes
		}
		dir := path.Dir(f.Path)
		if _, seen := docs[dir]; !seen {
			docs[dir] = nil
			order = append(order, dir)
			out = append(out, emptyName(dir, name)...)
		}
		if f.AST.Doc == nil {
			continue
		}
		docs[dir] = append(docs[dir], f.Path)
		want := "Package " + name + " "
		if name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(f.AST.Doc.Text(), want) {
			out = append(out, Finding{f.Path, t.line(f.AST.Doc), fmt.Sprintf("the package comment must begin with %q", want)})
		}
	}
	for _, dir := range order {
		switch files := docs[dir]; len(files) {
		case 1:
		case 0:
			out = append(out, Finding{dir, 0, "package has no package comment; say what it decides or touches, and what it leaves to others"})
		default:
			out = append(out, Finding{dir, 0, "package has several package comments, keep one: " + strings.Join(files, ", ")})
		}
	}
	return out
}

// emptyNames are drawers: whatever fits nowhere ends up in them.
var emptyNames = regexp.MustCompile(`^(utils?|commons?|helpers?|managers?|misc|shared|base|lib)$`)

func emptyName(dir, name string) []Finding {
	for _, elem := range append(strings.Split(dir, "/"), name) {
		if emptyNames.MatchString(elem) {
			return []Finding{{dir, 0, fmt.Sprintf("%q says nothing about what is in it; name the idea", elem)}}
		}
	}
	return nil
}

// CheckSize finds files and functions that are too long to be read at once.
func CheckSize(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		if f.Generated {
			continue
		}
		switch path.Ext(f.Path) {
		case ".go", ".c", ".h":
			if n := bytes.Count(f.Src, []byte("\n")); n > FileLinesMax {
				out = append(out, Finding{f.Path, 0, fmt.Sprintf("file has %d lines (limit %d); split it by idea", n, FileLinesMax)})
			}
		}
		if f.AST == nil {
			continue
		}
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := t.endLine(fn) - t.line(fn) + 1
			if n > FuncLinesMax && !saysLong(f.AST, fn) {
				out = append(out, Finding{f.Path, t.line(fn),
					fmt.Sprintf("%s has %d lines (limit %d); split it, or say why not in a comment that begins with long:", fn.Name.Name, n, FuncLinesMax)})
			}
		}
	}
	return out
}

var longReason = regexp.MustCompile(`(?m)^(//|/\*)?\s*long: \S+`)

func saysLong(file *ast.File, fn *ast.FuncDecl) bool {
	from, to := fn.Pos(), fn.End()
	if fn.Doc != nil {
		from = fn.Doc.Pos()
	}
	for _, g := range file.Comments {
		if g.Pos() >= from && g.End() <= to && longReason.MatchString(g.Text()) {
			return true
		}
	}
	return false
}

// CheckDocs finds exported names without a comment.
func CheckDocs(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.GoFiles() {
		if f.Test || f.Generated || f.AST.Name.Name == "main" {
			continue
		}
		say := func(id *ast.Ident) {
			out = append(out, Finding{f.Path, t.line(id), id.Name + " is exported and has no comment; say its meaning, units, limits, errors"})
		}
		for _, d := range f.AST.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && isExported(d) {
					say(d.Name)
				}
			case *ast.GenDecl:
				for _, id := range undocumented(d) {
					say(id)
				}
			}
		}
	}
	return out
}

// isExported reports whether a reader of the package's documentation sees the
// function. Error and Unwrap are said by the interface they belong to.
func isExported(d *ast.FuncDecl) bool {
	name := d.Name.Name
	if !d.Name.IsExported() || d.Recv == nil {
		return d.Name.IsExported()
	}
	if name == "Error" || name == "Unwrap" || len(d.Recv.List) == 0 {
		return false
	}
	recv := d.Recv.List[0].Type
	for {
		switch r := recv.(type) {
		case *ast.StarExpr:
			recv = r.X
		case *ast.IndexExpr:
			recv = r.X
		case *ast.IndexListExpr:
			recv = r.X
		case *ast.Ident:
			return r.IsExported()
		default:
			return false
		}
	}
}

// undocumented lists the exported names of a declaration that neither it, nor
// the group, nor the end of the line says anything about.
func undocumented(d *ast.GenDecl) []*ast.Ident {
	var out []*ast.Ident
	if d.Tok == token.IMPORT || d.Doc != nil {
		return nil
	}
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Doc == nil && s.Comment == nil && s.Name.IsExported() {
				out = append(out, s.Name)
			}
		case *ast.ValueSpec:
			for _, id := range s.Names {
				if s.Doc == nil && s.Comment == nil && id.IsExported() {
					out = append(out, id)
				}
			}
		}
	}
	return out
}

// CheckWaiting finds tests that sleep: too short on a busy machine, too long
// on all others.
func CheckWaiting(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.GoFiles() {
		row, _ := rowOf(f.Room())
		if !f.Test && (row == nil || !row.TestOnly) {
			continue
		}
		t.eachCall(f, func(pkg, fn string, call *ast.CallExpr) {
			if pkg == "time" && fn == "Sleep" {
				out = append(out, Finding{f.Path, t.line(call), "sleeps; poll the condition with testenv.Eventually"})
			}
		})
	}
	return out
}

// tools are the programs whose work xlane does itself over netlink.
var tools = map[string]bool{"ip": true, "tc": true, "ethtool": true, "bpftool": true, "sysctl": true, "nsenter": true, "unshare": true, "sh": true, "bash": true}

// CheckShelling finds shipped files that start one of those programs: its
// error text is not the kernel's, and it may not be installed.
func CheckShelling(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.GoFiles() {
		row, _ := rowOf(f.Room())
		if f.Test || row == nil || row.TestOnly {
			continue
		}
		t.eachCall(f, func(pkg, fn string, call *ast.CallExpr) {
			if pkg != "os/exec" {
				return
			}
			for _, a := range call.Args {
				lit, ok := a.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				// The program's name is the first string, whatever comes before.
				name, err := strconv.Unquote(lit.Value)
				if err == nil && tools[path.Base(name)] {
					out = append(out, Finding{f.Path, t.line(call), fmt.Sprintf("starts %q; speak to the kernel through internal/kernel", name)})
				}
				return
			}
		})
	}
	return out
}

func (t *Tree) eachCall(f *File, visit func(pkg, fn string, call *ast.CallExpr)) {
	named := map[string]string{}
	for _, i := range t.imports(f) {
		named[i.name] = i.path
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			pkg, fn := qualified(named, sel)
			visit(pkg, fn, call)
		}
		return true
	})
}

// machinePath is a path that exists on one person's machine only.
var machinePath = regexp.MustCompile("(^|[\\s\"'=(:,`])/(work|farm|root|home|Users)/[A-Za-z0-9_.-]+")

// unfinished are the usual marks of work that was put off. The words are put
// together here so that this file does not carry them.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

// CheckText finds lines that only make sense on a developer's machine, and
// marks of unfinished work.
func CheckText(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		if f.Generated {
			continue
		}
		for n, line := range bytes.Split(f.Src, []byte("\n")) {
			if m := machinePath.Find(line); m != nil {
				out = append(out, Finding{f.Path, n + 1, fmt.Sprintf("holds a path of one machine: %s", bytes.TrimSpace(m))})
			}
			if m := unfinished.Find(line); m != nil {
				out = append(out, Finding{f.Path, n + 1, fmt.Sprintf("is marked %s; finish it, or open an issue that says what would", m)})
			}
		}
	}
	return out
}
