package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/setting"
)

// StateDir is where the record of changes is kept: gone after a reboot, as are
// the changes.
const StateDir = "/run/xlane"

// recordVersion is the format of the record.
const recordVersion = 1

// Record is what is written down about one managed device.
type Record struct {
	Version  int               `json:"version"`
	Device   string            `json:"device"`
	Netns    string            `json:"netns"` // as the operator wrote it
	NS       netns.ID          `json:"netns_id"`
	Adapter  string            `json:"adapter"`
	PinDir   string            `json:"pin_dir"`
	PID      int               `json:"pid"`
	Started  time.Time         `json:"started"`
	Settings []setting.Setting `json:"settings"`
}

// journal is one device's record on disk, and the lock that says who has it.
type journal struct {
	path   string
	lock   *os.File
	record Record
}

// ErrManaged says that another daemon has the device.
var ErrManaged = errors.New("is already managed")

// openJournal takes the device's lock and reads what an earlier daemon left.
func openJournal(dir, key string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	j := &journal{path: filepath.Join(dir, key+".json")}
	lock, err := os.OpenFile(filepath.Join(dir, key+".lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		who := make([]byte, 20)
		n, _ := lock.ReadAt(who, 0)
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w by process %s", ErrManaged, strings.TrimSpace(string(who[:n])))
		}
		return nil, fmt.Errorf("take the lock: %w", err)
	}
	j.lock = lock
	if err := lock.Truncate(0); err == nil {
		fmt.Fprintf(lock, "%d\n", os.Getpid())
	}
	text, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &j.record)
	}
	if err == nil && j.record.Version != recordVersion {
		err = fmt.Errorf("it has version %d, this is %d", j.record.Version, recordVersion)
	}
	if err != nil {
		j.close()
		return nil, fmt.Errorf("read the record %s: %w", j.path, err)
	}
	return j, nil
}

// begin writes who manages what, before anything is changed.
func (j *journal) begin(r Record) error {
	r.Version, r.Settings = recordVersion, j.record.Settings
	j.record = r
	return j.write()
}

// Record writes a change down before it is made.
func (j *journal) Record(s setting.Setting) error {
	for i, old := range j.record.Settings {
		if old.Kind == s.Kind && old.NS == s.NS && old.Device == s.Device && old.Key == s.Key {
			j.record.Settings[i].To = s.To
			return j.write()
		}
	}
	j.record.Settings = append(j.record.Settings, s)
	return j.write()
}

// Recorded returns what has not been undone.
func (j *journal) Recorded() []setting.Setting { return j.record.Settings }

// write replaces the file in one step.
func (j *journal) write() error {
	text, err := json.MarshalIndent(j.record, "", "  ")
	if err != nil {
		return err
	}
	tmp := j.path + ".new"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := os.Rename(tmp, j.path); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// finish removes the record: everything was put back.
func (j *journal) finish() error {
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record: %w", err)
	}
	os.Remove(j.lock.Name())
	j.close()
	return nil
}

// close lets go of the lock and keeps the record.
func (j *journal) close() {
	if j.lock != nil {
		j.lock.Close()
		j.lock = nil
	}
}

// undo puts every recorded setting back, last first, and returns what could
// not be. Namespaces that no longer exist need nothing.
func (j *journal) undo(known ...*netns.Handle) error {
	hosts := map[netns.ID]*setting.Host{}
	defer func() {
		for _, h := range hosts {
			if h != nil {
				h.Close()
			}
		}
	}()
	var errs []error
	for i := len(j.record.Settings) - 1; i >= 0; i-- {
		s := j.record.Settings[i]
		host, seen := hosts[s.NS]
		if !seen {
			host = openByID(s.NS, known)
			hosts[s.NS] = host
		}
		if host == nil {
			continue
		}
		if err := host.Undo(s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openByID opens the namespace with this identity, or returns nil when there
// is none any more.
func openByID(id netns.ID, known []*netns.Handle) *setting.Host {
	for _, ns := range known {
		if ns != nil && ns.ID() == id {
			if h, err := setting.Open(ns); err == nil {
				return h
			}
		}
	}
	ns, err := netns.Search(func(h *netns.Handle) (bool, error) { return h.ID() == id, nil })
	if err != nil || ns == nil {
		return nil
	}
	h, err := setting.Open(ns)
	if err != nil {
		ns.Close()
		return nil
	}
	return h
}
