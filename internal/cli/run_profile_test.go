package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What cannot be run is said before anything is looked at on the host.
func TestRunRefusesAProfileThatItCannotUse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty := write("empty.profile", "; nothing\n")
	wrong := write("wrong.profile", "INTERFACEX Y\n")
	good := write("good.profile", "INTERFACE X DEFINE IPAQENET PORTNAME eth0 INBPERF DYNAMIC WORKLOADQ VMAC\n")
	for name, c := range map[string]struct {
		args []string
		exit int
		says string
	}{
		"a profile that does not exist":           {[]string{"run", "-f", filepath.Join(dir, "absent")}, exitFailed, "no such file"},
		"a profile with an error":                 {[]string{"run", "-f", wrong}, exitFailed, wrong + ":1:1: error:"},
		"a profile without an interface":          {[]string{"run", "-f", empty}, exitFailed, "defines no interface"},
		"a profile and a device":                  {[]string{"run", "-f", good, "eth0"}, exitUsage, "leave \"eth0\" out"},
		"a profile and a flag that it says":       {[]string{"run", "-f", good, "--olm"}, exitUsage, "--olm is said by the profile"},
		"a symbol that is not NAME=VALUE":         {[]string{"run", "-f", good, "--symbol", "X"}, exitUsage, "NAME=VALUE"},
		"neither a profile nor a device is named": {[]string{"run"}, exitUsage, "name at least one device"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := Run(c.args, &stdout, &stderr); got != c.exit {
				t.Errorf("exit %d, want %d: %s", got, c.exit, stderr.String())
			}
			if !strings.Contains(stderr.String(), c.says) || stdout.Len() > 0 {
				t.Errorf("stdout %q, stderr %q, want %q", stdout.String(), stderr.String(), c.says)
			}
		})
	}
}
