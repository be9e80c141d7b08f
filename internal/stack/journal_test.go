package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
	"xlane/internal/testenv"
)

func TestOneHolderOfALockAtATime(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, "1-eth0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(dir, "1-eth0"); !errors.Is(err, ErrManaged) || !strings.HasSuffix(err.Error(), fmt.Sprintf("by process %d", os.Getpid())) {
		t.Errorf("a second: %v", err)
	}
	if err := managed(dir, "1-eth0"); !errors.Is(err, ErrManaged) {
		t.Errorf("asked without taking it: %v", err)
	}
	if err := managed(dir, "2-eth0"); err != nil {
		t.Errorf("a device that nobody has: %v", err)
	}
	j.close()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left without a record: %v", left)
	}
	if err := managed(dir, "1-eth0"); err != nil {
		t.Errorf("after it was given up: %v", err)
	}
}

// Goal: a holder's removal of its lock file never lets two others in. Method:
// many take and give up one lock at a time, and count who is inside.
func TestALockThatIsRemovedExcludesStill(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	inside, most, taken := 0, 0, 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				j, err := openJournal(dir, "1-eth0")
				if err != nil {
					continue
				}
				mu.Lock()
				inside, taken = inside+1, taken+1
				most = max(most, inside)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				j.close()
			}
		})
	}
	wg.Wait()
	if most != 1 || taken == 0 {
		t.Errorf("%d were inside at one time, %d in all", most, taken)
	}
}

func TestABadRecordIsSaidAndKept(t *testing.T) {
	for _, text := range []string{"", "{", `{"version": 2}`, `{"version": 1, "settings": 7}`} {
		t.Run(text, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "1-eth0.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := openJournal(dir, "1-eth0")
			if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != text {
				t.Errorf("the record is %q now (%v)", now, err)
			}
			if err := managed(dir, "1-eth0"); err != nil {
				t.Errorf("the lock is still held: %v", err)
			}
		})
	}
}

// sack is a sysctl of a namespace, changed through a journal.
func sack(t *testing.T, j *journal, ns *netns.Handle, to string) *setting.Host {
	t.Helper()
	h, err := setting.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := h.Set(j, setting.Sysctl, "", "net.ipv4.tcp_comp_sack_nr", to); err != nil {
		t.Fatal(err)
	}
	return h
}

func journalFor(t *testing.T, dir string, ns *netns.Handle) *journal {
	t.Helper()
	j, err := openJournal(dir, "1-lo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.close)
	if err := j.meet(ns); err != nil {
		t.Fatal(err)
	}
	if err := j.begin(Record{Device: "lo", NS: ns.ID(), Ifindex: 1}); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestUndoPutsBackWhatAnotherProcessRecorded(t *testing.T) {
	testenv.Lab(t)
	ns, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	dir := t.TempDir()
	j := journalFor(t, dir, ns)
	sack(t, j, ns, "3")
	sack(t, j, ns, "5") // the value that is put back is the one found first
	j.close()
	next, err := openJournal(dir, "1-lo")
	if err != nil {
		t.Fatal(err)
	}
	defer next.close()
	if prior, err := next.dropStale(ns, 1); err != nil || !prior {
		t.Fatalf("prior %v, %v", prior, err)
	}
	done, err := next.undo(0, ns)
	if err != nil || done.PutBack != 1 || done.Gone != 0 || len(done.Left) != 0 || len(next.record.Settings) != 0 {
		t.Errorf("got %+v, %v, %d settings left", done, err, len(next.record.Settings))
	}
}

func TestARecordOfAnEarlierNamespaceOfThatNumberIsNotUsed(t *testing.T) {
	testenv.Lab(t)
	ns, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	j := journalFor(t, t.TempDir(), ns)
	sack(t, j, ns, "3")
	j.record.Cookies[ns.ID().String()]++ // as if it had died, and this had got its number
	done, err := j.undo(0, ns)
	if err != nil || done.Gone != 1 || done.PutBack != 0 {
		t.Errorf("undo: %+v, %v", done, err)
	}
	sack(t, j, ns, "4")
	if prior, err := j.dropStale(ns, 1); err != nil || prior || len(j.record.Settings) != 0 || len(j.record.Cookies) != 0 {
		t.Errorf("dropStale: %v, %v, %+v", prior, err, j.record)
	}
}

func TestOnlyTheDevicesSettingsGoWithTheDevice(t *testing.T) {
	testenv.Lab(t)
	ns, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	j := journalFor(t, t.TempDir(), ns)
	sack(t, j, ns, "3")
	if err := j.Record(setting.Setting{Kind: setting.Feature, NS: ns.ID(), Device: "lo", Key: "rx-gro", From: "off", To: "on"}); err != nil {
		t.Fatal(err)
	}
	if prior, err := j.dropStale(ns, 2); err != nil || prior || len(j.record.Settings) != 1 || j.record.Settings[0].Kind != setting.Sysctl {
		t.Errorf("prior %v, %v: %v", prior, err, j.record.Settings)
	}
}

// Goal: a setting that somebody changed does not hide one that could not be
// put back, and what failed stays recorded.
func TestAFailureIsNotHiddenByASettingThatWasChanged(t *testing.T) {
	testenv.Lab(t)
	ns, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	j := journalFor(t, t.TempDir(), ns)
	h := sack(t, j, ns, "3")
	bad := setting.Setting{Kind: "nonsense", NS: ns.ID(), Key: "x", From: "1", To: "2"}
	if err := j.Record(bad); err != nil {
		t.Fatal(err)
	}
	other := &journal{path: filepath.Join(t.TempDir(), "other.json"), record: Record{Cookies: j.record.Cookies}}
	if err := h.Set(other, setting.Sysctl, "", "net.ipv4.tcp_comp_sack_nr", "9"); err != nil {
		t.Fatal(err)
	}
	done, err := j.undo(0, ns)
	if err == nil || errors.Is(err, setting.ErrChangedSince) || len(done.Left) != 1 {
		t.Errorf("got %+v, %v", done, err)
	}
	if len(j.record.Settings) != 1 || j.record.Settings[0].Kind != bad.Kind {
		t.Errorf("recorded still: %v", j.record.Settings)
	}
}

func TestANamespaceKeepsItsCookie(t *testing.T) {
	testenv.Lab(t)
	a, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := netns.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a1, err1 := cookie(a)
	a2, err2 := cookie(a)
	b1, err3 := cookie(b)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if a1 != a2 || a1 == b1 || a1 == 0 {
		t.Errorf("cookies %d, %d and %d", a1, a2, b1)
	}
}
