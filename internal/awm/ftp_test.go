package awm

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"xlane/internal/testenv"
)

// curl runs curl and returns what it says, and whether it was content.
func curl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "curl"), append([]string{"-sS", "--max-time", "10"}, args...)...).CombinedOutput()
	return string(out), err
}

func TestCurlGetsAndPutsFiles(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		_, at := serve(t, ServeConfig{FTPListen: netip.MustParseAddrPort(host)})
		url := "ftp://" + at + "/"
		file := filepath.Join(t.TempDir(), "awm-7-3M")
		if out, err := curl(t, "-o", file, url+"awm-7-3M"); err != nil {
			t.Fatalf("get: %v %s", err, out)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for c := newCursor(7, towardsServer); len(want) < 3_000_000; c.advance(1_000_000) {
			want = append(want, c.next(1_000_000)...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("curl got %d bytes that are not the file", len(got))
		}
		if out, err := curl(t, "-T", file, url); err != nil {
			t.Errorf("put: %v %s", err, out)
		}
		if out, err := curl(t, "--ftp-pasv", "--disable-epsv", "-T", file, url); err != nil && strings.HasPrefix(host, "127") {
			t.Errorf("put with PASV: %v %s", err, out)
		}
		got[2_000_000] ^= 1
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := curl(t, "-T", file, url); err == nil {
			t.Errorf("a file with a flipped bit was taken: %s", out)
		}
		if err := os.WriteFile(file, want[:2_999_999], 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := curl(t, "-T", file, url); err == nil {
			t.Errorf("a file that is too short was taken: %s", out)
		}
		if out, err := curl(t, url+"passwd"); err == nil || !strings.Contains(out, "curl: (78)") {
			t.Errorf("a file that is not: %v %s", err, out)
		}
	}
}

func TestFTPServerKeepsToItsSubset(t *testing.T) {
	_, at := serve(t, ServeConfig{FTPListen: netip.MustParseAddrPort("127.0.0.1:0")})
	c := newFTPTalk(t, at)
	for _, step := range []struct{ say, want string }{
		{"STOR awm-1-5", "530"}, {"user x", "331"}, {"PASS y", "230"}, {"STOR awm-1-5", "425"}, {"RETR ../awm-1-x", "550"},
		{"TYPE A", "504"}, {"TYPE I", "200"}, {"SIZE awm-1-5K", "213 5000"}, {"MKD x", "502"}, {"NOOP", "200"}, {"", "502"},
		{"PASV", "227"}, {"PASV", "227"}, {"EPSV", "229"}, {strings.Repeat("x", 500), "502"}, {"QUIT", "221"},
	} {
		if got := c(step.say); !strings.HasPrefix(got, step.want) {
			t.Errorf("%q is answered with %q, not %s", step.say, got, step.want)
		}
	}
}

func TestPassivePortReadsBothAnswers(t *testing.T) {
	for line, want := range map[string]uint16{
		"227 Entering Passive Mode (127,0,0,1,4,1)":      1025,
		"229 Entering Extended Passive Mode (|||65535|)": 65535,
		"227 Entering Passive Mode (127,0,0,1,4)":        0,
		"227 Entering Passive Mode (127,0,0,1,256,1)":    0,
		"229 Entering Extended Passive Mode (|||99999|)": 0,
		"229 Entering Extended Passive Mode )(":          0,
		"227":                                            0,
	} {
		got, err := passivePort([]byte(line))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %d, %v", line, got, err)
		}
	}
}
