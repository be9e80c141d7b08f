package doctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prologue gives the session a host of its own: an empty /run and bpffs, and
// a network namespace with nothing but loopback. What the blocks forget to
// remove dies with the session, and the machine never sees it.
const prologue = `set -euo pipefail
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
mount -t sysfs sysfs /sys
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
`

// atEnd is what a session announces when its last block is done.
const atEnd = "after the last block"

// epilogue fails the session when a reader would be left with something to
// clean up. The lock beside the daemon's socket stays on purpose: a lock that
// is removed can be held twice (package api).
const epilogue = `
echo "` + atEnd + `" >&3
for dir in /run/netns /run/xlane /sys/fs/bpf/xlane; do
	left=$(ls -A -I xlane.sock.lock "$dir" 2>/dev/null || true)
	if [ -n "$left" ]; then echo "left behind in $dir: $left" >&2; exit 1; fi
done
`

// exitGrace is how long a background process may take to end after the last
// block has asked it to.
const exitGrace = 5 * time.Second

// killGrace is how long the kernel may take to end a process that was killed.
const killGrace = 10 * time.Second

// outputMax bounds how much of a session's output is kept for its error.
const outputMax = 1 << 20

// Run executes the tested blocks of one document in order, in one bash, in a
// folder dir, with path as PATH. The error names the block by its line and
// ends with what the shell printed. It needs root: the session gets a mount
// and a network namespace of its own. All processes that the session started
// have ended when Run returns; one that was still there is an error.
func Run(ctx context.Context, blocks []Block, dir, path string) (output string, err error) {
	script := new(strings.Builder)
	script.WriteString(prologue)
	limits := map[int]time.Duration{}
	for _, b := range blocks {
		if b.Tested {
			limits[b.Line] = b.Limit
			fmt.Fprintf(script, "echo %d >&3\n%s\n", b.Line, b.Script)
		}
	}
	script.WriteString(epilogue)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress, progressEnd, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("watch the session: %w", err)
	}
	defer progress.Close()

	// Children whose parent ends become ours, so that a daemon which put
	// itself into the background is found too.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("adopt the session's processes: %w", err)
	}
	// Output goes to a file: a pipe would be held open by whatever the
	// blocks leave running, and Wait would wait for that.
	log, err := os.Create(filepath.Join(dir, "session.log"))
	if err != nil {
		return "", fmt.Errorf("record the session: %w", err)
	}
	defer log.Close()

	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + path, "HOME=" + dir, "LANG=C", "TERM=dumb"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{progressEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:      true,
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	before := descendants()
	if err := cmd.Start(); err != nil {
		progressEnd.Close()
		return "", fmt.Errorf("start the session: %w", err)
	}
	progressEnd.Close()
	w := &watch{limits: limits, cancel: cancel, where: "before the first block", done: make(chan struct{})}
	go w.follow(progress)
	err = cmd.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if left := endDescendants(before, err == nil); err == nil && left != "" {
		err = fmt.Errorf("processes left running: %s", left)
	}
	// All writers of the pipe have ended, so the last announcement is on its way.
	where := w.stop()
	if err == nil && where != atEnd {
		err = errors.New("ended the session before its last block")
	}
	text := tail(log)
	if err != nil {
		return text, fmt.Errorf("%s: %w\n%s", where, err, text)
	}
	return text, nil
}

// tail returns the end of the session's output.
func tail(log *os.File) string {
	info, err := log.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(0, info.Size()-outputMax)
	text, err := io.ReadAll(io.NewSectionReader(log, from, outputMax))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

var errOvertime = errors.New("took longer than its limit")

// descendants returns the processes below this one, by their start time, so
// that a number which the kernel uses again is not mistaken.
func descendants() map[int]process {
	all := map[int]process{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	below := map[int]process{}
	for pid, p := range all {
		for up := p; up.parent > 1; up = all[up.parent] {
			if up.parent == os.Getpid() {
				below[pid] = p
				break
			}
		}
	}
	return below
}

type process struct {
	parent int
	name   string
	start  string // in clock ticks since boot
	dead   bool   // ended, and only waiting to be reaped
}

// readProcess reads /proc/PID/stat; the fields are those of proc(5).
func readProcess(pid int) (process, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if err != nil || open < 0 || end < open {
		return process{}, false
	}
	f := strings.Fields(string(raw[end+1:]))
	if len(f) < 20 {
		return process{}, false
	}
	parent, err := strconv.Atoi(f[1])
	return process{parent: parent, name: string(raw[open+1 : end]), start: f[19], dead: f[0] == "Z"}, err == nil
}

// endDescendants makes sure that no process of the session is left. With
// grace it first waits for them to end by themselves. It returns the names of
// those that had to be killed.
func endDescendants(before map[int]process, grace bool) string {
	killed := map[string]bool{}
	deadline := time.Now()
	if grace {
		deadline = deadline.Add(exitGrace)
	}
	for {
		alive := false
		for pid, p := range descendants() {
			if before[pid].start == p.start {
				continue
			}
			if p.dead {
				if p.parent == os.Getpid() {
					syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
				}
				continue
			}
			alive = true
			if time.Now().After(deadline) && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed[p.name] = true
			}
		}
		if !alive || time.Now().After(deadline.Add(killGrace)) {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	var names []string
	for n := range killed {
		names = append(names, n)
	}
	return strings.Join(names, ", ")
}
