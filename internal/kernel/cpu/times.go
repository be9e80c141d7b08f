package cpu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is one unit of /proc/stat: USER_HZ is 100 on every Linux architecture
// that Go supports (proc_stat(5)).
const tick = time.Second / 100

// Times is how long each CPU had been idle by one moment.
type Times struct {
	// At is read from the caller's clock just before the counters.
	At time.Time
	// Idle holds each online CPU's idle time since boot, with the time spent
	// idle while waiting for a disk, in steps of 10 ms. The kernel accumulates
	// it exactly and rounds only what it prints, which is why busy time is wall
	// time less idle time: the busy columns are sampled by the timer tick.
	Idle map[int]time.Duration
}

// Read reads /proc/stat. The clock must be monotonic; time.Now is.
func Read(clock func() time.Time) (Times, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return Times{}, fmt.Errorf("read CPU times: %w", err)
	}
	defer f.Close()
	at := clock()
	idle, err := parseStat(f)
	if err != nil {
		return Times{}, fmt.Errorf("read CPU times: %w", err)
	}
	return Times{At: at, Idle: idle}, nil
}

// parseStat takes columns 4 and 5 (idle, iowait) of each "cpuN" line. These
// come first in the file; the interrupt line after them has a number per
// interrupt and no useful bound.
func parseStat(r io.Reader) (map[int]time.Duration, error) {
	idle := make(map[int]time.Duration)
	in := bufio.NewReader(r)
	for {
		if word, err := in.Peek(len("cpu")); err != nil || string(word) != "cpu" {
			break
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(line)
		if fields[0] == "cpu" {
			continue // the sum of all
		}
		n, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || len(fields) < 6 {
			return nil, fmt.Errorf("line %q is not as expected", strings.TrimSpace(line))
		}
		for _, column := range fields[4:6] {
			ticks, err := strconv.ParseUint(column, 10, 63)
			if err != nil {
				return nil, fmt.Errorf("idle time of %s: %w", fields[0], err)
			}
			idle[n] += time.Duration(ticks) * tick
		}
	}
	if len(idle) == 0 {
		return nil, errors.New("no CPU is listed")
	}
	return idle, nil
}

// Busy returns how long each CPU worked between two readings: wall time less
// idle time, never below zero nor above the wall time. A CPU that is missing
// from either reading, having gone offline, is missing from the answer.
func Busy(before, after Times) map[int]time.Duration {
	wall := after.At.Sub(before.At)
	busy := make(map[int]time.Duration, len(after.Idle))
	for n, idle := range after.Idle {
		if was, ok := before.Idle[n]; ok {
			busy[n] = min(max(wall-(idle-was), 0), wall)
		}
	}
	return busy
}
