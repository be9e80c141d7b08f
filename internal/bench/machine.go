package bench

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machine says where a bench ran.
func machine(version string) Machine {
	m := Machine{CPU: runtime.GOARCH, Version: version}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	m.Idle = idle()
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		m.CPUs = runtime.NumCPU()
		return m
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(key) {
		case "processor":
			m.CPUs++
		case "model name":
			m.CPU = strings.TrimSpace(value)
		}
	}
	return m
}

// idle says how CPUs wait for work. It matters because a transaction of an
// otherwise idle pair of hosts is mostly two CPUs waking up: on a virtual
// machine that halts at once that takes twice as long as on one that polls first.
func idle() string {
	var parts []string
	for _, name := range []string{"current_driver", "current_governor"} {
		if text, err := os.ReadFile("/sys/devices/system/cpu/cpuidle/" + name); err == nil {
			parts = append(parts, strings.TrimSpace(string(text)))
		}
	}
	if text, err := os.ReadFile("/sys/module/haltpoll/parameters/guest_halt_poll_ns"); err == nil && len(parts) > 0 {
		parts = append(parts, "guest_halt_poll_ns "+strings.TrimSpace(string(text)))
	}
	return strings.Join(parts, ", ")
}

// pinSelf moves this process, which is the daemon in most modes, to the
// server's CPU: a daemon's work is the server's to pay. It returns how to undo
// that. Threads that start later are where their starter is.
func pinSelf(cpu int) (undo func() error, err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read own CPUs: %w", err)
	}
	var one unix.CPUSet
	one.Set(cpu)
	if err := everyThread(&one); err != nil {
		return nil, errors.Join(err, everyThread(&before))
	}
	return func() error { return everyThread(&before) }, nil
}

// everyThread goes over the threads twice: one that started during the first
// time may have been missed.
func everyThread(set *unix.CPUSet) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list own threads: %w", err)
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("choose own CPUs: %w", err)
			}
		}
	}
	return nil
}
