package model

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"xlane/internal/testenv"
)

// full has no zero value that omitempty or null could hide.
func full() Snapshot {
	at := time.Date(2026, 3, 4, 15, 4, 5, 670_000_000, time.UTC)
	return Snapshot{
		Format: SnapshotFormat, Taken: at,
		Daemon: Daemon{Version: "0.1.0", PID: 4711, Started: at, Namespace: "ops"},
		Interfaces: []Interface{{
			Device: "eth0", Netns: "web", Ifindex: 7, Adapter: "veth", State: StateRecovering, Reason: "timers were reset",
			MTU: 1500, SpeedMbps: 10000, MAC: "02:00:11:3b:92:13",
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("2001:db8::2/64")},
			VLAN:      702, Broadcast: AnswerYes, Multicast: AnswerNo, ChecksumOffload: AnswerYes, SegmentationOffload: AnswerUnknown,
			INBPERF: Dynamic, WorkloadQ: true, OLM: true,
			Queues: []Queue{
				{
					ID: BulkData, Role: "BULKDATA", Hardware: 1, NAPI: 8194, ThreadPID: 1201, CPU: 1, Priority: "OTHER nice 0",
					Hold: 160 * time.Microsecond, DeferCount: 100, RingEntries: 256,
					Counters: QueueCounters{Packets: 1 << 63, Bytes: 2, RingDrops: Known(0), Deliveries: Known(3),
						ThreadRun: Known(1<<64 - 1), ThreadWakes: Count{}},
					Decision: Decision{What: "hold 0us -> 160us", Why: "83,000 packets/s", When: at},
				},
				{ID: EE, Role: "EE", Shares: Primary, CPU: -1},
			},
			Rules: Rules{
				SysDist: []netip.Addr{netip.MustParseAddr("10.0.0.28")}, EEPorts: []uint16{12000},
				EELocal: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
				Bulk: []BulkConnection{{Source: netip.MustParseAddrPort("[2001:db8::66]:1068"),
					Destination: netip.MustParseAddrPort("[2001:db8::2]:2141"), VLANs: []uint16{10, 20}, Since: at, Packets: 1, Bytes: 2,
					FoundBytes: 180_400, MovedBytes: 181_900}},
				Bulk4Total: 3, Bulk6Total: 4,
			},
			Sorter: Sorter{Reasons: map[string]uint64{"no-rule": 9}, ReasonOrder: []string{"no-rule"}, Flows: 1,
				FlowCapacity: 65536, FlowsRefused: 2, FlowsEvicted: 3, MovesDone: 4, MovesPending: 5},
			Cannot:  []string{"hold a queue"},
			Changes: []Change{{What: "tx queues of veth0", From: "1", To: "4"}},
			Link:    LinkStats{1, 2, 3, 4, 5, 6, 7, 8},
		}},
	}
}

// The golden file is the promise that --json makes: fields are only added.
func TestSnapshotIsWrittenAsRecorded(t *testing.T) {
	got, err := json.MarshalIndent(full(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Golden(t, "snapshot.json", append(got, '\n'))
}

func TestSnapshotSurvivesAJourneyAsJSON(t *testing.T) {
	for name, want := range map[string]Snapshot{
		"everything is set":    full(),
		"no interface":         Snapshot{}.Canonical(),
		"an interface is bare": Snapshot{Interfaces: []Interface{{Queues: []Queue{{ID: Primary}}}}}.Canonical(),
	} {
		t.Run(name, func(t *testing.T) {
			encoded, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var got Snapshot
			if err := json.Unmarshal(encoded, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
				cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
				cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCanonicalLeavesNoListNull(t *testing.T) {
	bare := Snapshot{Interfaces: []Interface{{Queues: []Queue{{ID: BulkData, Counters: QueueCounters{
		RingDrops: Known(1), Deliveries: Known(1), ThreadRun: Known(1), ThreadWakes: Known(1)}}}}}}
	encoded, err := json.Marshal(bare.Canonical())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(encoded, []byte("null")) || !bytes.Contains(encoded, []byte(`"role":"BULKDATA"`)) {
		t.Errorf("%s", encoded)
	}
	if bare.Interfaces[0].Cannot != nil || bare.Interfaces[0].Queues[0].Role != "" {
		t.Error("the snapshot it was called on has changed")
	}
}

func TestACountThatIsNotKnownIsNeverZero(t *testing.T) {
	for _, c := range []struct {
		json string
		want Count
		fail bool
	}{
		{"null", Count{}, false}, {"0", Known(0), false}, {"18446744073709551615", Known(1<<64 - 1), false},
		{"18446744073709551616", Count{}, true}, {"-1", Count{}, true}, {`"1"`, Count{}, true}, {"1.5", Count{}, true},
	} {
		var got Count
		err := json.Unmarshal([]byte(c.json), &got)
		if (err != nil) != c.fail || got != c.want {
			t.Errorf("read %s: %+v, %v", c.json, got, err)
		}
	}
	if got := Known(2).Add(Count{}); got != Known(2) {
		t.Errorf("2 and unknown make %+v", got)
	}
	if got := (Count{}).Add(Count{}); got.Known {
		t.Errorf("unknown and unknown make %+v", got)
	}
}

func TestINBPERFTravelsAsItsOperand(t *testing.T) {
	for m := Balanced; m <= DIM; m++ {
		text, err := m.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back INBPERF
		if err := back.UnmarshalText(bytes.ToLower(text)); err != nil || back != m {
			t.Errorf("%s came back as %s, %v", m, back, err)
		}
	}
	if _, err := (DIM + 1).MarshalText(); err == nil {
		t.Error("a number that is no mode was written")
	}
	var m INBPERF
	if err := m.UnmarshalText([]byte("FASTEST")); err == nil {
		t.Error("a word that is no mode was read")
	}
}
