package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xlane/internal/testenv"
)

// What idle CPUs do is the machine's: it must be as before, also when a bench
// was killed. Where the machine has no such setting nothing may be written.
func TestLabIdleCPUsArePutBack(t *testing.T) {
	testenv.Lab(t)
	was := awakeRecord
	awakeRecord = filepath.Join(t.TempDir(), "halt-poll")
	t.Cleanup(func() { awakeRecord = was })
	read := func() string {
		b, err := os.ReadFile(haltPoll)
		if err != nil {
			return "none"
		}
		return strings.TrimSpace(string(b))
	}
	before := read()
	for _, killed := range []bool{false, true} {
		restore, err := keepAwake()
		if err != nil {
			t.Fatal(err)
		}
		if before == "0" && read() != haltPollUsual {
			t.Errorf("it is %s while a bench runs, want %s", read(), haltPollUsual)
		}
		if killed { // the next one, or lab down, finds the record
			if there, err := RestoreIdle(); err != nil || there != (before == "0") {
				t.Errorf("restored %v, %v", there, err)
			}
		} else if err := restore(); err != nil {
			t.Fatal(err)
		}
		if read() != before {
			t.Errorf("it is %s afterwards, was %s", read(), before)
		}
		if _, err := os.Stat(awakeRecord); err == nil {
			t.Error("the record was left behind")
		}
	}
}
