package wholetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"

	links "xlane/internal/kernel/link"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/thread"
	"xlane/internal/testenv"
)

// look prints everything of a namespace and its device that xlane may change,
// as Debian's tools see it. ip netns exec mounts the namespace's own sysfs. How
// ip names the far end's namespace, and what it says on stderr when it cannot,
// depends on what others on the machine do just then; a bridge's timers run.
const look = `
(ip -d link show; ip addr show) 2>/dev/null | sed 's/_timer *[0-9.]*//g; s/link-netns.*//'
ethtool -k $1
ethtool -l $1
tc qdisc show
for side in ingress egress; do tc filter show dev $1 $side; done
for f in /sys/class/net/$1/queues/*/*ps_*; do
	echo "$f $(cat $f 2>&1)"
done
for f in gro_flush_timeout napi_defer_hard_irqs threaded tx_queue_len; do
	echo "$f $(cat /sys/class/net/$1/$f)"
done
grep -rs . /proc/sys/net || true
`

// fleeting is what changes on its own between two looks.
var fleeting = regexp.MustCompile(`valid_lft|nf_conntrack_count|fib_multipath_hash|tcp_fastopen_key|stable_secret`)

// state is everything that a daemon may touch: both ends of the pair, the pins
// and the records.
func (p *pair) state(t testing.TB) string {
	t.Helper()
	testenv.Tool(t, "ethtool")
	testenv.Tool(t, "tc")
	var b strings.Builder
	for _, name := range []string{p.server, p.client} {
		text := in(t, name, "sh", "-c", look, "sh", p.dev)
		for _, line := range strings.Split(text, "\n") {
			if !fleeting.MatchString(line) {
				fmt.Fprintln(&b, name, line)
			}
		}
		fmt.Fprintln(&b, attachments(t, name, p.dev))
	}
	for _, path := range p.leftovers(t) {
		fmt.Fprintln(&b, "left", path)
	}
	return b.String()
}

// attachments lists a device's polling instances, without the numbers that
// each new one gets, and its programs.
func attachments(t testing.TB, name, dev string) string {
	t.Helper()
	ns, err := netns.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	index := ifindex(t, ns, dev)
	napis, err := napi.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer napis.Close()
	list, err := napis.List(index)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i, n := range list {
		fmt.Fprintf(&b, "%s napi %d: %v defer %d suspend %v threaded %v\n", name, i, n.Hold.Timeout, n.Hold.DeferCount, n.SuspendTimeout, n.Threaded)
		if n.Threaded {
			fmt.Fprintln(&b, name, place(t, n))
		}
	}
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		fmt.Fprintf(&b, "%s %v: %d programs\n", name, at, len(programs(t, ns, index, at)))
	}
	return b.String()
}

// place is where and how urgently a queue's thread runs.
func place(t testing.TB, n napi.NAPI) string {
	t.Helper()
	th, err := thread.OfNAPI(n.PID, n.ID)
	if err != nil {
		return "no thread" // it ended meanwhile
	}
	cpus, err := th.Affinity()
	if err != nil {
		return "no thread"
	}
	p, err := th.Priority()
	if err != nil {
		return "no thread"
	}
	return fmt.Sprintf("thread on %v, %v", cpus, p)
}

func ifindex(t testing.TB, ns *netns.Handle, dev string) int {
	t.Helper()
	c, err := links.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.ByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	return l.Index
}

func programs(t testing.TB, ns *netns.Handle, index int, at ebpf.AttachType) []link.AttachedProgram {
	t.Helper()
	var res *link.QueryResult
	err := ns.Do(func() error {
		var err error
		res, err = link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return res.Programs
}

// leftovers lists pins, records, locks and sockets. The socket's lock file
// stays by design (package api).
func (p *pair) leftovers(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{filepath.Join(p.dir, "*"), filepath.Join(p.stateDir(), "*")} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if path != p.stateDir() && path != p.socket()+".lock" {
				out = append(out, path)
			}
		}
	}
	// By name alone: the namespace may be gone.
	if _, err := os.Stat(filepath.Join(netns.Dir, p.server)); err == nil {
		if _, err := os.Stat(p.pinDir(t)); err == nil {
			out = append(out, p.pinDir(t))
		}
	}
	sort.Strings(out)
	return out
}

// same fails the test where two states differ.
func same(t testing.TB, what, before, after string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); diff != "" {
		t.Errorf("%s: not as it was (-before +after):\n%s", what, diff)
	}
}

// record returns the path of the one record there is.
func (p *pair) record(t testing.TB) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.stateDir(), "*.json"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%d records (%v), want 1", len(paths), err)
	}
	return paths[0]
}

// quietly runs a command whose failure does not matter.
func quietly(name string, args ...string) { _ = exec.Command(name, args...).Run() }

// ebpfLink opens a pinned link.
func ebpfLink(path string) (link.Link, error) { return link.LoadPinnedLink(path, nil) }
