package doctest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xlane/internal/testenv"
)

// root is the checkout, seen from this folder.
const root = "../.."

// documents are read by somebody who types along.
var documents = []string{"README.md", "docs/start.md"}

func TestDocumentsCanBeParsed(t *testing.T) {
	for _, doc := range documents {
		read(t, doc)
	}
}

func read(t *testing.T, doc string) []Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, doc))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return blocks
}

// TestLabDocumentsDoWhatTheySay runs every document's tested blocks with the
// binary that the tree builds, and lists the blocks that are not run.
func TestLabDocumentsDoWhatTheySay(t *testing.T) {
	testenv.Lab(t)
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/xlane")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build xlane: %v\n%s", err, out)
	}
	for _, doc := range documents {
		t.Run(doc, func(t *testing.T) {
			blocks, tested := read(t, doc), 0
			for _, b := range blocks {
				if b.Tested {
					tested++
				} else {
					t.Logf("not run: %s:%d", doc, b.Line)
				}
			}
			if tested == 0 {
				t.Fatalf("%s has no block that begins with %q", doc, marker)
			}
			out, err := Run(context.Background(), blocks, t.TempDir(), bin+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
			if err != nil {
				t.Fatalf("%s: %v", doc, err)
			}
			t.Logf("%s: ran %d of %d blocks\n%s", doc, tested, len(blocks), out)
		})
	}
}

func TestBlocksAreFoundAsAReaderSeesThem(t *testing.T) {
	const text = "# Title\n" +
		"```sh\n# tested\necho one\n```\n" + // line 2
		"```\necho no language\n```\n" +
		"```text\n# tested\n```\n" +
		"````sh\n# tested, 2m\n```\necho nested\n````\n" + // line 12
		"   ```sh\necho unmarked\n   ```\n" // line 17
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Line: 2, Script: "echo one\n", Tested: true, Limit: LimitDefault},
		{Line: 12, Script: "```\necho nested\n", Tested: true, Limit: 2 * time.Minute},
		{Line: 17, Script: "echo unmarked\n", Limit: LimitDefault},
	}
	if len(got) != len(want) {
		t.Fatalf("want %d blocks, got %+v", len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("block %d\nwant %+v\ngot  %+v", i, want[i], got[i])
		}
	}
}

func TestBlocksThatWouldGoUntestedAreErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a fence that is never closed", "x\n```sh\necho", "line 2: block is never closed"},
		{"a limit that is no duration", "```sh\n# tested, soon\n```", "line 1"},
		{"a limit without a comma", "```sh\n# tested 5s\n```", "line 1"},
		{"a limit beyond what a reader waits for", "```sh\n# tested, 11m\n```", "at most 10m0s"},
		{"a word that only begins like the marker", "```sh\n# testedly\n```", "is no marker"},
		{"a limit of nothing", "```sh\n# tested, 0s\n```", "is no marker"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error that says %q, got %v", c.want, err)
			}
		})
	}
}

// TestLabSessionsCanFail runs documents that break their promise.
func TestLabSessionsCanFail(t *testing.T) {
	testenv.Lab(t)
	for _, c := range []struct {
		name, text string
		want       string // in the error; "" means that the session is fine
		output     string // in the output of one that is fine
	}{
		{"a command that fails", "```sh\n# tested\necho fine\n```\n```sh\n# tested\nfalse\n```",
			"block at line 5: exit status 1\nfine", ""},
		{"a program that does not exist", "```sh\n# tested\nxlane-of-another-name\n```", "command not found", ""},
		{"a variable that was never set", "```sh\n# tested\necho $never_set\n```", "unbound variable", ""},
		{"a failure in the middle of a pipe", "```sh\n# tested\nfalse | cat\n```", "block at line 1", ""},
		{"a block that takes too long", "```sh\n# tested, 50ms\nsleep 60\n```",
			"block at line 1: took longer than its limit of 50ms", ""},
		{"a limit that a later block does not inherit", "```sh\n# tested, 2s\n:\n```\n```sh\n# tested, 50ms\nsleep 60\n```",
			"block at line 5: took longer than its limit of 50ms", ""},
		{"a block that ends the shell", "```sh\n# tested\nexit 0\n```\n```sh\n# tested\nfalse\n```", "ended the session before its last block", ""},
		{"a namespace left behind", "```sh\n# tested\nip netns add left\n```", "left behind in /run/netns: left", ""},
		{"a recorded state left behind", "```sh\n# tested\nmkdir /run/xlane; touch /run/xlane/eth0\n```", "left behind in /run/xlane: eth0", ""},
		{"a pin left behind", "```sh\n# tested\nmkdir -p /sys/fs/bpf/xlane/eth0\n```", "left behind in /sys/fs/bpf/xlane: eth0", ""},
		{"a process left behind that forgot its parent", "```sh\n# tested\nsetsid -f sleep 600\n```", "processes left running: sleep", ""},
		{"a block that is not marked", "```sh\nfalse\n```", "", ""},
		{"blocks that go on where the last one ended", "```sh\n# tested\nmkdir here; cd here; a=b\n```\n```sh\n# tested\nbasename \"$PWD\"; echo $a\n```", "", "here\nb\n"},
		{"namespaces that are removed again", "```sh\n# tested\nip netns add gone\nip netns exec gone ip link\nip netns del gone\n```", "", "lo: <LOOPBACK>"},
		{"a background process that is ended", "```sh\n# tested\nsleep 600 &\nkill %1\n```", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocks, err := Parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			out, err := Run(context.Background(), blocks, t.TempDir(), os.Getenv("PATH")+":/usr/sbin:/sbin")
			if c.want == "" && (err != nil || !strings.Contains(out, c.output)) {
				t.Errorf("want success and %q, got %v and %q", c.output, err, out)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("want an error that says %q, got %v", c.want, err)
			}
			if _, err := os.Stat("/run/netns/left"); err == nil {
				t.Error("the session's namespace is on this machine")
			}
		})
	}
}
