package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"sort"
	"strings"
)

// matches reports whether a pattern of Room.May or Door.Rooms covers a room.
func matches(pattern, room string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return room == base || strings.HasPrefix(room, base+"/")
	}
	return room == pattern
}

func anyMatches(patterns []string, room string) bool {
	for _, p := range patterns {
		if matches(p, room) {
			return true
		}
	}
	return false
}

// rowOf finds the row that covers a room, and the folder that the row stands
// for: with "receive/*" and "receive/veth/far" that is "receive/veth". The
// row with the most elements wins, and among those one without a "*".
func rowOf(room string) (row *Room, base string) {
	elems := strings.Split(room, "/")
	best := -1
	for i := range Rooms {
		pat := strings.Split(Rooms[i].Path, "/")
		if len(pat) > len(elems) {
			continue
		}
		score, ok := 2*len(pat), true
		for j, p := range pat {
			if p == "*" {
				score--
			} else if p != elems[j] {
				ok = false
			}
		}
		if ok && score > best {
			best, row, base = score, &Rooms[i], strings.Join(elems[:len(pat)], "/")
		}
	}
	return row, base
}

// CheckRooms finds packages without a row, and rows and doors that name what
// is no longer there.
func CheckRooms(t *Tree) []Finding {
	var out []Finding
	lived := map[*Room]bool{}
	seen := map[string]bool{}
	for _, f := range t.GoFiles() {
		room := f.Room()
		row, _ := rowOf(room)
		if row != nil {
			lived[row] = true
		} else if !seen[room] {
			seen[room] = true
			out = append(out, Finding{path.Dir(f.Path), 0, "room has no row in archtest.Rooms; say there what it may import, and why"})
		}
	}
	for i := range Rooms {
		if r := &Rooms[i]; !lived[r] && !r.ToCome {
			out = append(out, Finding{r.Path, 0, "archtest.Rooms names this room, and it no longer exists; change the row with it"})
		}
	}
	return append(out, checkTables(t)...)
}

// checkTables finds patterns that cover no row, and libraries that go.mod no
// longer has: both would be rules about nothing.
func checkTables(t *Tree) []Finding {
	var out []Finding
	known := func(pattern string) bool {
		row, _ := rowOf(strings.TrimSuffix(pattern, "/..."))
		for i := range Rooms {
			if matches(pattern, Rooms[i].Path) {
				return true
			}
		}
		return row != nil
	}
	for _, r := range Rooms {
		for _, p := range r.May {
			if !known(p) {
				out = append(out, Finding{r.Path, 0, fmt.Sprintf("archtest.Rooms lets it import %q, which has no row", p)})
			}
		}
	}
	var gomod string
	for _, f := range t.Files {
		if f.Path == "go.mod" {
			gomod = string(f.Src)
		}
	}
	for _, d := range Doors {
		for _, p := range d.Rooms {
			if !known(p) {
				out = append(out, Finding{d.Library, 0, fmt.Sprintf("archtest.Doors opens it to %q, which has no row", p)})
			}
		}
		if !d.ToCome && !strings.Contains(gomod, "\t"+d.Library) {
			out = append(out, Finding{d.Library, 0, "archtest.Doors names this library, and go.mod no longer has it"})
		}
	}
	return out
}

// CheckArrows finds imports that do not point down, and outside libraries
// that came in by another door than their doorkeeper's. Tests may import what
// they like: they are not shipped.
func CheckArrows(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.GoFiles() {
		row, base := rowOf(f.Room())
		if f.Test || row == nil {
			continue
		}
		for _, i := range t.imports(f) {
			why := ""
			switch {
			case i.path == "C":
				why = "cgo; xlane is one static binary that is built without a C compiler"
			case strings.HasPrefix(i.path, Module+"/"):
				why = arrowBroken(row, base, strings.TrimPrefix(strings.TrimPrefix(i.path, Module+"/"), "internal/"))
			case !isStandard(i.path):
				why = doorBroken(row, f.Room(), i.path)
			}
			if why != "" {
				out = append(out, Finding{f.Path, i.line, fmt.Sprintf("imports %s: %s", i.path, why)})
			}
		}
	}
	return out
}

func arrowBroken(row *Room, base, target string) string {
	to, toBase := rowOf(target)
	if to == row && toBase == base {
		return "" // a folder of the room's own
	}
	if to != nil && to.TestOnly && !row.TestOnly {
		return fmt.Sprintf("%s is for tests (%s)", target, to.Why)
	}
	if anyMatches(row.May, target) {
		return ""
	}
	return fmt.Sprintf("%s may import %s; %s", base, listed(row.May), row.Why)
}

func doorBroken(row *Room, room, library string) string {
	if row.Pure {
		return "this room is pure and has no outside library; " + row.Why
	}
	for _, d := range Doors {
		if library != d.Library && !strings.HasPrefix(library, d.Library+"/") {
			continue
		}
		if anyMatches(d.Rooms, room) {
			return ""
		}
		return fmt.Sprintf("shipped files of %s only; %s", listed(d.Rooms), d.Why)
	}
	return "the library has no row in archtest.Doors; say there which room keeps its door"
}

func listed(patterns []string) string {
	if len(patterns) == 0 {
		return "nothing of this module"
	}
	p := append([]string(nil), patterns...)
	sort.Strings(p)
	return strings.Join(p, ", ")
}

// impure are the standard packages that read or change the world. A trailing
// "/..." means all below as well.
var impure = map[string]string{
	"os/...":      "reads the environment and files",
	"syscall":     "speaks to the kernel",
	"net":         "opens sockets; the types of net/netip are fine",
	"net/http":    "opens sockets",
	"net/rpc":     "opens sockets",
	"crypto/rand": "is a global random source; take a *rand.Rand",
	"log/...":     "writes to a global; return what is to be said",
	"plugin":      "loads files",
	"unsafe":      "a decision needs no memory layout",
}

// clocks are the functions of package time that read the clock or wait for it.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true,
	"AfterFunc": true, "Tick": true, "NewTimer": true, "NewTicker": true,
}

// ownRand are the names of math/rand and math/rand/v2 that make or name a
// source of one's own. All others draw from the global one.
var ownRand = map[string]bool{
	"New": true, "NewSource": true, "NewZipf": true, "NewPCG": true, "NewChaCha8": true,
	"Rand": true, "Source": true, "Source64": true, "Zipf": true, "PCG": true, "ChaCha8": true,
}

// CheckPure finds pure rooms that reach for the world, or start a goroutine.
func CheckPure(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.GoFiles() {
		row, _ := rowOf(f.Room())
		if f.Test || row == nil || !row.Pure {
			continue
		}
		say := func(line int, format string, args ...any) {
			out = append(out, Finding{f.Path, line, fmt.Sprintf(format, args...) + "; this room is pure: " + row.Why})
		}
		named := map[string]string{}
		for _, i := range t.imports(f) {
			named[i.name] = i.path
			if i.name == "." {
				say(i.line, "imports %s into its own names, which hides what it calls", i.path)
			}
			for pattern, what := range impure {
				if matches(pattern, i.path) {
					say(i.line, "imports %s, which %s", i.path, what)
				}
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				say(t.line(n), "starts a goroutine")
			case *ast.SelectorExpr:
				pkg, fn := qualified(named, n)
				switch {
				case pkg == "time" && clocks[fn]:
					say(t.line(n), "calls time.%s; take now as an argument", fn)
				case (pkg == "math/rand" || pkg == "math/rand/v2") && !ownRand[fn]:
					say(t.line(n), "draws from the global random source by rand.%s; take a *rand.Rand", fn)
				}
			}
			return true
		})
	}
	return out
}

// qualified returns the import path and name that a selector stands for, or
// "" when it selects from something else than a package.
func qualified(named map[string]string, n *ast.SelectorExpr) (importPath, name string) {
	id, ok := n.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return named[id.Name], n.Sel.Name
}
