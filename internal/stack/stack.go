// Package stack is the loop: observe, decide, apply, undo. It owns every
// lifetime of a daemon: the adapters, their watches, the record of what was
// changed, and the putting back. It decides nothing itself: how long to hold
// is policy's, which queue a packet belongs on is the sorter's, and how a
// device is handled is its adapter's.
package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"xlane/internal/api"
	"xlane/internal/kernel/netns"
	"xlane/internal/model"
	"xlane/internal/profile"
)

// Config is what a daemon is started with.
type Config struct {
	Interfaces []profile.Interface
	Version    string
	// StateDir is where records are kept; "" means StateDir.
	StateDir string
	// PinRoot is a BPF file system; "" means the usual one, mounted if need be.
	PinRoot string
	Log     *slog.Logger
	// Clock is read for timestamps and intervals; nil means time.Now.
	Clock func() time.Time
}

// Stack is a running daemon.
type Stack struct {
	cfg        Config
	started    time.Time
	interfaces []*iface
}

// interfacesMax bounds one daemon.
const interfacesMax = 64

// Managed returns an error that wraps ErrManaged, and names the device and the
// process, when another daemon has one of the devices. It changes nothing, and
// what else may be wrong is for Start to say.
func Managed(cfg Config) error {
	if cfg.StateDir == "" {
		cfg.StateDir = StateDir
	}
	for _, in := range cfg.Interfaces {
		ns, err := netns.Find(in.Netns)
		if err != nil {
			continue
		}
		err = managed(cfg.StateDir, key(ns, in.Device))
		ns.Close()
		if err != nil {
			return fmt.Errorf("device %q %w", in.Device, err)
		}
	}
	return nil
}

// Start takes every interface over, or none: what was done for the others is
// undone when one fails.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if cfg.StateDir == "" {
		cfg.StateDir = StateDir
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Interfaces) == 0 || len(cfg.Interfaces) > interfacesMax {
		return nil, fmt.Errorf("manage %d devices: name 1 to %d", len(cfg.Interfaces), interfacesMax)
	}
	s := &Stack{cfg: cfg, started: cfg.Clock()}
	for i := range cfg.Interfaces {
		in, err := begin(ctx, &s.cfg, cfg.Interfaces[i])
		if err != nil {
			var undo []error
			for j := len(s.interfaces) - 1; j >= 0; j-- {
				undo = append(undo, s.interfaces[j].restore(context.WithoutCancel(ctx)))
			}
			if failed := errors.Join(undo...); failed != nil {
				return nil, errors.Join(err, failed)
			}
			return nil, err
		}
		s.interfaces = append(s.interfaces, in)
	}
	return s, nil
}

// Run drives the interfaces until the context ends, then puts everything back.
// It returns an error when the last interface is lost, or when something could
// not be put back.
func (s *Stack) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(s.interfaces))
	for i, in := range s.interfaces {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = in.run(ctx)
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Snapshot implements api.Source.
func (s *Stack) Snapshot(ctx context.Context, q api.Query) (model.Snapshot, error) {
	snap := model.Snapshot{
		Taken:  s.cfg.Clock(),
		Daemon: model.Daemon{Version: s.cfg.Version, PID: os.Getpid(), Started: s.started},
	}
	for _, in := range s.interfaces {
		if q.Device != "" && q.Device != in.cfg.Device {
			continue
		}
		view, err := in.snapshot(ctx, q)
		if err != nil {
			return snap, err
		}
		snap.Interfaces = append(snap.Interfaces, view)
	}
	return snap.Canonical(), nil
}

// Reset removes what daemons that are no longer running left behind, and puts
// the host back as their records say. It reports what it did, a line each.
func Reset(ctx context.Context, cfg Config, report func(string)) error {
	if cfg.StateDir == "" {
		cfg.StateDir = StateDir
	}
	records, err := filepath.Glob(filepath.Join(cfg.StateDir, "*.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range records {
		errs = append(errs, reset(ctx, cfg.StateDir, strings.TrimSuffix(filepath.Base(path), ".json"), report))
	}
	n, err := undoOLM()
	if n > 0 {
		report(fmt.Sprintf("%d applications no longer poll the primary queue", n))
	}
	return errors.Join(append(errs, err)...)
}

func reset(ctx context.Context, dir, key string, report func(string)) error {
	j, err := openJournal(dir, key)
	if errors.Is(err, ErrManaged) {
		_, device, _ := strings.Cut(key, "-")
		report(fmt.Sprintf("device %q %v: left alone", device, err))
		return nil
	}
	if err != nil {
		return err
	}
	if j.record.Version == 0 { // its daemon has just finished
		j.close()
		return nil
	}
	done, err := resetOne(ctx, j)
	if err != nil {
		j.close()
		return fmt.Errorf("put back %q: %w", j.record.Device, err)
	}
	line := fmt.Sprintf("device %q in namespace %q: %d settings put back", j.record.Device, j.record.Netns, done.PutBack)
	if done.Gone > 0 {
		line += fmt.Sprintf(", %d gone with their device", done.Gone)
	}
	report(line)
	for _, left := range done.Left {
		report(fmt.Sprintf("device %q: left alone: %v", j.record.Device, left))
	}
	return j.finish()
}
