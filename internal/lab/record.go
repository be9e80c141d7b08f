package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// recordDir holds a file NAME.json for every lab that exists or was left over.
const recordDir = "/run/xlane/lab"

// stopPoll is how often Stop looks whether its context has ended.
const stopPoll = 200 * time.Millisecond

// record is what is written about a lab before anything of it is made.
type record struct {
	Name string `json:"name"`
	// PID and StartTicks name the creator, also after its id was reused.
	PID        int      `json:"pid"`
	StartTicks uint64   `json:"start_ticks"`
	Kept       bool     `json:"kept,omitempty"`
	NetNS      []string `json:"netns"`
}

func (r *record) path() string { return filepath.Join(recordDir, r.Name+".json") }

// create writes the record; a name that is taken is os.ErrExist. The record
// appears whole or not at all.
func (r *record) create() error {
	return r.write(os.Link)
}

// update replaces the record as a whole.
func (r *record) update() error {
	return r.write(os.Rename)
}

func (r *record) write(place func(from, to string) error) error {
	if err := os.MkdirAll(recordDir, 0o755); err != nil {
		return fmt.Errorf("record lab: %w", err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record lab: %w", err)
	}
	draft, err := os.CreateTemp(recordDir, r.Name+".*")
	if err != nil {
		return fmt.Errorf("record lab: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(append(text, '\n'))
	if err = errors.Join(err, draft.Close()); err != nil {
		return fmt.Errorf("record lab: %w", err)
	}
	if err := place(draft.Name(), r.path()); err != nil {
		return fmt.Errorf("record lab: %w", err)
	}
	return nil
}

func (r *record) remove() error {
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}

// creatorLives reports whether the process that made the lab still runs.
func (r *record) creatorLives() (bool, error) {
	start, err := startTicks(r.PID)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return start == r.StartTicks, err
}

// clean removes what the dead creator of a lab left: processes first, because
// they hold the namespaces; a namespace takes its devices with it.
func (r *record) clean() error {
	var errs []error
	for _, name := range r.NetNS {
		// A record is a file that somebody may have edited: only names of this
		// lab are paths that may be removed.
		if !strings.HasPrefix(name, r.Name+"-") || filepath.Base(name) != name {
			errs = append(errs, fmt.Errorf("namespace %q is not of this lab", name))
			continue
		}
		path := filepath.Join(netnsDir, name)
		errs = append(errs, killInside(path), removeName(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean lab %q: %w", r.Name, err)
	}
	return r.remove()
}

// records reads all records, in the order of their names. One that vanishes
// meanwhile belongs to a lab that is being closed.
func records() ([]*record, error) {
	paths, err := filepath.Glob(filepath.Join(recordDir, namePrefix+"*.json"))
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	slices.Sort(paths)
	var all []*record
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list labs: %w", err)
		}
		r := &record{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("read lab record %s: %w", path, err)
		}
		if r.Name+".json" != filepath.Base(path) {
			return nil, fmt.Errorf("read lab record %s: it is of lab %q", path, r.Name)
		}
		all = append(all, r)
	}
	return all, nil
}

// Down removes every lab whose creator has died, with the processes that run
// in it, and returns the names of the labs that it removed. Labs whose creator
// lives are left alone.
func Down(ctx context.Context) ([]string, error) {
	all, err := records()
	if err != nil {
		return nil, err
	}
	var gone []string
	var errs []error
	for _, r := range all {
		if err := ctx.Err(); err != nil {
			return gone, errors.Join(append(errs, err)...)
		}
		lives, err := r.creatorLives()
		if lives || err != nil {
			errs = append(errs, err)
			continue
		}
		if err := r.clean(); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, r.Name)
	}
	return gone, errors.Join(errs...)
}

// Kept lists the labs whose creator lives only to keep them (Config.Kept).
func Kept() ([]string, error) {
	all, err := records()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range all {
		lives, err := r.creatorLives()
		if err != nil {
			return nil, err
		}
		if r.Kept && lives {
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// Stop removes one lab. The creator of a kept lab gets SIGTERM and is waited
// for as long as ctx allows; of any other it must have died, because a lab is
// not taken away from a program that uses it. name may lack its prefix. No
// lab of that name is os.ErrNotExist. It returns the lab's full name.
func Stop(ctx context.Context, name string) (string, error) {
	full, err := fullName(name)
	if err != nil {
		return name, err
	}
	all, err := records()
	if err != nil {
		return full, err
	}
	i := slices.IndexFunc(all, func(r *record) bool { return r.Name == full })
	if i < 0 {
		return full, fmt.Errorf("stop lab %q: there is none: %w", full, os.ErrNotExist)
	}
	r := all[i]
	if err := r.endCreator(ctx); err != nil {
		return full, fmt.Errorf("stop lab %q: %w", full, err)
	}
	// The creator has removed all of it, unless it was killed otherwise.
	return full, r.clean()
}

func (r *record) endCreator(ctx context.Context) error {
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", r.PID, err)
	}
	defer unix.Close(fd)
	lives, err := r.creatorLives()
	if !lives || err != nil {
		return err
	}
	if !r.Kept {
		return fmt.Errorf("process %d uses it; stop that process", r.PID)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", r.PID, err)
	}
	for !awaitExit(fd, stopPoll) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for process %d: %w", r.PID, err)
		}
	}
	return nil
}
