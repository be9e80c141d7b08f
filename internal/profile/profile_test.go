package profile

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	cfg, msgs := Parse(source(text))
	if cfg == nil {
		t.Fatal(msgs)
	}
	return cfg
}

func TestInterfacesAreTheObjectsOfRun(t *testing.T) {
	const block = "VIPADYNAMIC VIPADEFINE 255.255.255.0 10.9.0.1 10.9.0.2 VIPADEFINE V6 2001:db8::1\n" +
		"VIPADISTRIBUTE 10.9.0.1 PORT 80 DESTIP ALL VIPADISTRIBUTE 10.9.0.1 PORT 443 DESTIP ALL\n" +
		"VIPADISTRIBUTE V6 DESTIP ALL VIPADISTRIBUTE 10.9.0.2 DESTIP ALL VIPADISTRIBUTE DELETE 10.9.0.2 ENDVIPADYNAMIC\n"
	distributed := []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("2001:db8::1")}
	for _, c := range []struct {
		name, text string
		want       []Interface
	}{
		{"an empty profile has none", "", nil},
		{"a device with the profile's defaults", "INTERFACE E DEFINE IPAQENET PORTNAME Eth0\n",
			[]Interface{{Device: "Eth0", INBPERF: model.Balanced, Names: []string{"E"}}}},
		{"every operand that run knows", "INTERFACE E DEFINE IPAQENET PORTNAME eth0 VMAC INBPERF DYNAMIC WORKLOADQ OLM NETNS blue CPUS 0-1 ADAPTER cpumap BULKTHRESHOLD 9 FLOWSMAX 64\n",
			[]Interface{{Device: "eth0", INBPERF: model.Dynamic, WorkloadQ: true, OLM: true, Netns: "blue", CPUs: "0-1", Adapter: "cpumap", ThresholdBytes: 9, FlowsMax: 64, Names: []string{"E"}}}},
		{"both ip versions of one device are one", "INTERFACE A DEFINE IPAQENET PORTNAME eth0\nINTERFACE B DEFINE IPAQENET6 PORTNAME eth0\nINTERFACE C DEFINE IPAQENET PORTNAME eth1\n",
			[]Interface{{Device: "eth0", Names: []string{"A", "B"}}, {Device: "eth1", Names: []string{"C"}}}},
		{"what is stopped is left alone", "INTERFACE A DEFINE IPAQENET PORTNAME eth0\nINTERFACE B DEFINE IPAQENET PORTNAME eth1\nSTOP A\nSTART B\n",
			[]Interface{{Device: "eth1", Names: []string{"B"}}}},
		{"what is stopped and started again is managed", "INTERFACE A DEFINE IPAQENET PORTNAME eth0\nSTOP A\nSTART A\n",
			[]Interface{{Device: "eth0", Names: []string{"A"}}}},
		{"distributed addresses go to interfaces that sort", "INTERFACE A DEFINE IPAQENET PORTNAME eth0 VMAC INBPERF DYNAMIC WORKLOADQ\nINTERFACE B DEFINE IPAQENET PORTNAME eth1\n" + block,
			[]Interface{{Device: "eth0", INBPERF: model.Dynamic, WorkloadQ: true, SysDist: distributed, Names: []string{"A"}}, {Device: "eth1", Names: []string{"B"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := parsed(t, c.text).Interfaces()
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for i := range got {
				if err := got[i].Check(); err != nil {
					t.Errorf("run would refuse it: %v", err)
				}
			}
		})
	}
}

func TestWhatIsDefinedAlreadyMayBeReferredTo(t *testing.T) {
	src := source("START ETH7\nINTERFACE ETH8 DELETE\nVIPADYNAMIC VIPADISTRIBUTE 10.9.0.1 DESTIP ALL ENDVIPADYNAMIC\n")
	src.Defined = []string{"eth7", "ETH8", "10.9.0.1"}
	cfg, msgs := Parse(src)
	if cfg == nil {
		t.Fatal(msgs)
	}
	if diff := cmp.Diff([]string{"ETH8"}, cfg.Deleted); diff != "" {
		t.Error(diff)
	}
}

func TestIncludeIsRefusedWithoutAReader(t *testing.T) {
	_, msgs := Parse(Source{Name: "p", Text: []byte("INCLUDE x")})
	if !strings.Contains(msgs.String(), "p:1:9: error: INCLUDE: files cannot be included here") {
		t.Error(msgs)
	}
}

func TestIncludedNamesAreRelativeToTheIncludingFile(t *testing.T) {
	for given, want := range map[string]string{"x": "/etc/a/x", "../x": "/etc/x", "/x": "/x", `"b c"`: "/etc/a/b c"} {
		var asked string
		_, msgs := Parse(Source{Name: "/etc/a/p", Text: []byte("INCLUDE " + given), Include: func(name string) ([]byte, error) {
			asked = name
			return nil, errors.New("read " + name + ": no")
		}})
		if asked != want || !strings.Contains(msgs.String(), "read "+want+": no") {
			t.Errorf("INCLUDE %s: asked for %q, want %q\n%v", given, asked, want, msgs)
		}
	}
}

func TestKeywordsMayBeCutToTheirCapitals(t *testing.T) {
	for _, c := range []struct {
		k    keyword
		word string
		want bool
	}{
		{"INTERFace", "INTERFACE", true}, {"INTERFace", "INTERF", true}, {"INTERFace", "INTERFA", true},
		{"INTERFace", "INTER", false}, {"INTERFace", "INTERFX", false}, {"INTERFace", "INTERFACES", false},
		{"PORT", "PORT", true}, {"PORT", "POR", false}, {"PORTRange", "PORT", false}, {"PORTRange", "PORTR", true},
		{"*", "*", true}, {"PORT", "", false},
	} {
		if got := c.k.is(c.word); got != c.want {
			t.Errorf("%s is %s: %v", c.word, c.k, got)
		}
	}
}

// TestNoWordStandsForTwoKeywords: the shortest form of each must be its own
// among those that can stand in the same place.
func TestNoWordStandsForTwoKeywords(t *testing.T) {
	places := map[string][]keyword{"statements": nil, "vipadynamic": words(vipaEntries())}
	for _, s := range statements() {
		places["statements"] = append(places["statements"], s.word)
	}
	for _, table := range [][]keyword{
		tableWords(deviceTable(false)), tableWords(deviceTable(true)), tableWords(globalTable()), tableWords(monitorTable()),
		tableWords(ipTable()), tableWords(ip6Table()), tableWords(tcpTable()), tableWords(distributeTable()), tableWords(methodTable()),
		tableWords(portTable()), tableWords(routeTable()), tableWords(procedureTable()), tableWords(traceTable()),
	} {
		places[string(table[0])+" and on"] = table
	}
	for place, table := range places {
		for i, k := range table {
			for n := 1; n <= len(k); n++ {
				word := k.full()[:n]
				for j, other := range table {
					if i != j && k.is(word) && other.is(word) {
						t.Errorf("%s: %s is %s and %s", place, word, k, other)
					}
				}
			}
		}
	}
}

func TestGuessesAreNearAndNeverWild(t *testing.T) {
	among := []string{"VLANID", "VMAC", "MTU", "INBPERF"}
	for word, want := range map[string]string{"VLANDI": "VLANID", "VLAN": "VLANID", "VMACS": "VMAC", "MTUU": "MTU", "INPBERF": "INBPERF", "X": "", "FROBNICATE": "", "": ""} {
		if got := nearest(word, among); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// pageParts are the lines between which a page's table is written by -update.
const pageBegin, pageEnd = "<!-- operands -->\n", "<!-- end of operands -->\n"

// TestEveryStatementAndOperandIsOnItsPage compares the tables of the reference
// pages with the language's own.
func TestEveryStatementAndOperandIsOnItsPage(t *testing.T) {
	pages := map[string]string{}
	for _, d := range describe() {
		pages[d.page] += pageTable(d)
	}
	for page, table := range pages {
		file := filepath.Join("../../docs/reference", "statement-"+page+".md")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		head, rest, ok := strings.Cut(string(raw), pageBegin)
		_, tail, ok2 := strings.Cut(rest, pageEnd)
		if !ok || !ok2 {
			t.Errorf("%s has no lines %q and %q", file, pageBegin, pageEnd)
			continue
		}
		want := head + pageBegin + table + pageEnd + tail
		if *testenv.Update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Error(err)
			}
		} else if want != string(raw) {
			t.Errorf("%s differs from the tables (run with -update)\n%s", file, cmp.Diff(want, string(raw)))
		}
	}
	for _, s := range statements() {
		if _, known := pages[s.page]; !known {
			t.Errorf("statement %s has no page", s.word)
		}
	}
	for _, d := range describe() {
		raw, err := os.ReadFile(filepath.Join("../../docs/reference", "statement-"+d.page+".md"))
		if err != nil {
			continue // said above
		}
		for _, k := range append(d.words, d.word) {
			if !strings.Contains(string(raw), string(k)) {
				t.Errorf("statement-%s.md does not have %s", d.page, k)
			}
		}
	}
}

// pageTable is the table of one statement or entry: operands without a row of
// their own are words that the page explains in its text.
func pageTable(d description) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, r := range d.rows {
		if r.linux == "" && r.values == "" {
			continue
		}
		preset := ""
		if r.preset != nil {
			preset = r.preset()
		}
		effect := map[effect]string{inEffect: "", later: "*later:* ", noMeaning: "*nothing:* "}[r.effect]
		line := "| `" + string(r.word) + "` | " + r.values + " | " + preset + " | " + effect + r.linux + " |\n"
		if !seen[line] {
			seen[line] = true
			b.WriteString(line)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n### " + string(d.word) + "\n\n| operand | values | default | on Linux |\n|---|---|---|---|\n" + b.String()
}
