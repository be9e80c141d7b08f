// Package thread places and prioritises the kernel threads that poll queues:
// their CPUs, nice value and scheduling policy, and how long they ran. Which
// queue a thread serves comes from package napi; where it should run is
// decided elsewhere.
package thread

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/cpu"
)

// Policy is a scheduling policy (sched(7)).
type Policy uint32

// The policies that a polling thread may have.
const (
	Other Policy = unix.SCHED_NORMAL
	FIFO  Policy = unix.SCHED_FIFO
	RR    Policy = unix.SCHED_RR
)

// String returns the name that sched(7) uses.
func (p Policy) String() string {
	switch p {
	case Other:
		return "SCHED_OTHER"
	case FIFO:
		return "SCHED_FIFO"
	case RR:
		return "SCHED_RR"
	}
	return fmt.Sprintf("SCHED_%d", uint32(p))
}

// Priority is how urgently the scheduler runs a thread. The zero value is that
// of an ordinary thread.
type Priority struct {
	Policy Policy
	// Realtime is 1 (least) to 99 under FIFO and RR, and 0 under Other.
	Realtime int
	// Nice is -20 (most urgent) to 19 under Other. Under FIFO and RR the kernel
	// keeps the last value for a return to Other, and it must be left 0 here.
	Nice int
}

// String writes the priority for an operator.
func (p Priority) String() string {
	if p.Policy == FIFO || p.Policy == RR {
		return fmt.Sprintf("%s %d", p.Policy, p.Realtime)
	}
	return fmt.Sprintf("%s nice %d", p.Policy, p.Nice)
}

// Times is what the scheduler accounted to a thread since it started.
type Times struct {
	Ran        time.Duration
	Waited     time.Duration // ready to run, but not running
	Timeslices uint64
}

// Thread is the kernel thread of one NAPI.
type Thread struct {
	PID    int
	NAPIID uint32
}

// OfNAPI returns the thread that package napi reported for a NAPI, after
// making sure that the process of that number is it: the kernel names it
// "napi/DEVICE-ID". The number is in the initial PID namespace, so a process
// in a PID namespace of its own gets an error here, and no other process's
// thread is ever touched.
func OfNAPI(pid int, napiID uint32) (Thread, error) {
	t := Thread{PID: pid, NAPIID: napiID}
	if err := t.check(); err != nil {
		return Thread{}, fmt.Errorf("find thread of NAPI %d: %w", napiID, err)
	}
	return t, nil
}

// check reads the name again, because a NAPI's thread ends when its device
// goes down and its number may since belong to anybody.
func (t Thread) check() error {
	if t.PID <= 0 {
		return fmt.Errorf("it has none (%w)", unix.ESRCH)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(t.PID) + "/comm")
	if err != nil {
		return fmt.Errorf("process %d: %w", t.PID, unix.ESRCH)
	}
	name := strings.TrimSuffix(string(b), "\n")
	if !isNAPIName(name, t.NAPIID) {
		return fmt.Errorf("process %d is %q, not the thread of NAPI %d (%w)", t.PID, name, t.NAPIID, unix.ESRCH)
	}
	return nil
}

// isNAPIName knows the name that napi_kthread_create gives (net/core/dev.c).
// The device part is the name at that time, which may have changed.
func isNAPIName(name string, id uint32) bool {
	return strings.HasPrefix(name, "napi/") && strings.HasSuffix(name, "-"+strconv.FormatUint(uint64(id), 10))
}

// Affinity returns the CPUs that the thread may run on.
func (t Thread) Affinity() (cpu.Set, error) {
	if err := t.check(); err != nil {
		return cpu.Set{}, fmt.Errorf("read affinity: %w", err)
	}
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(t.PID, &mask); err != nil {
		return cpu.Set{}, fmt.Errorf("read affinity of thread %d: %w", t.PID, err)
	}
	var s cpu.Set
	for n := range cpu.Max {
		if mask.IsSet(n) {
			s = s.With(n)
		}
	}
	return s, nil
}

// SetAffinity lets the thread run on these CPUs only. At least one of them
// must be online.
func (t Thread) SetAffinity(cpus cpu.Set) error {
	if err := t.check(); err != nil {
		return fmt.Errorf("set affinity: %w", err)
	}
	var mask unix.CPUSet
	for _, n := range cpus.Members() {
		mask.Set(n)
	}
	if err := unix.SchedSetaffinity(t.PID, &mask); err != nil {
		return fmt.Errorf("set affinity of thread %d to CPUs %q: %w", t.PID, cpus, err)
	}
	return nil
}

// Priority returns the thread's policy and priority.
func (t Thread) Priority() (Priority, error) {
	if err := t.check(); err != nil {
		return Priority{}, fmt.Errorf("read priority: %w", err)
	}
	attr, err := unix.SchedGetAttr(t.PID, 0)
	if err != nil {
		return Priority{}, fmt.Errorf("read priority of thread %d: %w", t.PID, err)
	}
	p := Priority{Policy: Policy(attr.Policy), Realtime: int(attr.Priority), Nice: int(attr.Nice)}
	if p.Policy != Other {
		p.Nice = 0
	}
	return p, nil
}

// SetPriority changes policy, priority and nice value at once.
func (t Thread) SetPriority(p Priority) error {
	if err := t.check(); err != nil {
		return fmt.Errorf("set priority: %w", err)
	}
	// Realtime must not wrap into a large number on its way to the kernel.
	if p.Realtime < 0 || p.Realtime > 99 || p.Nice < -20 || p.Nice > 19 {
		return fmt.Errorf("set priority of thread %d to %v: realtime is 0 to 99 and nice -20 to 19", t.PID, p)
	}
	attr := unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   uint32(p.Policy),
		Priority: uint32(p.Realtime),
		Nice:     int32(p.Nice),
	}
	if err := unix.SchedSetAttr(t.PID, &attr, 0); err != nil {
		return fmt.Errorf("set priority of thread %d to %v: %w", t.PID, p, err)
	}
	return nil
}

// Times returns what the thread ran and waited.
func (t Thread) Times() (Times, error) {
	if err := t.check(); err != nil {
		return Times{}, fmt.Errorf("read run time: %w", err)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(t.PID) + "/schedstat")
	if err != nil {
		return Times{}, fmt.Errorf("read run time of thread %d: %w", t.PID, err)
	}
	return parseSchedstat(string(b))
}

// Meter reads the times of one thread again and again, at a tenth of the cost
// of Times: it stays with the thread that it was made for, and fails with ESRCH
// when that has ended.
type Meter struct{ file *os.File }

// Meter returns a meter of the thread. The caller closes it.
func (t Thread) Meter() (*Meter, error) {
	file, err := os.Open("/proc/" + strconv.Itoa(t.PID) + "/schedstat")
	if err != nil {
		return nil, fmt.Errorf("open the run time of thread %d: %w", t.PID, err)
	}
	// The file belongs to whatever had the number when it was opened; the
	// name tells whether that was this thread.
	if err := t.check(); err != nil {
		file.Close()
		return nil, fmt.Errorf("open the run time of thread %d: %w", t.PID, err)
	}
	return &Meter{file}, nil
}

// Times returns what the thread ran and waited.
func (m *Meter) Times() (Times, error) {
	var buf [96]byte // three numbers of at most 20 digits
	n, err := m.file.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Times{}, fmt.Errorf("read run time: %w", err)
	}
	return parseSchedstat(string(buf[:n]))
}

// Close lets go of the thread.
func (m *Meter) Close() error { return m.file.Close() }

// parseSchedstat reads run ns, wait ns and timeslices
// (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat).
func parseSchedstat(s string) (Times, error) {
	fields := strings.Fields(s)
	if len(fields) != 3 {
		return Times{}, fmt.Errorf("read schedstat %q: want three numbers", strings.TrimSpace(s))
	}
	var v [3]uint64
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil {
			return Times{}, fmt.Errorf("read schedstat %q: %w", strings.TrimSpace(s), err)
		}
		v[i] = n
	}
	return Times{Ran: time.Duration(v[0]), Waited: time.Duration(v[1]), Timeslices: v[2]}, nil
}
