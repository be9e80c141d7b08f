package busypoll

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fdinfoBytesMax bounds what is read about one epoll instance: 64 KB for each
// thousand of its descriptors, and more than DefaultLimits has of them.
const fdinfoBytesMax = 1 << 20

// owner is where a socket was found.
type owner struct {
	proc process
	fd   int
}

// search is one walk through /proc.
type search struct {
	e       *Engager
	t       *table
	fds     int // still allowed
	owners  map[uint32]owner
	waiters []waiter
	inEpoll map[uint32]bool
}

// find walks through the namespace's processes and picks who should poll.
func (e *Engager) find(primary uint32) (*waiter, string) {
	s := &search{e: e, t: e.table, fds: e.cfg.Limits.FDs, owners: map[uint32]owner{}, inEpoll: map[uint32]bool{}}
	pids, err := e.processes()
	if err != nil {
		return nil, err.Error()
	}
	for _, pid := range pids {
		s.process(pid)
	}
	busiest := e.table.busiest(e.cfg.Limits.Asked)
	napi := map[uint32]uint32{}
	for _, ino := range busiest {
		o, ok := s.owners[ino]
		if !ok {
			continue
		}
		if !s.inEpoll[ino] {
			s.waiters = append(s.waiters, waiter{
				kind: socket, proc: o.proc, fd: o.fd, inode: ino, cookie: e.table.socks[ino].cookie, active: []uint32{ino},
			})
		}
		if id, err := napiOf(o, ino); err == nil {
			napi[ino] = id
		} else if isDenied(err) {
			e.counts.Denied++
		}
	}
	var current *waiter
	if e.held != nil {
		current = &e.held.who
	}
	return pick(s.waiters, e.table, napi, primary, current)
}

// processes lists the processes whose network namespace is the engager's.
func (e *Engager) processes() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	id, looked := e.cfg.NS.ID(), 0
	var out []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		if looked++; looked > e.cfg.Limits.Processes {
			e.counts.RefusedProcesses++
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+name+"/ns/net", &st) == nil && st.Ino == id.Ino && st.Dev == id.Dev {
			out = append(out, pid)
		}
	}
	return out, nil
}

// process looks through one process's descriptors. One that ends meanwhile, or
// has too many of them, adds nothing.
func (s *search) process(pid int) {
	proc, err := identify(pid)
	if err != nil {
		return
	}
	fds, ok := s.descriptors(pid)
	if !ok {
		return
	}
	epolls := 0
	link := make([]byte, 64)
	for _, fd := range fds {
		n, err := unix.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), link)
		if err != nil {
			continue
		}
		switch where := string(link[:n]); {
		case where == eventpollLink:
			if epolls++; epolls > s.e.cfg.Limits.Epolls {
				s.e.counts.RefusedEpolls++
				continue
			}
			s.epoll(proc, fd)
		case strings.HasPrefix(where, "socket:["):
			ino, err := strconv.ParseUint(strings.TrimSuffix(where[len("socket:["):], "]"), 10, 32)
			if err == nil && s.t.socks[uint32(ino)].recent > 0 {
				s.owners[uint32(ino)] = owner{proc, fd}
			}
		}
	}
}

func (s *search) descriptors(pid int) ([]int, bool) {
	limit := min(s.e.cfg.Limits.FDsPerProcess, s.fds)
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		if isDenied(err) {
			s.e.counts.Denied++
		}
		return nil, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(limit + 1)
	if err != nil { // none at all (io.EOF), or it is ending
		return nil, false
	}
	if len(names) > limit {
		s.e.counts.RefusedFDs++
		return nil, false
	}
	s.fds -= len(names)
	out := make([]int, 0, len(names))
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil {
			out = append(out, fd)
		}
	}
	return out, true
}

func (s *search) epoll(proc process, fd int) {
	inodes, err := members(fmt.Sprintf("/proc/%d/fdinfo/%d", proc.pid, fd))
	if err != nil {
		if errors.Is(err, errTooMany) {
			s.e.counts.RefusedEpolls++
		}
		return
	}
	w := waiter{kind: epoll, proc: proc, fd: fd}
	for _, ino := range inodes {
		one, ok := s.t.socks[ino]
		switch {
		case !ok:
		case one.bulk:
			w.bulk = true
		case one.recent > 0:
			w.active = append(w.active, ino)
			s.inEpoll[ino] = true
		}
	}
	if len(w.active) > 0 {
		s.waiters = append(s.waiters, w)
	}
}

var errTooMany = errors.New("the epoll instance has too many descriptors")

// members reads which inodes an epoll instance watches (proc_pid_fdinfo(5)).
// Inodes of other file systems than that of sockets may be among them; only
// those that are sockets of the namespace mean anything to the caller.
func members(path string) ([]uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fdinfoBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(text) > fdinfoBytesMax {
		return nil, errTooMany
	}
	return parseMembers(text), nil
}

// parseMembers finds the "ino:" of each line that begins with "tfd:".
func parseMembers(text []byte) []uint32 {
	var out []uint32
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "tfd:") {
			continue
		}
		for _, field := range strings.Fields(line) {
			hex, ok := strings.CutPrefix(field, "ino:")
			if !ok {
				continue
			}
			if ino, err := strconv.ParseUint(hex, 16, 32); err == nil {
				out = append(out, uint32(ino))
			}
		}
	}
	return out
}
