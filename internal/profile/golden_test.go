package profile

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xlane/internal/testenv"
)

// dashes part a case's input from what is expected of it.
const dashes = "----------\n"

// included are the files that a case may include, by path.
var included = map[string]string{
	"conf/routes":  "BEGINROUTES ROUTE DEFAULT 10.0.0.254 ETH0 MTU 1492 ENDROUTES\n",
	"conf/half":    "MTU 1492\n  VMAC ; half a statement\n",
	"conf/wrong":   "START NOWHERE\nMTU 5\n",
	"conf/circle":  "INCLUDE sub/circle\n",
	"conf/nested":  "INCLUDE sub/inner\n",
	"conf/open":    "IPCONFIG TTL \"64\n",
	"conf/empty":   "; nothing\n",
	"conf/endless": "INCLUDE sub/1\n",
	// sub is the folder of the files above, seen from them.
	"conf/sub/circle": "INCLUDE ../circle\n",
	"conf/sub/inner":  "TCPCONFIG FINWAIT2TIME 300\n",
}

func init() {
	dir := "conf/"
	for i := 1; i <= includeDepthMax+1; i++ {
		dir += "sub/"
		included[fmt.Sprintf("%s%d", dir, i)] = fmt.Sprintf("INCLUDE sub/%d\n", i+1)
	}
}

// source is a case's input with the files and symbols that all cases have.
func source(text string) Source {
	return Source{
		Name: "p", Text: []byte(text),
		Symbols: map[string]string{"SYSNAME": "SYS1", "VID": "100", "DEV": "eth0", "NET": "10.1.2", "OPTIONS": "MTU 1492 VMAC", "BAD": "a;b", "EMPTY": ""},
		Include: func(name string) ([]byte, error) {
			if text, ok := included[name]; ok {
				return []byte(text), nil
			}
			return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
		},
	}
}

// answer is what a profile's reader is told: messages, then the configuration.
func answer(text string) string {
	cfg, msgs := Parse(source(text))
	if cfg == nil {
		return msgs.String()
	}
	return msgs.String() + cfg.Text()
}

func TestProfilesGiveWhatTheirGoldenFilesSay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	const casesMin = 150
	if len(files) < casesMin {
		t.Errorf("want at least %d cases, got %d", casesMin, len(files))
	}
	wrong := 0
	for _, file := range files {
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".txt"), "-", " ")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		input, _, found := strings.Cut(string(raw), dashes)
		if !found && !*testenv.Update {
			t.Errorf("%s has no line of dashes", file)
		}
		got := answer(input)
		if strings.Contains(got, ": error: ") {
			wrong++
		}
		t.Run(name, func(t *testing.T) {
			testenv.Golden(t, filepath.Base(file), []byte(input+dashes+got))
			holds(t, input)
		})
	}
	if wrong*2 <= len(files) {
		t.Errorf("want more errors than successes, got %d errors in %d cases", wrong, len(files))
	}
}

// holds checks what must be true of every profile, right or wrong.
func holds(t *testing.T, text string) {
	t.Helper()
	cfg, msgs := Parse(source(text))
	if (cfg == nil) != (msgs.Errors > 0) {
		t.Errorf("%d errors, and a configuration: %v", msgs.Errors, cfg != nil)
	}
	if cfg != nil {
		again, said := Parse(source(cfg.Text()))
		if again == nil {
			t.Fatalf("the effective configuration is no profile:\n%s\n%s", said, cfg.Text())
		}
		if diff := cmp.Diff(asJSON(t, *cfg), asJSON(t, *again)); diff != "" {
			t.Errorf("the effective configuration reads as another (-first +again):\n%s", diff)
		}
	}
	once, said := Format("p", []byte(text))
	if once == nil {
		if said.Errors == 0 {
			t.Error("not formatted, and nothing says why")
		}
		return
	}
	twice, said := Format("p", once)
	if twice == nil {
		t.Fatalf("what was formatted cannot be read:\n%s\n%s", said, once)
	}
	if diff := cmp.Diff(string(once), string(twice)); diff != "" {
		t.Errorf("formatting is not stable (-once +twice):\n%s", diff)
	}
	formatted, said := Parse(source(string(once)))
	if said.Errors != msgs.Errors || said.Warnings != msgs.Warnings {
		t.Errorf("formatting changed what is wrong, from\n%vto\n%v\nformatted:\n%s", msgs, said, once)
	}
	if cfg != nil && formatted != nil && cfg.Text() != formatted.Text() {
		t.Errorf("formatting changed the meaning:\n%s", cmp.Diff(cfg.Text(), formatted.Text()))
	}
}

// asJSON is a configuration without what is about its text.
func asJSON(t *testing.T, c Config) string {
	t.Helper()
	c.Pending = nil
	out, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Errorf("write JSON: %v", err)
	}
	return string(out)
}
