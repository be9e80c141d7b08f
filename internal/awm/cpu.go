package awm

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what a thread or process has used, in microseconds.
type cpuTime struct{ User, System int64 }

func (t cpuTime) minus(o cpuTime) cpuTime { return cpuTime{t.User - o.User, t.System - o.System} }
func (t cpuTime) total() int64            { return t.User + t.System }

func threadCPU() cpuTime  { return rusage(unix.RUSAGE_THREAD) }
func processCPU() cpuTime { return rusage(unix.RUSAGE_SELF) }

func rusage(who int) cpuTime {
	var r unix.Rusage
	// getrusage fails only for a wrong who or address.
	_ = unix.Getrusage(who, &r)
	return cpuTime{User: r.Utime.Nano() / 1000, System: r.Stime.Nano() / 1000}
}

// cpuIdle is the idle time of one CPU, in microseconds.
type cpuIdle struct {
	CPU  int
	Idle int64
}

// userHZ is the unit of /proc/stat: USER_HZ is 100 on every architecture that
// Go runs on (sysconf(_SC_CLK_TCK)).
const userHZ = 100

// readIdle reads how long each of the CPUs has been idle, waiting for I/O
// included. Idle time is exact on kernels with a tickless idle; busy time is
// sampled at the tick, aliases with timers, and is not used.
func readIdle(stat string, cpus []int) ([]cpuIdle, error) {
	var out []cpuIdle
	lines := bufio.NewScanner(strings.NewReader(stat))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		cpu, err := strconv.Atoi(f[0][3:])
		if err != nil || !slices.Contains(cpus, cpu) {
			continue
		}
		idle, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the idle time of CPU %d: %w", cpu, err)
		}
		wait, err := strconv.ParseInt(f[5], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the I/O wait of CPU %d: %w", cpu, err)
		}
		out = append(out, cpuIdle{CPU: cpu, Idle: (idle + wait) * 1_000_000 / userHZ})
	}
	return out, lines.Err()
}

// hostMark is a host's CPU use at one moment.
type hostMark struct {
	at      int64 // the clock, in nanoseconds
	process cpuTime
	idle    []cpuIdle
}

func markHost(clock func() int64, cpus []int) (hostMark, error) {
	m := hostMark{at: clock(), process: processCPU()}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, fmt.Errorf("read idle times: %w", err)
	}
	m.idle, err = readIdle(string(stat), cpus)
	return m, err
}

// hostBetween turns two marks into a report.
func hostBetween(a, b hostMark) HostReport {
	wall := (b.at - a.at) / 1000
	p := b.process.minus(a.process)
	h := HostReport{WallUs: wall, ProcessUserUs: p.User, ProcessSystemUs: p.System, CPUs: []CPUReport{}}
	for i, before := range a.idle {
		if i < len(b.idle) && b.idle[i].CPU == before.CPU {
			busy := min(max(wall-(b.idle[i].Idle-before.Idle), 0), wall)
			h.CPUs = append(h.CPUs, CPUReport{CPU: before.CPU, BusyUs: busy})
		}
	}
	return h
}

// ParseCPUs reads a list such as 0,2-3.
func ParseCPUs(list string) ([]int, error) {
	var cpus []int
	for _, part := range strings.Split(list, ",") {
		low, high, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(low)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(high)
		}
		// CPU_SETSIZE of sched.h.
		if err != nil || a < 0 || b < a || b >= 1024 {
			return nil, fmt.Errorf("CPU list %q: %q is not a CPU or a range; write 0,2-3", list, part)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, c)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// pinProcess keeps every thread of the process on these CPUs; threads that it
// makes later inherit it. With no CPUs it only says where the process may run.
func pinProcess(cpus []int) ([]int, error) {
	if len(cpus) > 0 {
		var set unix.CPUSet
		for _, c := range cpus {
			set.Set(c)
		}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return nil, fmt.Errorf("list the process's threads: %w", err)
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
				return nil, fmt.Errorf("pin a thread to CPUs %v: %w", cpus, err)
			}
		}
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs that this process may use: %w", err)
	}
	var got []int
	for c := 0; c < len(set)*64 && len(got) < set.Count(); c++ {
		if set.IsSet(c) {
			got = append(got, c)
		}
	}
	return got, nil
}

// procs counts the threads that need one of Go's processors each, over every
// run and server of the process.
var procs struct {
	sync.Mutex
	base, threads int
}

// reserveProcs raises GOMAXPROCS by n until the returned function is called.
// Without it a thread that comes back from epoll_wait could wait for a
// processor that another, busy one holds until Go preempts it (10 ms).
func reserveProcs(n int) (release func()) {
	change := func(d int) {
		procs.Lock()
		defer procs.Unlock()
		if procs.threads == 0 {
			procs.base = runtime.GOMAXPROCS(0)
		}
		procs.threads += d
		runtime.GOMAXPROCS(procs.base + procs.threads)
	}
	change(n)
	return sync.OnceFunc(func() { change(-n) })
}

// monotonic returns a clock that counts nanoseconds from now on.
func monotonic() func() int64 {
	base := time.Now()
	return func() int64 { return int64(time.Since(base)) }
}
