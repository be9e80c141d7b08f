package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killRounds bounds how often a namespace is searched for processes: one
	// that is forking when it is killed leaves a child for the next round.
	killRounds = 50
	// killWait is how long one killed process may take to end.
	killWait = 5 * time.Second
)

// killInside kills every process whose main thread is in the namespace that
// is bound at path, and waits for each. A process that merely has threads or
// sockets inside, as the lab's creator does, is not touched.
func killInside(path string) error {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("stat namespace %s: %w", path, err)
	}
	for range killRounds {
		inside, err := processesIn(want)
		if err != nil || len(inside) == 0 {
			return err
		}
		for _, pid := range inside {
			if err := killOne(pid, want); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("kill processes in %s: still some after %d rounds", path, killRounds)
}

func processesIn(ns unix.Stat_t) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && isIn(pid, ns) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isIn answers false for a process that is ending: it has let go already.
func isIn(pid int, ns unix.Stat_t) bool {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid), "ns/net"), &st)
	return err == nil && st.Dev == ns.Dev && st.Ino == ns.Ino
}

// killOne takes a pidfd before it looks again, so that a process id that was
// given to somebody else in between is not killed.
func killOne(pid int, ns unix.Stat_t) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !isIn(pid, ns) {
		return nil
	}
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	if !awaitExit(fd, killWait) {
		return fmt.Errorf("kill process %d: it has not ended after %v", pid, killWait)
	}
	return nil
}

// awaitExit reports whether the process behind a pidfd ended within limit.
func awaitExit(pidfd int, limit time.Duration) bool {
	end := time.Now().Add(limit)
	for {
		left := time.Until(end)
		if left < 0 {
			return false
		}
		ts := unix.NsecToTimespec(int64(left))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, &ts, nil)
		if n == 1 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// startTicks returns when a process started, in clock ticks since boot, which
// with its id names it for good. A process that has ended, or is a zombie, is
// os.ErrNotExist.
func startTicks(pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	// proc_pid_stat(5): "pid (comm) state ppid ...", start is field 22, and
	// comm may hold blanks and brackets, so count from its last bracket.
	const startField, firstField = 22, 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= startField-firstField {
		return 0, fmt.Errorf("read start of process %d: unknown format", pid)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return 0, fmt.Errorf("read start of process %d: %w", pid, os.ErrNotExist)
	}
	return strconv.ParseUint(string(fields[startField-firstField]), 10, 64)
}
