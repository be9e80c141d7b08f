package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xlane/internal/api"
	"xlane/internal/model"
	"xlane/internal/testenv"
)

// recordedSource is a Source that always knows the same.
type recordedSource model.Snapshot

func (r recordedSource) Snapshot(context.Context, api.Query) (model.Snapshot, error) {
	return model.Snapshot(r), nil
}

func twoInterfaces() recordedSource {
	eth0 := model.Interface{
		Device: "eth0", Ifindex: 7, Adapter: "veth", State: model.StateReady, MTU: 1500, INBPERF: model.Dynamic, WorkloadQ: true,
		Queues: []model.Queue{
			{ID: model.Primary, CPU: 1, RingEntries: 256, Counters: model.QueueCounters{Packets: 12, ThreadWakes: model.Known(5)}},
			{ID: model.BulkData, Hardware: 1, CPU: 1, RingEntries: 256, Hold: 160 * time.Microsecond, DeferCount: 100},
		},
	}
	for port := range 150 {
		eth0.Rules.Bulk = append(eth0.Rules.Bulk, model.BulkConnection{
			Source:      netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(20000+port)),
			Destination: netip.MustParseAddrPort("10.0.0.2:20"),
		})
	}
	eth0.Rules.Bulk4Total = len(eth0.Rules.Bulk)
	eth1 := model.Interface{Device: "eth1", Adapter: "cpumap", State: model.StateNotActive, Reason: "the device is down"}
	return recordedSource{
		Taken:  time.Date(2026, 3, 4, 15, 4, 5, 0, time.UTC),
		Daemon: model.Daemon{Version: "V0.1.0", PID: 4711}, Interfaces: []model.Interface{eth0, eth1},
	}
}

// serveSource serves a source until the test ends and returns its socket.
func serveSource(t *testing.T, source api.Source) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "xl") // short: a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	l, err := api.Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, l, api.Config{Source: source}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		os.RemoveAll(folder)
	})
	return path
}

func runLine(args ...string) (exit int, stdout, stderr string) {
	var out, errs bytes.Buffer
	exit = Run(args, &out, &errs)
	return exit, out.String(), errs.String()
}

func TestReportsOfARunningDaemon(t *testing.T) {
	socket := serveSource(t, twoInterfaces())
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"devlinks-all", []string{"netstat", "devlinks"}},
		{"devlinks-one", []string{"netstat", "devlinks", "intfn=eth1"}},
		{"osainfo-max-2", []string{"display", "osainfo", "eth0", "--max", "2"}},
		{"tnstats-one", []string{"tnstats", "eth0"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			exit, stdout, stderr := runLine(append(c.args, "--socket", socket)...)
			if exit != exitDone || stderr != "" {
				t.Fatalf("exit %d: %s", exit, stderr)
			}
			testenv.Golden(t, c.golden+".txt", []byte(stdout))
		})
	}
}

func TestMaxChoosesHowManyConnectionsAreListed(t *testing.T) {
	socket := serveSource(t, twoInterfaces())
	for limit, want := range map[string]int{"": 100, "0": 0, "7": 7, "*": 150} {
		args := []string{"display", "osainfo", "eth0", "--socket", socket}
		if limit != "" {
			args = append(args, "--max", limit)
		}
		exit, stdout, stderr := runLine(args...)
		if got := strings.Count(stdout, "    Src: "); exit != exitDone || got != want {
			t.Errorf("--max %q: exit %d, %d connections, want %d (%s)", limit, exit, got, want, stderr)
		}
	}
}

func TestJSONIsTheSnapshot(t *testing.T) {
	socket := serveSource(t, twoInterfaces())
	for _, c := range []struct {
		args                    []string
		interfaces, connections int
	}{
		{[]string{"netstat", "devlinks"}, 2, 0},
		{[]string{"tnstats", "eth0"}, 1, 0},
		{[]string{"display", "osainfo", "eth0", "--max", "*"}, 1, 150},
	} {
		exit, stdout, stderr := runLine(append(c.args, "--json", "--socket", socket)...)
		var s model.Snapshot
		if err := json.Unmarshal([]byte(stdout), &s); err != nil || exit != exitDone || stderr != "" {
			t.Errorf("%v: exit %d, %v, %s", c.args, exit, err, stderr)
			continue
		}
		if s.Format != model.SnapshotFormat || len(s.Interfaces) != c.interfaces || len(s.Interfaces[0].Rules.Bulk) != c.connections {
			t.Errorf("%v: %d interfaces, %+v", c.args, len(s.Interfaces), s.Interfaces[0].Rules)
		}
	}
}

func TestADeviceThatIsNotManagedFailsInOneSentence(t *testing.T) {
	socket := serveSource(t, twoInterfaces())
	want := "xlane: interface \"eth9\" is not managed by this daemon (it manages \"eth0\", \"eth1\")\n"
	for _, args := range [][]string{{"netstat", "devlinks", "INTFName=eth9"}, {"display", "osainfo", "eth9"}, {"tnstats", "eth9"}} {
		exit, stdout, stderr := runLine(append(args, "--socket", socket)...)
		if exit != exitFailed || stdout != "" || stderr != want {
			t.Errorf("%v: exit %d, %q, %q", args, exit, stdout, stderr)
		}
	}
}

func TestWithoutADaemonACommandFailsInOneSentence(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	want := fmt.Sprintf("xlane: no daemon answers at %q (\"xlane run DEV\" starts one): connect: no such file or directory\n", socket)
	for _, args := range [][]string{{"netstat", "devlinks"}, {"display", "osainfo", "eth0", "--json"}, {"tnstats"}} {
		exit, stdout, stderr := runLine(append(args, "--socket", socket)...)
		if exit != exitFailed || stdout != "" || stderr != want {
			t.Errorf("%v: exit %d, %q, %q", args, exit, stdout, stderr)
		}
	}
}

func TestADaemonWithoutInterfacesSaysSo(t *testing.T) {
	socket := serveSource(t, recordedSource{Daemon: model.Daemon{Version: "V0.1.0"}})
	exit, stdout, stderr := runLine("tnstats", "--socket", socket)
	if exit != exitDone || stdout != "" || stderr != "xlane: the daemon manages no interface\n" {
		t.Errorf("tnstats: exit %d, %q, %q", exit, stdout, stderr)
	}
	exit, stdout, stderr = runLine("netstat", "devlinks", "--socket", socket)
	if exit != exitDone || !strings.Contains(stdout, "0 OF 0 RECORDS DISPLAYED") || stderr != "" {
		t.Errorf("devlinks: exit %d, %q, %q", exit, stdout, stderr)
	}
}

func TestCommandsThatAreNotUnderstoodExitWithUsage(t *testing.T) {
	socket := serveSource(t, twoInterfaces())
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"netstat"}, "netstat needs a report: devlinks"},
		{[]string{"netstat", "devlnks"}, `netstat: "devlnks" is not a report; use devlinks`},
		{[]string{"netstat", "devlinks", "eth0"}, `netstat devlinks: "eth0" is not a filter; use INTFName=DEV`},
		{[]string{"netstat", "devlinks", "INTF=eth0"}, `netstat devlinks: "INTF=eth0" is not a filter; use INTFName=DEV`},
		{[]string{"netstat", "devlinks", "INTFNAMES=eth0"}, `netstat devlinks: "INTFNAMES=eth0" is not a filter; use INTFName=DEV`},
		{[]string{"netstat", "devlinks", "INTFName="}, `netstat devlinks: "INTFName=" names no device; use INTFName=DEV`},
		{[]string{"netstat", "devlinks", "INTFN=a", "INTFN=b"}, "xlane netstat devlinks takes at most one filter, not 2 arguments"},
		{[]string{"display"}, "display needs a display: osainfo"},
		{[]string{"display", "osainfo"}, "xlane display osainfo takes one device, not 0 arguments"},
		{[]string{"display", "osainfo", ""}, "osainfo: the device's name is empty"},
		{[]string{"display", "osainfo", "eth0", "--max", "many", "--socket", socket}, `MAX "many" is not a limit; use a number of connections, or * for all`},
		{[]string{"display", "osainfo", "eth0", "--max=-1", "--socket", socket}, `MAX "-1" is not a limit; use a number of connections, or * for all`},
		{[]string{"tnstats", "a", "b"}, "xlane tnstats takes at most one device, not 2 arguments"},
		{[]string{"tnstats", ""}, "tnstats: the device's name is empty"},
		{[]string{"tnstats", "a-name-no-device-can-have", "--socket", socket}, "device is a name of 1 to 15 bytes"},
		{[]string{"tnstats", "--sockt", "x"}, "unknown flag: --sockt"},
	} {
		exit, stdout, stderr := runLine(c.args...)
		if exit != exitUsage || stdout != "" || stderr != "xlane: "+c.want+"\n" {
			t.Errorf("%q: exit %d, %q, %q", c.args, exit, stdout, stderr)
		}
	}
}

func TestAFailingDaemonsWordsReachTheOperator(t *testing.T) {
	socket := serveSource(t, failingSource{})
	exit, _, stderr := runLine("tnstats", "--socket", socket)
	if exit != exitFailed || stderr != "xlane: read counters of \"eth0\": no such device\n" {
		t.Errorf("exit %d, %q", exit, stderr)
	}
}

type failingSource struct{}

func (failingSource) Snapshot(context.Context, api.Query) (model.Snapshot, error) {
	return model.Snapshot{}, fmt.Errorf("read counters of %q: no such device", "eth0")
}
