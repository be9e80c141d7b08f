package awm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func plain(s Spec) Spec {
	s.Call, s.CC, s.NoDelay = callDefault, ccDefault, true
	s.Name = s.word()
	return s
}

func TestParseSpecReadsEachKind(t *testing.T) {
	full := plain(Spec{
		Kind: STR, Conns: 4, Flow: FlowIn, Pace: 1_000_000_000, SendBuf: 1 << 20, RecvBuf: 500_000,
	})
	full.Name, full.CC, full.NoDelay, full.Call = "bulk", "reno", false, 8000
	open := plain(Spec{Kind: RR, Conns: 8, In: 1, Out: 1, Rate: 2.5})
	cases := []struct {
		text string
		want Spec
	}{
		{"RR1(100/800)", plain(Spec{Kind: RR, Conns: 1, In: 100, Out: 800})},
		{"RR10000(64K/1Mi)", plain(Spec{Kind: RR, Conns: 10000, In: 64000, Out: 1 << 20})},
		{"CRR8(64/8Ki)", plain(Spec{Kind: CRR, Conns: 8, In: 64, Out: 8192})},
		{"STR1(20M/1)", plain(Spec{Kind: STR, Conns: 1, In: 20_000_000, Out: 1})},
		{"STR1(1/20M)", plain(Spec{Kind: STR, Conns: 1, In: 1, Out: 20_000_000})},
		{"STR2(both)", plain(Spec{Kind: STR, Conns: 2, Flow: FlowBoth})},
		{"STR1(out)", plain(Spec{Kind: STR, Conns: 1, Flow: FlowOut})},
		{"STR1(acks)", plain(Spec{Kind: STR, Conns: 1, Flow: FlowAcks})},
		{"FTP1(put/20M)", plain(Spec{Kind: FTP, Conns: 1, In: 20_000_000})},
		{"FTP3(get/1G)", plain(Spec{Kind: FTP, Conns: 3, Out: 1_000_000_000})},
		{"PHASE1(100/800,2s;in,1s)", plain(Spec{Kind: PHASE, Conns: 1, Phases: []Phase{
			{In: 100, Out: 800, For: 2 * time.Second}, {Flow: FlowIn, For: time.Second}}})},
		{"STR4(in):name=bulk,pace=1G,sndbuf=1Mi,rcvbuf=500K,call=8K,cc=reno,nodelay=off", full},
		{"RR8(1/1):rate=2.5", open},
	}
	for _, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			got, err := ParseSpec(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			again, err := ParseSpec(got.String())
			if err != nil {
				t.Fatalf("%q, which String wrote: %v", got, err)
			}
			if d := cmp.Diff(got, again); d != "" {
				t.Errorf("String does not read back (-first +second)\n%s", d)
			}
		})
	}
}

func TestParseSpecSaysWhereAndWhatInstead(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `column 1: "" is not a kind of workload; begin with RR, CRR, STR, FTP or PHASE`},
		{"rr1(1/1)", `column 1: "rr" is not a kind of workload; begin with RR, CRR, STR, FTP or PHASE`},
		{"RR(1/1)", `column 3: the number of connections is missing; write RR1(100/800)`},
		{"RR0(1/1)", `column 3: 0 connections are not possible; use 1 to 10000`},
		{"RR99999999999999999999(1/1)", `column 3: 99999999999999999999 connections are not possible; use 1 to 10000`},
		{"RR1", `column 4: it ends where '(' is expected; write RR1(100/800)`},
		{"RR1(100;800)", `column 8: ';' stands where '/' is expected; write request/reply sizes: RR1(100/800)`},
		{"RR1(100/800", `column 12: it ends where ')' is expected; close the brackets: RR1(100/800)`},
		{"RR1(0/8)", `column 5: "0" is not the size of the request; use 1 to 1000G bytes, with K, M, G (decimal) or Ki, Mi, Gi (binary)`},
		{"RR1(1/8KB)", `column 7: "8KB" is not the size of the reply; use 1 to 1000G bytes, with K, M, G (decimal) or Ki, Mi, Gi (binary)`},
		{"RR1(1/99999999999G)", `column 7: "99999999999G" is not the size of the reply; use 1 to 1000G bytes, with K, M, G (decimal) or Ki, Mi, Gi (binary)`},
		{"STR1(up)", `column 6: "up" is not a direction; use in, out, both or acks, or sizes: STR1(20M/1)`},
		{"FTP1(20M)", `column 6: "" is not a transfer; write FTP1(put/20M) or FTP1(get/20M)`},
		{"PHASE1(100/800,2s)", `column 18: one phase alone never changes; add another behind a semicolon: PHASE1(100/800,2s;in,1s)`},
		{"PHASE1(100/800,2s;acks,1s)", `column 19: "acks" is not a direction; use in, out or both`},
		{"PHASE1(4/800,2s;in,1s)", `column 8: a phase's messages carry 8 bytes of their own; use sizes of at least 8`},
		{"PHASE1(100/800,2;in,1s)", `column 16: "2" is not how long a phase can last; use 10ms to 1h, such as 2s`},
		{"RR1(1/1)x", `column 9: 'x' stands where ':' is expected; write options behind a colon: RR1(100/800):pace=1G`},
		{"RR1(1/1):", `column 10: it ends where '=' is expected; write options as name=value, with commas between`},
		{"RR1(1/1):speed=1", `column 10: "speed" is not an option; use name, rate, pace, sndbuf, rcvbuf, call, cc or nodelay`},
		{"RR1(1/1):pace=1G,pace=2G", `column 18: option "pace" is given twice; give it once`},
		{"RR1(1/1):pace=fast", `column 15: "fast" is not a number of bits a second; use 1K to 1000G`},
		{"RR1(1/1):call=2M", `column 15: "2M" is not a number of bytes; use 1 to 1Mi`},
		{"RR1(1/1):rate=NaN", `column 15: "NaN" is not a rate; use 0.001 to 1000000 transactions a second and connection`},
		{"STR1(in):rate=5", `column 10: STR1(in) has no transactions at a rate; use pace= to slow it`},
		{"RR1(1/1):nodelay=maybe", `column 18: nodelay cannot be "maybe"; use on or off`},
		{"RR1(1/1):name=a b", `column 15: "a b" is not a name; use 1 to 32 letters, digits, dots, dashes and underscores`},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := ParseSpec(c.text)
			var wrong *SpecError
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v, not a SpecError", err)
			}
			if want := fmt.Sprintf("workload %q: %s", c.text, c.want); err.Error() != want {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestParseSpecsChecksTheMix(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{nil, "no workload is given; name at least one, such as RR1(100/800)"},
		{[]string{"RR1(1/1)", "RR1(1/1)"}, `two classes are called "RR1(1/1)"; tell them apart with name=`},
		{[]string{"RR6000(1/1)", "STR6000(in)"}, "12000 connections are more than the 10000 that a run may have"},
	} {
		if _, err := ParseSpecs(c.words); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.words, err, c.want)
		}
	}
	if _, err := ParseSpecs([]string{"RR1(1/1)", "RR1(1/1):name=b"}); err != nil {
		t.Error(err)
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"RR1(100/800)", "STR4(in):name=bulk,pace=1G", "FTP1(put/20M)", "PHASE1(100/800,2s;in,1s)", "CRR8(64/8Ki):rate=0.5", "RR1("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			var wrong *SpecError
			if !errors.As(err, &wrong) || wrong.Column < 1 || wrong.Column > len(text)+1 || wrong.Instead == "" {
				t.Fatalf("%q: %#v points nowhere", text, err)
			}
			return
		}
		again, err := ParseSpec(s.String())
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, s, err)
		}
		if d := cmp.Diff(s, again); d != "" {
			t.Fatalf("%q is written as %q, which differs:\n%s", text, s, d)
		}
	})
}
