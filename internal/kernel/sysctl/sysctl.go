// Package sysctl reads and writes the settings below net. of one namespace. It
// keeps no memory of what it changed; putting back is left to the caller.
// Settings outside net. belong to the whole machine and are refused, as are
// those below net. that the namespace does not have for the same reason.
package sysctl

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
)

// root is where the settings are. What it shows depends on the network
// namespace of the thread that looks.
const root = "/proc/sys"

// Read returns a setting's value, such as "44" for "net.ipv4.tcp_comp_sack_nr".
// Several values are separated by tabs, as the kernel writes them. A name that
// holds a device with a dot is written with slashes: "net/ipv4/conf/eth0.7/…".
func Read(ns *netns.Handle, name string) (string, error) {
	file, err := locate(name)
	if err != nil {
		return "", err
	}
	var value string
	err = ns.Do(func() error {
		b, err := os.ReadFile(file)
		value = strings.TrimSpace(string(b))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read %s in namespace %s: %w", name, ns, cause(err))
	}
	return value, nil
}

// Write changes a setting.
func Write(ns *netns.Handle, name, value string) error {
	file, err := locate(name)
	if err != nil {
		return err
	}
	err = ns.Do(func() error {
		// Never O_CREATE: a missing setting must say so.
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value + "\n")
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("set %s to %q in namespace %s: %w", name, value, ns, cause(err))
	}
	return nil
}

// locate turns a name into a file below root/net.
func locate(name string) (string, error) {
	relative := name
	if !strings.Contains(name, "/") {
		relative = strings.ReplaceAll(name, ".", "/")
	}
	if path.Clean(relative) != relative || !strings.HasPrefix(relative, "net/") {
		return "", fmt.Errorf("%q is not the name of a setting below net", name)
	}
	return path.Join(root, relative), nil
}

// cause keeps the kernel's words and drops the file's name.
func cause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		if errno == unix.ENOENT {
			return fmt.Errorf("no such setting there (%w)", errno)
		}
		return errno
	}
	return err
}
