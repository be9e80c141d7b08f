package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xlane/internal/profile"
)

func writeProfile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "p.profile")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCheckPrintsTheEffectiveConfiguration(t *testing.T) {
	file := writeProfile(t, "interface &sysname. define ipaqenet portname eth0 vmac inbperf dynamic workloadq\n")
	exit, stdout, stderr := runLine("check", file, "--symbol", "SYSNAME=E0")
	if exit != exitDone || stderr != "" {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	want := "INTERFACE E0 DEFINE IPAQENET\n  PORTNAME eth0\n  VMAC ROUTEALL\n  INBPERF DYNAMIC WORKLOADQ\n  NOOLM\n  NOMONSYSPLEX\n  READSTORAGE GLOBAL\n"
	if diff := cmp.Diff(want, stdout); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCheckPrintsAllErrorsAndFails(t *testing.T) {
	file := writeProfile(t, "INTERFACE E0 DEFINE IPAQENET PORTNAME eth0 MTU 5\nSTART E1\n")
	exit, stdout, stderr := runLine("check", file)
	if exit != exitFailed || stdout != "" {
		t.Errorf("exit %d, stdout %q", exit, stdout)
	}
	for _, want := range []string{file + ":1:48: error: INTERFACE: MTU 5 is not allowed", file + ":2:7: error: START: interface E1", "1 of 1 profiles cannot be used"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("want %q in\n%s", want, stderr)
		}
	}
}

func TestCheckFormatRewritesTheFile(t *testing.T) {
	file := writeProfile(t, "; mine\n\n\ninterf e0 define ipaqenet   portname Eth0 ; here\n")
	exit, stdout, stderr := runLine("check", file, "--format")
	if want := "; mine\n\nINTERFACE E0 DEFINE IPAQENET PORTNAME Eth0  ; here\n"; exit != exitDone || stdout != want {
		t.Errorf("exit %d (%s)\n%s", exit, stderr, cmp.Diff(want, stdout))
	}
}

func TestCheckJSONHasMessagesAndConfiguration(t *testing.T) {
	file := writeProfile(t, "INTERFACE E0 DEFINE IPAQENET PORTNAME eth0 ISOLATE\n")
	exit, stdout, stderr := runLine("check", file, "--json")
	if exit != exitDone || stderr != "" {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	var got struct {
		Messages []profile.Message
		Warnings int
		Config   *profile.Config
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Warnings != 1 || len(got.Messages) != 1 || got.Config == nil || got.Config.Devices[0].PortName != "eth0" {
		t.Errorf("got %+v", got)
	}
	file = writeProfile(t, "WRONG\n")
	exit, stdout, _ = runLine("check", file, "--json")
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || exit != exitFailed || got.Config != nil {
		t.Errorf("exit %d, %v, %s", exit, err, stdout)
	}
}

func TestSampleProfilesHaveNeitherErrorsNorWarnings(t *testing.T) {
	files, err := filepath.Glob("../../profiles/*.profile")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			exit, stdout, stderr := runLine("check", file, "--symbol", "SYSNAME=SYS1")
			if exit != exitDone || stderr != "" || stdout == "" {
				t.Errorf("exit %d: %s", exit, stderr)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, formatted, _ := runLine("check", "--format", file)
			if diff := cmp.Diff(string(text), formatted); diff != "" {
				t.Errorf("is not as --format writes it (-is +formatted):\n%s", diff)
			}
		})
	}
}

func TestCheckCalledWrongly(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"without a file", []string{"check"}, "at least one PROFILE"},
		{"two answers at once", []string{"check", "a", "--json", "--format"}, "exclude each other"},
		{"json of two files", []string{"check", "a", "b", "--json"}, "take one PROFILE"},
		{"a symbol without a value", []string{"check", "a", "--symbol", "X"}, "is not NAME=VALUE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit, _, stderr := runLine(c.args...)
			if exit != exitUsage || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d: %s", exit, stderr)
			}
		})
	}
	exit, _, stderr := runLine("check", filepath.Join(t.TempDir(), "none"))
	if exit != exitFailed || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}
