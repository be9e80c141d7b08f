package netns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/netns"
	"xlane/internal/testenv"
)

func open(t *testing.T, h *netns.Handle, err error) *netns.Handle {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestANamespaceOpenedByNamePathAndHandleIsTheSame(t *testing.T) {
	name, made := kerneltest.Named(t)
	byName, err := netns.Find(name)
	byName = open(t, byName, err)
	byPath, err := netns.Find(filepath.Join(netns.Dir, name))
	byPath = open(t, byPath, err)
	clone, err := made.Clone()
	clone = open(t, clone, err)
	own, err := netns.Find("")
	own = open(t, own, err)
	for _, h := range []*netns.Handle{byName, byPath, clone} {
		if !h.Same(made) {
			t.Errorf("namespace %s is %v, want %v", h, h.ID(), made.ID())
		}
	}
	if own.Same(made) {
		t.Errorf("the new namespace is our own")
	}
	if got, want := byName.String(), fmt.Sprintf("%q", name); got != want {
		t.Errorf("label is %s, want %s", got, want)
	}
}

func TestANamespaceHeldByAProcessIsOpenedByItsPID(t *testing.T) {
	pid := kerneltest.HeldByProcess(t)
	h, err := netns.OpenPID(pid)
	h = open(t, h, err)
	own, err := netns.Current()
	own = open(t, own, err)
	if h.Same(own) {
		t.Errorf("process %d is in our own namespace", pid)
	}
}

func TestOpeningWhatIsNoNamespaceSaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		open func() (*netns.Handle, error)
		want string
	}{
		{"a name that does not exist", func() (*netns.Handle, error) { return netns.Open("xl-none") },
			`open namespace "xl-none": no such namespace (/run/netns/xl-none does not exist)`},
		{"a process that does not exist", func() (*netns.Handle, error) { return netns.OpenPID(1 << 30) },
			`open namespace of process 1073741824: no such namespace (/proc/1073741824/ns/net does not exist)`},
		{"an ordinary file", func() (*netns.Handle, error) { return netns.OpenPath(file) },
			fmt.Sprintf("open namespace %q: no such namespace (%s is not a network namespace)", file, file)},
		{"another kind of namespace", func() (*netns.Handle, error) { return netns.OpenPath("/proc/self/ns/mnt") },
			`open namespace "/proc/self/ns/mnt": no such namespace (/proc/self/ns/mnt is not a network namespace)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.open()
			if !errors.Is(err, netns.ErrNotFound) || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := netns.Open("../../etc/passwd"); err == nil || errors.Is(err, netns.ErrNotFound) {
		t.Errorf("a path given as a name: got %v", err)
	}
}

func TestDoRunsInsideAndLeavesNoThreadBehind(t *testing.T) {
	inside := kerneltest.Namespace(t)
	own, err := netns.Current()
	own = open(t, own, err)
	var tasks sync.WaitGroup
	for range 32 {
		tasks.Go(func() {
			err := inside.Do(func() error {
				here, err := netns.Current()
				if err != nil {
					return err
				}
				defer here.Close()
				if !here.Same(inside) {
					return fmt.Errorf("in %v, want %v", here.ID(), inside.ID())
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	tasks.Wait()
	// A thread that could not be restored may take a moment to end.
	testenv.Eventually(t, 5*time.Second, "every thread is in our own namespace", func() bool {
		threads, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range threads {
			h, err := netns.OpenPath(file)
			if err != nil {
				continue
			}
			same := h.Same(own)
			h.Close()
			if !same {
				return false
			}
		}
		return true
	})
}

func TestDoReturnsTheErrorOfItsFunction(t *testing.T) {
	inside := kerneltest.Namespace(t)
	mine := errors.New("mine")
	if err := inside.Do(func() error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
	err := inside.Do(func() error { runtime.Goexit(); return nil })
	if err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
		t.Errorf("a function that ends its goroutine: got %v", err)
	}
}

func TestDoNestsAcrossNamespaces(t *testing.T) {
	outer, inner := kerneltest.Namespace(t), kerneltest.Namespace(t)
	err := outer.Do(func() error {
		if err := inner.Do(func() error { return expect(inner) }); err != nil {
			return err
		}
		return expect(outer)
	})
	if err != nil {
		t.Error(err)
	}
}

func expect(want *netns.Handle) error {
	here, err := netns.Current()
	if err != nil {
		return err
	}
	defer here.Close()
	if !here.Same(want) {
		return fmt.Errorf("in %v, want %v", here.ID(), want.ID())
	}
	return nil
}

func TestSearchOffersEachNamespaceOnce(t *testing.T) {
	name, named := kerneltest.Named(t)
	pid := kerneltest.HeldByProcess(t)
	held, err := netns.OpenPID(pid)
	held = open(t, held, err)
	seen := map[netns.ID]int{}
	labels := map[netns.ID]string{}
	found, err := netns.Search(func(h *netns.Handle) (bool, error) {
		seen[h.ID()]++
		labels[h.ID()] = h.String()
		return false, nil
	})
	if found != nil || err != nil {
		t.Fatalf("a search that matches nothing: got %v, %v", found, err)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%v was offered %d times", id, n)
		}
	}
	if got, want := labels[named.ID()], fmt.Sprintf("%q", name); got != want {
		t.Errorf("the named namespace is labelled %q, want %q", got, want)
	}
	if got, want := labels[held.ID()], fmt.Sprintf("of process %d", pid); got != want {
		t.Errorf("the process's namespace is labelled %q, want %q", got, want)
	}
}

func TestSearchStopsAtTheFirstErrorOrMatch(t *testing.T) {
	_, named := kerneltest.Named(t)
	mine := errors.New("mine")
	if found, err := netns.Search(func(*netns.Handle) (bool, error) { return false, mine }); found != nil || !errors.Is(err, mine) {
		t.Errorf("got %v, %v", found, err)
	}
	found, err := netns.Search(func(h *netns.Handle) (bool, error) { return h.Same(named), nil })
	found = open(t, found, err)
	if err := found.Do(func() error { return expect(named) }); err != nil {
		t.Errorf("the namespace found cannot be used: %v", err)
	}
}
