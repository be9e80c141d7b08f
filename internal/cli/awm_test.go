package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"xlane/internal/awm"
)

// TestAWMRunsAgainstAServer drives both commands as an operator does: serve
// says where it is ready, run loads it, and SIGTERM ends it.
func TestAWMRunsAgainstAServer(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "ready")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	fd, err := syscall.Open(pipe, syscall.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	var log bytes.Buffer
	served := make(chan int, 1)
	go func() {
		args := []string{"awm", "serve", "--listen", "127.0.0.1:0", "--ftp-listen", "127.0.0.1:0", "--ready-fd", strconv.Itoa(fd)}
		served <- Run(args, in, &log)
	}()
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	told, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || told != said {
		t.Errorf("stdout says %q, the descriptor %q (%v)", said, told, err)
	}
	words := strings.Fields(said)
	if len(words) != 4 || words[0] != "ready" || words[2] != "ftp" {
		t.Fatalf("serve says %q", said)
	}
	for _, asJSON := range []bool{false, true} {
		args := []string{"awm", "run", words[1], "RR1(100/800)", "STR1(in):pace=100M", "--duration", "200ms", "--warmup", "0s"}
		if asJSON {
			args = append(args, "--json", "--interval", "50ms")
		}
		var stdout, stderr bytes.Buffer
		if code := Run(args, &stdout, &stderr); code != exitDone || stderr.Len() > 0 {
			t.Fatalf("exit %d: %s", code, stderr.String())
		}
		var rep awm.Report
		if asJSON {
			if err := json.Unmarshal(stdout.Bytes(), &rep); err != nil {
				t.Fatal(err)
			}
			if len(rep.Classes) != 2 || rep.Classes[0].Transactions == 0 || rep.Classes[1].Series == nil {
				t.Errorf("%s", stdout.String())
			}
		} else if !strings.Contains(stdout.String(), "RR1(100/800)") {
			t.Errorf("%s", stdout.String())
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-served; code != exitDone {
		t.Errorf("serve exits with %d: %s", code, log.String())
	}
}

func TestAWMSaysHowItIsUsed(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no workload", []string{"run", "127.0.0.1:1"}, exitUsage, "awm run needs a server and a workload"},
		{"a wrong workload", []string{"run", "127.0.0.1:1", "RR1(1)"}, exitUsage, "column 6: ')' stands where '/' is expected"},
		{"a wrong CPU list", []string{"run", "127.0.0.1:1", "RR1(1/1)", "--cpu", "x"}, exitUsage, `"x" is not a CPU or a range`},
		{"nobody listens", []string{"run", "127.0.0.1:1", "RR1(1/1)"}, exitFailed, "connection refused"},
		{"a wrong address", []string{"serve", "--listen", "here"}, exitUsage, `--listen "here" is not an address and port`},
		{"a wrong range", []string{"serve", "--data-ports", "9-1"}, exitUsage, `--data-ports "9-1" is not a range`},
		{"an argument too many", []string{"serve", "x"}, exitUsage, "awm serve takes no"},
		{"a flag that is not", []string{"serve", "--fast"}, exitUsage, "unknown flag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Run(append([]string{"awm"}, c.args...), &stdout, &stderr)
			if code != c.code || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit %d, %s", code, stderr.String())
			}
		})
	}
}
