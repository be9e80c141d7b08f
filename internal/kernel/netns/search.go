package netns

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// candidatesMax bounds a search: twice the kernel's PID_MAX_DEFAULT of 32,768
// (include/linux/threads.h), and one stat each.
const candidatesMax = 65536

// Search offers every namespace that this process can see to match, each one
// once, and returns the first that matches, open. It looks at the caller's own,
// the named ones, every bind mount of a namespace (container engines keep
// theirs outside Dir), and those of all processes. It returns nil and no error
// when none matched, and stops at the first error from match. A namespace held
// by nothing but an open file or a single thread of a process is not seen.
func Search(match func(*Handle) (bool, error)) (*Handle, error) {
	seen := make(map[ID]bool)
	for i, path := range candidates() {
		if i >= candidatesMax {
			break
		}
		id, err := identifyPath(path)
		if err != nil || seen[id] {
			continue
		}
		h, err := open(path, label(path))
		if err != nil {
			// The process ended, or the file is no namespace.
			continue
		}
		// The identity may have changed between the two calls.
		if seen[h.id] {
			h.Close()
			continue
		}
		seen[h.id] = true
		ok, err := match(h)
		if ok && err == nil {
			return h, nil
		}
		h.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// candidates lists files that may be network namespaces, cheapest and most
// tellingly named first.
func candidates() []string {
	paths := []string{"/proc/thread-self/ns/net"}
	if named, err := os.ReadDir(Dir); err == nil {
		for _, e := range named {
			paths = append(paths, filepath.Join(Dir, e.Name()))
		}
	}
	if f, err := os.Open("/proc/self/mountinfo"); err == nil {
		paths = append(paths, namespaceMounts(f)...)
		f.Close()
	}
	if procs, err := os.ReadDir("/proc"); err == nil {
		for _, e := range procs {
			if _, err := strconv.Atoi(e.Name()); err == nil {
				paths = append(paths, "/proc/"+e.Name()+"/ns/net")
			}
		}
	}
	return paths
}

// label names a namespace found by its file as Open, OpenPID and Current would.
func label(path string) string {
	if path == "/proc/thread-self/ns/net" {
		return "of this process"
	}
	if dir, name := filepath.Split(path); filepath.Clean(dir) == Dir {
		return strconv.Quote(name)
	}
	if pid, ok := strings.CutSuffix(strings.TrimPrefix(path, "/proc/"), "/ns/net"); ok {
		return "of process " + pid
	}
	return strconv.Quote(path)
}

// namespaceMounts reads mountinfo (proc_pid_mountinfo(5)) and returns the mount
// points of network namespaces: file system nsfs, root "net:[…]".
func namespaceMounts(r io.Reader) []string {
	var points []string
	for lines := bufio.NewScanner(r); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "nsfs ") || !strings.HasPrefix(fields[3], "net:[") {
			continue
		}
		points = append(points, unescapeOctal(fields[4]))
	}
	return points
}

// unescapeOctal undoes mountinfo's \040 for space, \011 tab, \012 newline and
// \134 backslash.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
