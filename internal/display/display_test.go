package display

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

var taken = time.Date(2026, 3, 4, 15, 4, 5, 670_000_000, time.UTC)

func queue(id model.QueueID, hardware int, packets uint64) model.Queue {
	return model.Queue{
		ID: id, Role: id.String(), Hardware: hardware, NAPI: 8193 + uint32(hardware),
		ThreadPID: 1200 + hardware, CPU: 1, Priority: "OTHER nice 0", RingEntries: 256,
		Counters: model.QueueCounters{
			Packets: packets, Bytes: packets * 1514, RingDrops: model.Known(uint64(hardware)),
			Deliveries: model.Known(packets / 8), ThreadRun: model.Known(packets * 900),
			ThreadWakes: model.Known(packets / 9),
		},
	}
}

func base(queues ...model.Queue) model.Interface {
	return model.Interface{
		Device: "eth0", Netns: "web", Ifindex: 7, Adapter: "veth", State: model.StateReady,
		MTU: 1500, SpeedMbps: 10000, MAC: "02:00:11:3b:92:13",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")},
		Broadcast: model.AnswerYes, Multicast: model.AnswerYes,
		ChecksumOffload: model.AnswerYes, SegmentationOffload: model.AnswerNo,
		INBPERF: model.Dynamic, WorkloadQ: true, Queues: queues,
		Sorter: model.Sorter{
			Reasons:     map[string]uint64{"bulk-rule": 2504216, "no-rule": 1440304, "not-tcp": 12, "fragment": 0},
			ReasonOrder: []string{"no-rule", "bulk-rule", "fragment"},
			Flows:       31, FlowCapacity: 65536, FlowsRefused: 1, FlowsEvicted: 4, MovesDone: 9, MovesPending: 1,
		},
		Link: model.LinkStats{RxBytes: 4277905534, RxPackets: 5290787, RxDropped: 3, TxBytes: 99, TxPackets: 1},
	}
}

func snapshot(list ...model.Interface) model.Snapshot {
	return model.Snapshot{
		Format: model.SnapshotFormat, Taken: taken,
		Daemon:     model.Daemon{Version: "V0.1.0", PID: 4711, Started: taken.Add(-time.Hour)},
		Interfaces: list,
	}
}

func connection(source, destination string) model.BulkConnection {
	return model.BulkConnection{
		Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination),
		Since: taken.Add(-time.Minute), Packets: 2504216, Bytes: 3765010664,
	}
}

func fourQueues() model.Snapshot {
	primary, bulk := queue(model.Primary, 0, 1440304), queue(model.BulkData, 1, 6_000_000_000)
	primary.Priority = "FIFO 10"
	bulk.Hold, bulk.DeferCount = 160*time.Microsecond, 100
	bulk.Decision = model.Decision{
		What: "hold 0us \u2192 160\u00b5s", Why: "83,000 packets/s, the ring holds 3.1 ms, and a longer hold saved no more CPU",
		When: taken.Add(-3 * time.Second),
	}
	in := base(primary, bulk, queue(model.SysDist, 2, 520325), queue(model.EE, 3, 0))
	in.Rules = model.Rules{
		SysDist: []netip.Addr{netip.MustParseAddr("10.0.0.28")},
		EEPorts: []uint16{12000, 12001, 12002, 12003, 12004},
		EELocal: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
		Bulk:    []model.BulkConnection{connection("10.0.0.66:1068", "10.0.0.2:2141")},
	}
	in.Rules.Bulk[0].VLANs = []uint16{10, 4094}
	in.Rules.Bulk4Total = 1
	in.Changes = []model.Change{
		{What: "peer veth0 feature tx-tcp-segmentation", From: "on", To: "off"},
		{What: "tx queues of veth0", From: "1", To: "4"},
	}
	return snapshot(in)
}

func twoQueuesShared() model.Snapshot {
	sys, ee := queue(model.SysDist, 0, 40), queue(model.EE, 0, 2)
	for _, q := range []*model.Queue{&sys, &ee} {
		q.Shares = model.Primary
		q.Counters = model.QueueCounters{Packets: q.Counters.Packets, Bytes: q.Counters.Bytes}
	}
	in := base(queue(model.Primary, 0, 90), queue(model.BulkData, 1, 100), sys, ee)
	in.State, in.Reason = model.StateRecovering, "the link went down and up, timers are being set again"
	in.OLM, in.MTU, in.SpeedMbps = true, 9000, 0
	return snapshot(in)
}

func cpumapLimits() model.Snapshot {
	primary, bulk := queue(model.Primary, 0, 77), queue(model.BulkData, 1, 88)
	for _, q := range []*model.Queue{&primary, &bulk} {
		q.NAPI, q.ThreadPID, q.RingEntries, q.CPU, q.Priority = 0, 0, 0, -1, ""
		q.Counters.Deliveries, q.Counters.ThreadRun, q.Counters.ThreadWakes = model.Count{}, model.Count{}, model.Count{}
	}
	in := base(primary, bulk)
	in.Adapter, in.Netns, in.INBPERF = "cpumap", "", model.Balanced
	in.Cannot = []string{
		"hold a queue: every frame is delivered as it comes, because a cpumap has no timer of its own",
		"count wake-ups",
	}
	return snapshot(in)
}

func ipv6() model.Snapshot {
	in := base(queue(model.Primary, 0, 5), queue(model.BulkData, 1, 6))
	in.Addresses = []netip.Prefix{
		netip.MustParsePrefix("2001:db8:197:11:201:1000:1000:1001/64"), netip.MustParsePrefix("fe80::1/64"),
	}
	long := connection("[2001:db8:197:11:201:1000:1000:1001]:65535", "[2001:db8:197:11:201:2000:2000:2002]:65534")
	long.VLANs = []uint16{4093, 4094}
	in.Rules = model.Rules{
		SysDist:    []netip.Addr{netip.MustParseAddr("2001:db8::28"), netip.MustParseAddr("10.0.0.28")},
		Bulk:       []model.BulkConnection{long, connection("[2001:db8::1%eth0]:221", "[100::101]:257"), connection("10.9.9.9:20", "10.0.0.2:2141")},
		Bulk4Total: 1, Bulk6Total: 2,
	}
	return snapshot(in)
}

func tenThousand() model.Snapshot {
	in := base(queue(model.Primary, 0, 5), queue(model.BulkData, 1, 6))
	for i := range 10_000 {
		c := connection(fmt.Sprintf("10.1.%d.%d:%d", i/250, i%250+1, 1024+i), "10.0.0.2:873")
		if i%2 == 1 {
			c = connection(fmt.Sprintf("[2001:db8::%x]:%d", i, 1024+i), "[2001:db8::2]:873")
		}
		in.Rules.Bulk = append(in.Rules.Bulk, c)
	}
	in.Rules.Bulk4Total, in.Rules.Bulk6Total = 5000, 5000
	return snapshot(in)
}

func severalInterfaces() model.Snapshot {
	down := model.Interface{Device: "eth1", Ifindex: 0, State: model.StateNotActive,
		Reason: "the device was deleted", INBPERF: model.MinCPU}
	other := base(queue(model.Primary, 0, 1))
	other.Netns, other.WorkloadQ, other.VLAN = "db", false, 702
	return snapshot(base(queue(model.Primary, 0, 5)), down, other)
}

func hostileNames() model.Snapshot {
	in := base(queue(model.Primary, 0, 5))
	in.Device, in.Netns = "\x1b[2Jeth\u00e9\xff0", "/run/"+strings.Repeat("n", 200)+"\r\nINTFNAME: forged"
	in.State, in.Reason = model.StateRecovering, strings.Repeat("word ", 60)
	in.Sorter.Reasons = map[string]uint64{strings.Repeat("r", 90): 1}
	return snapshot(in)
}

var cases = []struct {
	name   string
	given  model.Snapshot
	filter Filter
}{
	{"four-queues", fourQueues(), Filter{Max: DefaultMax}},
	{"two-queues-shared", twoQueuesShared(), Filter{Max: DefaultMax}},
	{"cpumap-limits", cpumapLimits(), Filter{Max: DefaultMax}},
	{"ipv6", ipv6(), Filter{Max: All}},
	{"ten-thousand-connections", tenThousand(), Filter{Max: DefaultMax}},
	{"several-interfaces", severalInterfaces(), Filter{Max: DefaultMax}},
	{"one-name-in-two-namespaces", severalInterfaces(), Filter{Device: "eth0", Max: DefaultMax}},
	{"name-that-is-not-there", fourQueues(), Filter{Device: "eth9", Max: DefaultMax}},
	{"empty", snapshot(), Filter{Max: DefaultMax}},
	{"hostile-names", hostileNames(), Filter{Max: DefaultMax}},
}

var reports = []struct {
	name string
	draw func(model.Snapshot, Filter) string
}{{"devlinks", Devlinks}, {"osainfo", Osainfo}, {"tnstats", TNStats}}

func TestReportsAreDrawnAsRecorded(t *testing.T) {
	for _, report := range reports {
		for _, c := range cases {
			t.Run(report.name+"/"+c.name, func(t *testing.T) {
				text := report.draw(c.given, c.filter)
				checkConsole(t, text)
				testenv.Golden(t, report.name+"/"+c.name+".txt", []byte(text))
			})
		}
	}
}

func checkConsole(t *testing.T, text string) {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if len(line) > columns {
			t.Errorf("line %d has %d columns: %q", i+1, len(line), line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("line %d ends in spaces: %q", i+1, line)
		}
		for _, b := range []byte(line) {
			if b < ' ' || b > '~' {
				t.Fatalf("line %d holds byte %#x, which is not printable ASCII", i+1, b)
			}
		}
	}
}

// The recorded snapshot travels as JSON before it is drawn; nothing that a
// report shows may be lost on the way.
func TestReportsAreTheSameAfterAJourneyAsJSON(t *testing.T) {
	for _, report := range reports {
		for _, c := range cases {
			if c.name == "hostile-names" {
				continue // JSON replaces bytes that are not UTF-8
			}
			t.Run(report.name+"/"+c.name, func(t *testing.T) {
				encoded, err := json.Marshal(c.given.Canonical())
				if err != nil {
					t.Fatal(err)
				}
				var decoded model.Snapshot
				if err := json.Unmarshal(encoded, &decoded); err != nil {
					t.Fatal(err)
				}
				if want, got := report.draw(c.given, c.filter), report.draw(decoded, c.filter); want != got {
					t.Errorf("before:\n%s\nafter:\n%s", want, got)
				}
			})
		}
	}
}

func TestMaxLimitsTheConnectionsListedAndNotTheTotals(t *testing.T) {
	in := tenThousand()
	// The trailer's second number is what MAX=* would display.
	allLines := fmt.Sprintf("of %d Lines Displayed", strings.Count(Osainfo(in, Filter{Max: All}), "\n")-3)
	for _, c := range []struct{ max, listed int }{{0, 0}, {1, 1}, {5001, 5001}, {20_000, 10_000}, {All, 10_000}} {
		text := Osainfo(in, Filter{Max: c.max})
		if got := strings.Count(text, "    Src: "); got != c.listed {
			t.Errorf("MAX %d lists %d connections, want %d", c.max, got, c.listed)
		}
		for _, total := range []string{"IPv4 connections:   5000", "IPv6 connections:   5000"} {
			if !strings.Contains(text, total) {
				t.Errorf("MAX %d: %q is missing", c.max, total)
			}
		}
		if !strings.Contains(text, allLines) {
			t.Errorf("MAX %d: trailer lacks %q", c.max, allLines)
		}
	}
}

func TestMaxIsReadAsTheOperatorWritesIt(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
		fail bool
	}{{"*", All, false}, {"0", 0, false}, {"250", 250, false}, {"-1", 0, true}, {"", 0, true}, {"all", 0, true}} {
		got, err := ParseMax(c.text)
		if (err != nil) != c.fail || got != c.want {
			t.Errorf("ParseMax(%q) = %d, %v", c.text, got, err)
		}
	}
}

func TestACounterBeyond32BitsCarriesIntoItsOverflowWord(t *testing.T) {
	in := base(queue(model.Primary, 0, 0))
	in.Queues[0].Counters.Packets = 3<<32 + 17
	want := "IST1722I PACKCNTO =          3 PACKCNT  =         17\n"
	if text := TNStats(snapshot(in), Filter{}); !strings.Contains(text, want) {
		t.Errorf("no line %q in\n%s", want, text)
	}
}

// Goal: no field is printed that the reference does not explain, and a field
// that it calls meaningless is never given a value.
func TestEveryFieldIsExplainedInTheReference(t *testing.T) {
	known := map[string]Field{}
	for _, f := range Reference() {
		known[f.Report+" "+f.Name] = f
	}
	upper := regexp.MustCompile(`(?:^ *|  )([A-Z][A-Z ]*[A-Z]): ?(\S*)`)
	statistic := regexp.MustCompile(`^    ([A-Z][A-Z ]*[A-Z]) += (\S+)$`)
	mixed := regexp.MustCompile(`(?:^ *| In|  | Name| IntfName)?([A-Z][A-Za-z0-9/]*(?: [A-Za-z0-9/]+)*): *(\S*)`)
	counter := regexp.MustCompile(`([A-Z]+) += +(\S+)`)
	for _, c := range cases {
		if c.name == "hostile-names" {
			continue // names that look like fields are its point
		}
		for _, line := range strings.Split(Devlinks(c.given, c.filter), "\n") {
			if strings.HasPrefix(line, "      ") && !strings.Contains(line, "WORKLOADQUEUEING") {
				continue // sentences of the daemon's, below a heading
			}
			for _, p := range []*regexp.Regexp{upper, statistic} {
				checkFields(t, known, "DEVLINKS", p, line)
			}
		}
		for _, line := range strings.Split(Osainfo(c.given, c.filter), "\n") {
			if strings.HasPrefix(line, "Display") {
				line = strings.TrimPrefix(line, "Display OSAINFO results for ")
			}
			if strings.HasPrefix(line, "EZD0031I") || strings.HasPrefix(line, "    hold") {
				continue
			}
			// "In" follows its neighbour by one space in the original.
			for _, half := range strings.Split(line, " In: ") {
				checkFields(t, known, "OSAINFO", mixed, half)
			}
		}
		for _, line := range strings.Split(TNStats(c.given, c.filter), "\n") {
			for _, m := range counter.FindAllStringSubmatch(line, -1) {
				if strings.HasSuffix(m[1], "O") && known["TNSTATS "+m[1]].Name == "" {
					continue // the overflow word of the counter beside it
				}
				checkField(t, known, "TNSTATS", m[1], m[2])
			}
		}
	}
}

func checkFields(t *testing.T, known map[string]Field, report string, p *regexp.Regexp, line string) {
	t.Helper()
	for _, m := range p.FindAllStringSubmatch(line, -1) {
		checkField(t, known, report, m[1], m[2])
	}
}

func checkField(t *testing.T, known map[string]Field, report, name, value string) {
	t.Helper()
	f, ok := known[report+" "+name]
	if !ok {
		t.Errorf("%s prints %q, which the reference does not explain", report, name)
		return
	}
	if f.Linux == "" && value != na {
		t.Errorf("%s: %s has no meaning here and says %q", report, name, value)
	}
}

// Whatever a snapshot holds, a report is printable and does not panic.
func TestReportsHoldForRandomSnapshots(t *testing.T) {
	random := testenv.Rand(t)
	for range 100 {
		s := randomSnapshot(random)
		for _, report := range reports {
			checkConsole(t, report.draw(s, Filter{Max: random.Intn(5) - 1}))
		}
	}
}

func randomSnapshot(random *rand.Rand) model.Snapshot {
	text := func() string {
		b := make([]byte, random.Intn(200))
		random.Read(b)
		return string(b)
	}
	in := model.Interface{
		Device: text(), Netns: text(), Adapter: text(), Reason: text(), MAC: text(),
		State: model.InterfaceState(text()), MTU: random.Int() - random.Int(), SpeedMbps: random.Uint64(),
		INBPERF: model.INBPERF(random.Intn(256)), Cannot: []string{text()},
		Changes: []model.Change{{What: text(), From: text(), To: text()}},
		Sorter:  model.Sorter{Reasons: map[string]uint64{text(): random.Uint64()}, ReasonOrder: []string{text()}},
		Rules: model.Rules{Bulk: make([]model.BulkConnection, random.Intn(4)), Bulk4Total: random.Intn(9),
			SysDist: make([]netip.Addr, random.Intn(3)), EELocal: make([]netip.Addr, 1)},
		Addresses: make([]netip.Prefix, random.Intn(3)),
	}
	for range random.Intn(6) {
		in.Queues = append(in.Queues, model.Queue{
			ID: model.QueueID(random.Intn(256)), Shares: model.QueueID(random.Intn(2)), CPU: random.Int(),
			NAPI: random.Uint32(), Priority: text(), Hold: time.Duration(random.Int63()),
			Decision: model.Decision{What: text(), Why: text()},
			Counters: model.QueueCounters{Packets: random.Uint64(), ThreadRun: model.Known(random.Uint64())},
		})
	}
	return model.Snapshot{Daemon: model.Daemon{Version: text()}, Interfaces: []model.Interface{in}}
}
