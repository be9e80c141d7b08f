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
	Ifindex  int               `json:"ifindex"`
	PinDir   string            `json:"pin_dir"`
	PID      int               `json:"pid"`
	Started  time.Time         `json:"started"`
	Settings []setting.Setting `json:"settings"`
	// Cookies tell the namespaces of Settings, by ID, from later ones that got
	// the same ID.
	Cookies map[string]uint64 `json:"netns_cookies"`
}

// journal is one device's record on disk, and the lock that says who has it.
type journal struct {
	path   string
	lock   *os.File
	record Record
}

// ErrManaged says that another daemon has the device.
var ErrManaged = errors.New("is already managed")

// lockTries bounds how often a lock file that was removed between opening and
// locking it is opened anew; each time, somebody else has just finished.
const lockTries = 10

// openJournal takes the device's lock and reads what an earlier daemon left.
func openJournal(dir, key string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	j := &journal{path: filepath.Join(dir, key+".json")}
	var err error
	if j.lock, err = takeLock(filepath.Join(dir, key+".lock")); err != nil {
		return nil, err
	}
	if err := j.read(); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// takeLock locks the file at path and writes who has it into it.
func takeLock(path string) (*os.File, error) {
	for range lockTries {
		lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock: %w", err)
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			defer lock.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, managedBy(lock)
			}
			return nil, fmt.Errorf("take the lock %s: %w", path, err)
		}
		// Its holder removes it when it has finished: a lock on a file that
		// nobody else can open any more would exclude nobody.
		held, err := lock.Stat()
		if err != nil {
			lock.Close()
			return nil, fmt.Errorf("take the lock %s: %w", path, err)
		}
		if now, err := os.Stat(path); err != nil || !os.SameFile(held, now) {
			lock.Close()
			continue
		}
		if err := lock.Truncate(0); err == nil {
			// Only for the other's error message.
			fmt.Fprintf(lock, "%d\n", os.Getpid())
		}
		return lock, nil
	}
	return nil, fmt.Errorf("take the lock %s: it was removed %d times meanwhile", path, lockTries)
}

func managedBy(lock *os.File) error {
	who := make([]byte, 20)
	n, _ := lock.ReadAt(who, 0)
	pid := strings.TrimSpace(string(who[:n]))
	if pid == "" {
		return ErrManaged // it has the lock, and has not written yet
	}
	return fmt.Errorf("%w by process %s", ErrManaged, pid)
}

// managed returns an error that wraps ErrManaged when a daemon has the device.
// It changes nothing.
func managed(dir, key string) error {
	lock, err := os.Open(filepath.Join(dir, key+".lock"))
	if err != nil {
		return nil // nobody has made one, or taking it will say what is wrong
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return managedBy(lock)
	}
	return nil
}

// read reads the record, if there is one. One that cannot be read is left as
// it is: it is all that is known of what to put back.
func (j *journal) read() error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &j.record)
	}
	if err == nil && j.record.Version != recordVersion {
		err = fmt.Errorf("it has version %d, and this is %d", j.record.Version, recordVersion)
	}
	if err != nil {
		return fmt.Errorf("read the record %s: %w; nothing was changed, and the file says what an earlier daemon changed", j.path, err)
	}
	return nil
}

// begin writes who manages what, before anything is changed.
func (j *journal) begin(r Record) error {
	r.Version, r.Settings, r.Cookies = recordVersion, j.record.Settings, j.record.Cookies
	j.record = r
	return j.write()
}

// meet notes by what cookie a namespace is known, once.
func (j *journal) meet(ns *netns.Handle) error {
	if j.record.Cookies == nil {
		j.record.Cookies = map[string]uint64{}
	}
	c, err := cookie(ns)
	if err == nil {
		j.record.Cookies[ns.ID().String()] = c
	}
	return err
}

// same reports whether a namespace is the one that the record means by its ID.
func (j *journal) same(ns *netns.Handle) (bool, error) {
	was, known := j.record.Cookies[ns.ID().String()]
	if !known {
		return false, nil
	}
	c, err := cookie(ns)
	return c == was, err
}

// Record writes a change down before it is made.
func (j *journal) Record(s setting.Setting) error {
	if _, met := j.record.Cookies[s.NS.String()]; !met {
		ns, err := openByID(s.NS, nil)
		if err != nil {
			return err
		}
		if ns == nil {
			return fmt.Errorf("write down %v: namespace %v cannot be found again", s, s.NS)
		}
		defer ns.Close()
		if err := j.meet(ns); err != nil {
			return err
		}
	}
	j.record.Settings = setting.Remember(j.record.Settings, s)
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
	defer j.close()
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record: %w", err)
	}
	return nil
}

// close lets go of the lock and keeps the record, if there is one.
func (j *journal) close() {
	if j.lock == nil {
		return
	}
	if _, err := os.Lstat(j.path); errors.Is(err, fs.ErrNotExist) {
		// While it is still locked, so that nobody has it but us.
		os.Remove(j.lock.Name())
	}
	j.lock.Close()
	j.lock = nil
}
