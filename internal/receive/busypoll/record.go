package busypoll

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// recordVersion is the format of a record.
const recordVersion = 1

// recordsMax bounds how many records of killed daemons one Undo reads.
const recordsMax = 1024

// entry is one change, as the record holds it.
type entry struct {
	Epoll  bool   `json:"epoll"` // otherwise a socket
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"` // of the process, in clock ticks since boot
	FD     int    `json:"fd"`
	Cookie uint64 `json:"cookie,omitempty"` // of a socket
	From   int    `json:"from_usecs"`
	To     int    `json:"to_usecs"`
}

func (h *held) entry() entry {
	return entry{
		Epoll: h.who.kind == epoll, PID: h.who.proc.pid, Start: h.who.proc.start, FD: h.who.fd, Cookie: h.who.cookie,
		From: h.was, To: PollUsecs,
	}
}

// written is a record's file: who wrote it, and what it changed.
type written struct {
	Version     int    `json:"version"`
	DaemonPID   int    `json:"daemon_pid"`
	DaemonStart uint64 `json:"daemon_start"`
	Change      entry  `json:"change"`
}

// record is one engager's file. There is none while nothing is engaged.
type record struct{ dir, path string }

// add writes a change down before it is made.
func (r *record) add(e entry) error {
	me, err := identify(self)
	if err != nil {
		return fmt.Errorf("read own start time: %w", err)
	}
	text, err := json.Marshal(written{Version: recordVersion, DaemonPID: me.pid, DaemonStart: me.start, Change: e})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", r.dir, err)
	}
	// One write to a file of a new name: Undo never sees half of it, because
	// only the name it gets at the end is one it looks for.
	f, err := os.CreateTemp(r.dir, "engaged-*.new")
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = joinErr(err, f.Close())
	path := f.Name()[:len(f.Name())-len(".new")] + ".json"
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write the record: %w", err)
	}
	r.path = path
	return nil
}

// clear removes the file: the change was undone.
func (r *record) clear() error {
	if r.path == "" {
		return nil
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record: %w", err)
	}
	r.path = ""
	return nil
}

// remove clears, and removes the folder when nobody else has a record there.
func (r *record) remove() error {
	err := r.clear()
	_ = os.Remove(r.dir) // fails when it is not empty, or not there
	return err
}

// Undo puts back what engagers left that are no longer running, and returns
// how many changes that were. Processes, connections and epoll instances that
// have ended since need nothing.
func Undo(dir string) (int, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "engaged-*.json"))
	if err != nil {
		return 0, err
	}
	var errs []error
	undone := 0
	for _, path := range paths[:min(len(paths), recordsMax)] {
		did, err := undoOne(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("put back what %s says: %w", path, err))
			continue
		}
		if did {
			undone++
		}
	}
	_ = os.Remove(dir)
	return undone, errors.Join(errs...)
}

func undoOne(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return false, err
	}
	if w.Version != recordVersion {
		return false, fmt.Errorf("it has version %d, this is %d", w.Version, recordVersion)
	}
	if (process{pid: w.DaemonPID, start: w.DaemonStart}).alive() {
		return false, nil
	}
	if err := w.Change.undo(); err != nil && !isGone(err) && !errors.Is(err, errOther) {
		return false, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// undo puts one change back if it is still there. The epoll instance is known
// by its process and descriptor; should the application have made another one
// under that number, and set the very time that we set, it would be reset.
func (e entry) undo() error {
	p := process{pid: e.PID, start: e.Start}
	if !e.Epoll {
		return changeSocket(p, e.FD, e.Cookie, e.To, e.From)
	}
	dup, err := p.borrow(e.FD)
	if err != nil {
		return err
	}
	defer unix.Close(dup)
	if where, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dup)); err != nil || where != eventpollLink {
		return nil
	}
	return changeEpoll(dup, e.To, e.From)
}
