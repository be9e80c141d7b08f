package stack

import (
	"fmt"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/netns"
)

// cookie returns the namespace's number that is never given again until the
// next boot (SO_NETNS_COOKIE, Linux 5.14). Inode numbers, which ID holds, are:
// the kernel gives a new namespace the lowest that is free, often that of the
// one which died last, and a record must not be applied to a stranger.
func cookie(ns *netns.Handle) (uint64, error) {
	var c uint64
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		c, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("identify namespace %v: %w", ns, err)
	}
	return c, nil
}

// openByID opens the namespace that has this identity now: one of those known,
// or one that can be found. It returns nil when there is none any more.
func openByID(id netns.ID, known []*netns.Handle) (*netns.Handle, error) {
	for _, ns := range known {
		if ns != nil && ns.ID() == id {
			return ns.Clone()
		}
	}
	ns, err := netns.Search(func(h *netns.Handle) (bool, error) { return h.ID() == id, nil })
	if err != nil {
		return nil, fmt.Errorf("look for namespace %v: %w", id, err)
	}
	return ns, nil
}
