package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// checks are all rules, under the names that the real tree and the bad
// inputs are tested by.
var checks = map[string]func(*Tree) []Finding{
	"every room has its row":               CheckRooms,
	"imports point down":                   CheckArrows,
	"decisions are pure":                   CheckPure,
	"packages say what they are":           CheckPackages,
	"exported names are explained":         CheckDocs,
	"files and functions can be read":      CheckSize,
	"tests do not sleep":                   CheckWaiting,
	"no other program does our work":       CheckShelling,
	"files are finished, and not personal": CheckText,
}

func TestTheTreeKeepsItsRules(t *testing.T) {
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.GoFiles()) < 5 {
		t.Fatalf("found %d Go files: this is not the project's root", len(tree.GoFiles()))
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			for _, f := range check(tree) {
				t.Error(f)
			}
		})
	}
}

// lines returns n lines of code.
func lines(n int) string { return strings.Repeat("\tx++\n", n) }

// Each case is one small file in an otherwise empty tree. want is a part of
// the one finding that it must lead to; "" means that the file is fine.
var cases = []struct {
	name  string
	check string
	path  string
	src   string
	want  string
}{
	// imports point down
	{"a policy that imports the kernel", "imports point down", "internal/policy/lanidle/a.go",
		"package lanidle\nimport _ \"xlane/internal/kernel\"", "a.go:2: imports xlane/internal/kernel: policy/lanidle may import model"},
	{"a policy that imports another policy", "imports point down", "internal/policy/bulk/a.go",
		"package bulk\nimport _ \"xlane/internal/policy/lanidle\"", "policy/bulk may import model"},
	{"a policy that imports the nouns", "imports point down", "internal/policy/bulk/a.go",
		"package bulk\nimport _ \"xlane/internal/model\"", ""},
	{"an adapter that imports its sibling", "imports point down", "internal/receive/veth/a.go",
		"package veth\nimport _ \"xlane/internal/receive/cpumap\"", "sibling data planes never import each other"},
	{"an adapter that imports the sorter", "imports point down", "internal/receive/veth/a.go",
		"package veth\nimport _ \"xlane/internal/receive/sorter\"", ""},
	{"an adapter that imports a folder of its own", "imports point down", "internal/receive/veth/a.go",
		"package veth\nimport _ \"xlane/internal/receive/veth/far\"", ""},
	{"a folder of an adapter that imports a sibling adapter", "imports point down", "internal/receive/veth/far/a.go",
		"package far\nimport _ \"xlane/internal/receive/tap\"", "receive/veth may import"},
	{"the contract that imports an adapter", "imports point down", "internal/receive/receive.go",
		"package receive\nimport _ \"xlane/internal/receive/veth\"", "it must know none of them"},
	{"a sorter that imports an adapter", "imports point down", "internal/receive/sorter/a.go",
		"package sorter\nimport _ \"xlane/internal/receive/veth\"", "the sorter may know no adapter"},
	{"the modeler that imports a data plane", "imports point down", "internal/awm/a.go",
		"package awm\nimport _ \"xlane/internal/receive\"", "leans on no data plane"},
	{"a daemon that imports the lab", "imports point down", "internal/stack/a.go",
		"package stack\nimport _ \"xlane/internal/lab\"", "stack may import"},
	{"a command that imports test requirements", "imports point down", "internal/cli/a.go",
		"package cli\nimport _ \"xlane/internal/testenv\"", "testenv is for tests"},
	{"a test that imports test requirements", "imports point down", "internal/policy/bulk/a_test.go",
		"package bulk\nimport _ \"xlane/internal/testenv\"", ""},
	{"main that imports more than the commands", "imports point down", "cmd/xlane/main.go",
		"package main\nimport _ \"xlane/internal/stack\"", "main only wires"},
	{"BPF loaded outside the data planes", "imports point down", "internal/cli/a.go",
		"package cli\nimport _ \"github.com/cilium/ebpf/link\"", "shipped files of"},
	{"netlink in a data plane", "imports point down", "internal/receive/veth/a.go",
		"package veth\nimport _ \"github.com/vishvananda/netlink\"", "one room speaks netlink"},
	{"netlink in the kernel room", "imports point down", "internal/kernel/a.go",
		"package kernel\nimport _ \"github.com/mdlayher/genetlink\"", ""},
	{"flags outside the commands", "imports point down", "internal/lab/a.go",
		"package lab\nimport _ \"github.com/spf13/cobra\"", "flags are a matter of the command line"},
	{"a test library in a shipped file", "imports point down", "internal/lab/a.go",
		"package lab\nimport _ \"github.com/google/go-cmp/cmp\"", "nothing of this module only"},
	{"a library whose name begins like another's", "imports point down", "internal/cli/a.go",
		"package cli\nimport _ \"github.com/spf13/cobralike\"", "no row in archtest.Doors"},
	{"system calls in a pure room", "imports point down", "internal/policy/bulk/a.go",
		"package bulk\nimport _ \"golang.org/x/sys/unix\"", "this room is pure"},
	{"cgo", "imports point down", "internal/kernel/a.go",
		"package kernel\nimport \"C\"", "static binary"},

	// decisions are pure
	{"a policy that reads the clock", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nimport \"time\"\nvar x = time.Now()", "a.go:3: calls time.Now"},
	{"a policy that reads the clock under another name", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nimport clock \"time\"\nvar x = clock.Since", "calls time.Since"},
	{"a policy that hides whose clock it reads", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nimport . \"time\"\nvar x = Now()", "into its own names"},
	{"a policy that computes with durations", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nimport \"time\"\nfunc f(now time.Time) time.Time { return now.Add(time.Second) }", ""},
	{"a policy that draws from the global source", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nimport \"math/rand/v2\"\nvar x = rand.IntN(3)", "rand.IntN"},
	{"a policy that is handed a source", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nimport \"math/rand\"\nfunc f(r *rand.Rand) int { return r.Intn(3) }", ""},
	{"a display that reads the environment", "decisions are pure", "internal/display/a.go",
		"package display\nimport _ \"os\"", "reads the environment"},
	{"a profile that resolves names", "decisions are pure", "internal/profile/a.go",
		"package profile\nimport _ \"net\"", "opens sockets"},
	{"a profile that knows addresses", "decisions are pure", "internal/profile/a.go",
		"package profile\nimport _ \"net/netip\"", ""},
	{"a policy that starts a goroutine", "decisions are pure", "internal/policy/bulk/a.go",
		"package bulk\nfunc f() { go f() }", "starts a goroutine"},
	{"a daemon that reads the clock", "decisions are pure", "internal/stack/a.go",
		"package stack\nimport \"time\"\nvar x = time.Now()", ""},

	// packages say what they are
	{"a package without a comment", "packages say what they are", "internal/kernel/a.go",
		"package kernel", "no package comment"},
	{"a comment that is cut off from its package", "packages say what they are", "internal/kernel/a.go",
		"// Package kernel speaks.\n\npackage kernel", "no package comment"},
	{"a comment about something else", "packages say what they are", "internal/kernel/a.go",
		"// This file speaks.\npackage kernel", "must begin with \"Package kernel \""},
	{"a package with a comment", "packages say what they are", "internal/kernel/a.go",
		"// Package kernel speaks.\npackage kernel", ""},
	{"a command with a comment", "packages say what they are", "cmd/xlane/main.go",
		"// Command xlane is it.\npackage main", ""},
	{"a drawer", "packages say what they are", "internal/kernel/util/a.go",
		"// Package util holds.\npackage util", "name the idea"},
	{"a package named unlike its folder", "packages say what they are", "internal/kernel/net/a.go",
		"// Package helpers holds.\npackage helpers", "name the idea"},

	// exported names are explained
	{"an exported function without a comment", "exported names are explained", "internal/kernel/a.go",
		"package kernel\nfunc F() {}", "a.go:2: F is exported"},
	{"an exported method without a comment", "exported names are explained", "internal/kernel/a.go",
		"package kernel\n// T is it.\ntype T[K any] struct{}\nfunc (t *T[K]) F() {}", "F is exported"},
	{"a method of something that is not exported", "exported names are explained", "internal/kernel/a.go",
		"package kernel\ntype t struct{}\nfunc (t) F() {}", ""},
	{"a group of constants with one comment", "exported names are explained", "internal/kernel/a.go",
		"package kernel\n// Two of them.\nconst (\nA = 1\nB = 2\n)", ""},
	{"a constant without a comment", "exported names are explained", "internal/kernel/a.go",
		"package kernel\nconst (\nA = 1 // one\nB = 2\n)", "B is exported"},

	// files and functions can be read
	{"a file one line too long", "files and functions can be read", "bpf/parse.h",
		strings.Repeat("\n", FileLinesMax+1), "801 lines"},
	{"a file of just the limit", "files and functions can be read", "bpf/parse.h",
		strings.Repeat("\n", FileLinesMax), ""},
	{"a generated file may be long", "files and functions can be read", "internal/kernel/a.go",
		"// Code generated by bpf2go; DO NOT EDIT.\npackage kernel\n" + strings.Repeat("\n", FileLinesMax), ""},
	{"a function that is too long", "files and functions can be read", "internal/kernel/a.go",
		"package kernel\nfunc f(x int) {\n" + lines(FuncLinesMax) + "}\n", "f has 102 lines"},
	{"a long function that says why", "files and functions can be read", "internal/kernel/a.go",
		"package kernel\n// f counts.\n// long: one table.\nfunc f(x int) {\n" + lines(FuncLinesMax) + "}\n", ""},
	{"a long function whose neighbour says why", "files and functions can be read", "internal/kernel/a.go",
		"package kernel\n// long: one table.\nvar y int\nfunc f(x int) {\n" + lines(FuncLinesMax) + "}\n", "f has 102 lines"},

	// tests do not sleep
	{"a test that sleeps", "tests do not sleep", "internal/kernel/a_test.go",
		"package kernel\nimport \"time\"\nfunc f() { time.Sleep(1) }", "a_test.go:3: sleeps"},
	{"a suite that sleeps", "tests do not sleep", "internal/receive/adaptertest/a.go",
		"package adaptertest\nimport \"time\"\nfunc f() { time.Sleep(1) }", "sleeps"},
	{"a daemon that sleeps", "tests do not sleep", "internal/stack/a.go",
		"package stack\nimport \"time\"\nfunc f() { time.Sleep(1) }", ""},

	// no other program does our work
	{"a shipped file that starts ip", "no other program does our work", "internal/kernel/a.go",
		"package kernel\nimport \"os/exec\"\nvar c = exec.Command(\"ip\", \"link\")", "starts \"ip\""},
	{"a shipped file that starts ethtool by its path", "no other program does our work", "internal/kernel/a.go",
		"package kernel\nimport \"os/exec\"\nvar c = exec.CommandContext(nil, \"/usr/sbin/ethtool\")", "ethtool"},
	{"a shipped file that starts something else", "no other program does our work", "internal/lab/a.go",
		"package lab\nimport \"os/exec\"\nvar c = exec.Command(\"iperf3\", \"ip\")", ""},
	{"a test that starts ip", "no other program does our work", "internal/kernel/a_test.go",
		"package kernel\nimport \"os/exec\"\nvar c = exec.Command(\"ip\")", ""},

	// files are finished, and not personal
	{"a path of a developer's machine", "files are finished, and not personal", "docs/start.md",
		"one\ncd /ho" + "me/ann/xlane\n", "docs/start.md:2: holds a path of one machine"},
	{"a path of every machine", "files are finished, and not personal", "docs/start.md",
		"see /run/xlane and /sys/fs/bpf/xlane, or https://example.org/work/x", ""},
	{"a mark of unfinished work", "files are finished, and not personal", "internal/kernel/a.go",
		"package kernel\n// TO" + "DO: later", "finish it"},
}

func TestEachRuleCanFail(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tree, err := Load(fstest.MapFS{c.path: {Data: []byte(c.src)}})
			if err != nil {
				t.Fatal(err)
			}
			found := checks[c.check](tree)
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("a file that is fine was found wanting: %v", found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0].String(), c.want) {
				t.Errorf("want one finding that says %q, got %v", c.want, found)
			}
		})
	}
}

func TestSeveralPackageCommentsAreFound(t *testing.T) {
	tree, err := Load(fstest.MapFS{
		"internal/kernel/a.go":      {Data: []byte("// Package kernel speaks.\npackage kernel")},
		"internal/kernel/b.go":      {Data: []byte("// Package kernel speaks again.\npackage kernel")},
		"internal/kernel/c_test.go": {Data: []byte("// Package kernel_test is the outside half.\npackage kernel_test")},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := CheckPackages(tree)
	if len(found) != 1 || !strings.Contains(found[0].Text, "internal/kernel/a.go, internal/kernel/b.go") {
		t.Errorf("want both files in one finding, got %v", found)
	}
}

func TestARoomThatIsGoneOrUnknownIsFound(t *testing.T) {
	tree, err := Load(fstest.MapFS{
		"go.mod":                       {Data: []byte("require (\n\tgithub.com/cilium/ebpf v0.22.0\n)\n")},
		"internal/model/model.go":      {Data: []byte("package model")},
		"internal/nowhere/nowhere.go":  {Data: []byte("package nowhere")},
		"internal/nowhere/somewhat.go": {Data: []byte("package nowhere")},
		"tools.go":                     {Data: []byte("//go:build ignore\n\npackage main")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range CheckRooms(tree) {
		all = append(all, f.String())
	}
	got := strings.Join(all, "\n")
	for _, want := range []string{
		"internal/nowhere: room has no row",
		"kernel: archtest.Rooms names this room, and it no longer exists",
		"github.com/vishvananda/netlink: archtest.Doors names this library",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("want %q once, got\n%s", want, got)
		}
	}
	for _, wrong := range []string{"internal/model: ", "cilium/ebpf", "tools.go", "wlm: ", "etcd", "has no row\nlets", "opens it to"} {
		if strings.Contains(got, wrong) {
			t.Errorf("did not want %q, got\n%s", wrong, got)
		}
	}
}

func TestASourceFileThatDoesNotParseIsAnError(t *testing.T) {
	if _, err := Load(fstest.MapFS{"internal/model/a.go": {Data: []byte("package")}}); err == nil {
		t.Error("a tree with a broken file was read without an error")
	}
}

func TestCompiledFilesAndBuiltFoldersAreLeftOut(t *testing.T) {
	tree, err := Load(fstest.MapFS{
		"internal/receive/sorter/sorter_bpfel.o": {Data: []byte("\x7fELF\x00")},
		"bin/a.go":                               {Data: []byte("package")},
		".git/a.go":                              {Data: []byte("package")},
		"README.md":                              {Data: []byte("xlane\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) != 1 || tree.Files[0].Path != "README.md" {
		t.Errorf("want README.md alone, got %d files", len(tree.Files))
	}
}
