package netstat

import (
	"maps"
	"strings"
	"testing"

	"xlane/internal/kernel/kerneltest"
)

func TestCountersAreReadInPairsOfLines(t *testing.T) {
	got := Counters{}
	err := parse(strings.NewReader("TcpExt: TCPOFOQueue TCPSackShifted\nTcpExt: 7 0\nTcp: MaxConn InSegs\nTcp: -1 18446744073709551615\n"), got)
	want := Counters{"TcpExtTCPOFOQueue": 7, "TcpExtTCPSackShifted": 0, "TcpMaxConn": -1, "TcpInSegs": -1}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestLinesThatDoNotMatchAreRefused(t *testing.T) {
	for _, text := range []string{
		"TcpExt: A B\n",
		"TcpExt: A B\nTcpExt: 1\n",
		"TcpExt: A\nIpExt: 1\n",
		"TcpExt: A\nTcpExt: x\n",
	} {
		if err := parse(strings.NewReader(text), Counters{}); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestSinceTellsWhatMoved(t *testing.T) {
	got := Counters{"a": 5, "b": 2}.Since(Counters{"a": 3})
	if want := (Counters{"a": 2, "b": 2}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestANamespaceHasCountersOfItsOwn(t *testing.T) {
	c, err := Read(kerneltest.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"TcpExtTCPOFOQueue", "TcpExtTCPAckCompressed", "TcpRetransSegs", "IpInReceives"} {
		if v, ok := c[name]; !ok || v != 0 {
			t.Errorf("%s is %d (listed: %v), want 0 in a new namespace", name, v, ok)
		}
	}
}
