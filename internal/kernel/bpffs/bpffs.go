// Package bpffs provides the file system in which BPF programs and maps stay
// alive without a process: it mounts one when there is none, and makes, lists
// and removes the directories below it that are ours. What is pinned there it
// leaves to the data planes.
package bpffs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// Root is where every distribution mounts the BPF file system.
	Root = "/sys/fs/bpf"
	// Top is the one directory below Root that is ours.
	Top = "xlane"
)

// FS is a mounted BPF file system.
type FS struct {
	Path string
	// Mounted reports that Ensure mounted it, so that putting the host back may
	// include Unmount.
	Mounted bool
}

// IsMounted reports whether path is in a BPF file system.
func IsMounted(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("examine %q: %w", path, err)
	}
	return uint32(st.Type) == unix.BPF_FS_MAGIC, nil
}

// Ensure mounts a BPF file system at path, an existing directory, unless there
// is one. The mount is open to root alone.
func Ensure(path string) (FS, error) {
	mounted, err := IsMounted(path)
	if err != nil {
		return FS{}, err
	}
	if mounted {
		return FS{Path: path}, nil
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME)
	if err := unix.Mount("bpf", path, "bpf", flags, "mode=0700"); err != nil {
		return FS{}, fmt.Errorf("mount BPF file system at %q: %w", path, err)
	}
	return FS{Path: path, Mounted: true}, nil
}

// Unmount undoes Ensure, if that mounted. It fails with EBUSY while anything
// below is open, and everything pinned there is lost.
func (f FS) Unmount() error {
	if !f.Mounted {
		return nil
	}
	if err := unix.Unmount(f.Path, 0); err != nil {
		return fmt.Errorf("unmount BPF file system at %q: %w", f.Path, err)
	}
	return nil
}

// Escape makes any name fit to be one element of a path there: the file system
// refuses names with a dot (bpf_lookup in kernel/bpf/inode.c), which devices
// such as "eth0.7" have. Different names stay different.
func Escape(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; c {
		case '.', '/', '%', 0:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Locate returns the path of a directory or pin below Top; elements are
// escaped, and empty ones refused. It touches nothing.
func (f FS) Locate(elements ...string) (string, error) {
	path := filepath.Join(f.Path, Top)
	for _, e := range elements {
		if e == "" {
			return "", fmt.Errorf("locate pin %q: an element is empty", elements)
		}
		path = filepath.Join(path, Escape(e))
	}
	return path, nil
}

// MakeDir makes a directory below Top, with those above it, for root alone,
// and returns its path. One that exists is fine.
func (f FS) MakeDir(elements ...string) (string, error) {
	path, err := f.Locate(elements...)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make pin directory: %w", err)
	}
	return path, nil
}

// List returns the names in a directory below Top in ascending order, as they
// are there (escaped). A directory that does not exist is empty.
func (f FS) List(elements ...string) ([]string, error) {
	path, err := f.Locate(elements...)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pin directory: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, nil
}

// Remove unpins everything in and below a directory, and removes it; without
// elements, everything of ours. What the pins kept alive ends unless a process
// holds it. One that does not exist is fine.
func (f FS) Remove(elements ...string) error {
	path, err := f.Locate(elements...)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove pin directory: %w", err)
	}
	return nil
}
