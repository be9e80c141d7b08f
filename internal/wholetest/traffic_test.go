package wholetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xlane/internal/model"
	"xlane/internal/testenv"
)

const nginxConf = `daemon off; master_process off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log; user root;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen %[2]s:8080; location / { return 200 "%[3]s"; } }
}
`

// service starts nginx on the server, from a directory of its own.
func (p *pair) service(t *testing.T) {
	t.Helper()
	nginx := testenv.Tool(t, "nginx")
	dir := t.TempDir()
	conf := filepath.Join(dir, "conf")
	text := fmt.Sprintf(nginxConf, dir, p.addr, strings.Repeat("x", 800))
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	n := startIn(t, p.server, nginx, "-p", dir, "-c", conf)
	testenv.Eventually(t, soon, "nginx to listen", func() bool {
		return strings.Contains(in(t, p.server, "ss", "-tlnH"), ":8080") || !n.running()
	})
	if !n.running() {
		t.Fatalf("nginx ended: %s", n.stderr)
	}
}

// iperf is what we read of iperf3's JSON.
type iperf struct {
	Error string `json:"error"`
	Start struct {
		Connected []struct {
			LocalPort  uint16 `json:"local_port"`
			RemotePort uint16 `json:"remote_port"`
		} `json:"connected"`
	} `json:"start"`
	End struct {
		SumSent struct {
			Bytes       int64 `json:"bytes"`
			Retransmits int64 `json:"retransmits"`
		} `json:"sum_sent"`
		SumReceived struct {
			Bytes int64 `json:"bytes"`
		} `json:"sum_received"`
	} `json:"end"`
}

// startIperf streams to the server. It is paced: the sender's own bursts of up
// to 4 MB (tcp_limit_output_bytes) overflow a ring of 256 packets with nothing
// of ours on the host as well.
func (p *pair) startIperf(t *testing.T, flags ...string) *process {
	t.Helper()
	tool := testenv.Tool(t, "iperf3")
	s := startIn(t, p.server, tool, "-s", "-1", "-p", "5201")
	testenv.Eventually(t, soon, "iperf3 to listen", func() bool {
		return strings.Contains(in(t, p.server, "ss", "-tlnH"), ":5201") || !s.running()
	})
	return startIn(t, p.client, tool, append([]string{"-J", "-c", p.addr, "-p", "5201"}, flags...)...)
}

func iperfResult(t *testing.T, c *process) iperf {
	t.Helper()
	c.wait(t)
	var r iperf
	if err := json.Unmarshal([]byte(c.stdout.String()), &r); err != nil || r.Error != "" {
		t.Fatalf("iperf3: %v %s: %s", err, r.Error, c.stdout)
	}
	return r
}

// hasPort says whether the far end's or this host's port is the one.
func hasPort(b model.BulkConnection, port uint16) bool {
	return b.Source.Port() == port || b.Destination.Port() == port
}

func TestAStreamIsSortedFromAServiceOnAPlainVeth(t *testing.T) {
	p := plain(t)
	wrk := testenv.Tool(t, "wrk")
	was := p.state(t)
	d := p.daemon(t)
	p.service(t)
	server, client := counters(t, p.server), counters(t, p.client)
	stream := p.startIperf(t, "-t", "4", "--fq-rate", "300M")
	testenv.Eventually(t, soon, "the stream to be registered", func() bool { return len(p.osainfo(t).Rules.Bulk) > 0 })
	w := startIn(t, p.client, wrk, "-t1", "-c8", "-d2s", "http://"+p.addr+":8080/")
	var bulk []model.BulkConnection
	for w.running() {
		v := p.osainfo(t)
		for _, b := range v.Rules.Bulk {
			if hasPort(b, 8080) {
				t.Errorf("the service's connection %v is registered as bulk", b.Source)
			}
		}
		if len(v.Rules.Bulk) > 0 {
			bulk = v.Rules.Bulk
		}
	}
	if out := w.stdout.String(); w.wait(t) != 0 || !strings.Contains(out, "requests in") ||
		strings.Contains(out, "Socket errors") || strings.Contains(out, "Non-2xx") {
		t.Errorf("wrk: %s%s", out, w.stderr)
	}
	r := iperfResult(t, stream)
	if len(bulk) != 1 || !hasPort(bulk[0], r.Start.Connected[0].LocalPort) {
		t.Errorf("registered: %+v, want iperf3's data connection from port %d alone", bulk, r.Start.Connected[0].LocalPort)
	}
	t.Logf("iperf3: %+v", r.End)
	if r.End.SumReceived.Bytes == 0 {
		t.Error("the stream stood still")
	}
	lostNothing(t, p.client, client)
	unmoved(t, p.server, server, "TcpExtTCPOFOQueue")
	testenv.Eventually(t, soon, "silence to release the stream", func() bool { return len(p.osainfo(t).Rules.Bulk) == 0 })
	p.stop(t, d)
	same(t, "after stream and service", steady(was), steady(p.state(t)))
}

// Goal: a far end with a queueing discipline holds a sender back instead of
// losing its packets, on every queue, and no queue stops for good. Method: as
// fast as iperf3 can; before the queues were numbered (package veth, wake.go)
// the stream stood still as soon as it was sorted.
func TestAFarEndWithAQdiscHoldsAStreamBackAndLosesNothing(t *testing.T) {
	p := plain(t)
	in(t, p.client, "tc", "qdisc", "add", "dev", p.dev, "root", "handle", "1:", "mq")
	d := p.daemon(t)
	c := p.startIperf(t, "-t", "2")
	testenv.Eventually(t, soon, "the stream to be registered", func() bool { return len(p.osainfo(t).Rules.Bulk) > 0 })
	r := iperfResult(t, c)
	v := p.osainfo(t)
	if drops := v.Queues[1].Counters.RingDrops; drops.N != 0 {
		t.Errorf("BULKDATA's ring lost %d packets", drops.N)
	}
	// A stream that stops after its first 180 KB has a few MB under way.
	if r.End.SumReceived.Bytes < 50e6 {
		t.Errorf("%d bytes arrived in 2 s", r.End.SumReceived.Bytes)
	}
	p.stop(t, d)
}

// receiver takes uploads on port 8081 and serves 1 MB there.
func (p *pair) receiver(t *testing.T) {
	t.Helper()
	var l net.Listener
	inside(t, p.server, func() (err error) { l, err = net.Listen("tcp4", p.addr+":8081"); return err })
	body := make([]byte, 1_000_000)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(body)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%d %v", n, r.TransferEncoding)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
}

func TestUploadsAreBulkAndDownloadsAreNot(t *testing.T) {
	p := plain(t)
	curl := testenv.Tool(t, "curl")
	d := p.daemon(t)
	p.receiver(t)
	file := filepath.Join(p.dir, "file")
	const size = 24_000_000
	if err := os.WriteFile(file, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	url := "http://" + p.addr + ":8081/"
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"with its length": {nil, fmt.Sprintf("%d []", size)},
		"chunked":         {[]string{"-H", "Transfer-Encoding: chunked"}, fmt.Sprintf("%d [chunked]", size)},
	} {
		t.Run("an upload "+name, func(t *testing.T) {
			before := p.osainfo(t).Sorter.Reasons["bulk"]
			u := startIn(t, p.client, curl, append(c.flags, "-sS", "--limit-rate", "20M", "-H", "Expect:", "-T", file, url)...)
			testenv.Eventually(t, soon, "the upload to be registered", func() bool {
				bulk := p.osainfo(t).Rules.Bulk
				return len(bulk) == 1 && hasPort(bulk[0], 8081)
			})
			if code := u.wait(t); code != 0 || u.stdout.String() != c.want {
				t.Errorf("curl: exit code %d: %s%s", code, u.stdout, u.stderr)
			}
			// The first 180 KB, what is under way, and what waits for its move are not.
			if n := (p.osainfo(t).Sorter.Reasons["bulk"] - before) * 1448; n < size/2 {
				t.Errorf("%d bytes of %d went to BULKDATA", n, size)
			}
			testenv.Eventually(t, soon, "its end to release it", func() bool { return len(p.osainfo(t).Rules.Bulk) == 0 })
		})
	}
	t.Run("downloads of 1 MB", func(t *testing.T) {
		before := p.osainfo(t).Sorter
		urls := make([]string, 0, 20)
		for range 20 {
			urls = append(urls, "-o", "/dev/null", url)
		}
		in(t, p.client, curl, append([]string{"-sS"}, urls...)...)
		after := p.osainfo(t).Sorter
		if after.Reasons["bulk"] != before.Reasons["bulk"] || after.MovesDone != before.MovesDone {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
	p.stop(t, d)
}
