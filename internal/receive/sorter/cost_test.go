package sorter

import (
	"testing"

	"xlane/internal/testenv"
)

func TestBPFTheCostOfEveryProgramIsMeasured(t *testing.T) {
	testenv.BPF(t)
	costs, err := MeasureCost()
	if err != nil {
		t.Fatal(err)
	}
	if len(costs) != 6 {
		t.Fatalf("%d costs, want 6", len(costs))
	}
	for _, c := range costs {
		if c.EmptyNS <= 0 {
			t.Errorf("%s, %s: an empty program took %v ns", c.Program, c.Packet, c.EmptyNS)
		}
		t.Logf("%-6s %-48s %4.0f ns above an empty program (%.0f ns)", c.Program, c.Packet, c.Nanoseconds, c.EmptyNS)
	}
}
