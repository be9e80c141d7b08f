package thread

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/napi"
	"xlane/internal/testenv"
)

func TestSchedstatIsRead(t *testing.T) {
	got, err := parseSchedstat("1500000 2500 7\n")
	want := Times{Ran: 1500 * time.Microsecond, Waited: 2500 * time.Nanosecond, Timeslices: 7}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 2", "1 2 3 4", "1 -2 3", "a b c"} {
		if got, err := parseSchedstat(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

func TestOnlyTheNameOfTheNAPIsOwnThreadIsAccepted(t *testing.T) {
	for name, want := range map[string]bool{
		"napi/eth0-265":     true,
		"napi/eth0.7-a-265": true,
		"napi/eth0-1265":    false,
		"napi/eth0-26":      false,
		"eth0-265":          false,
		"bash":              false,
		"":                  false,
	} {
		if got := isNAPIName(name, 265); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

func TestAnotherProcessIsNeverTaken(t *testing.T) {
	_, err := OfNAPI(os.Getpid(), 265)
	if !errors.Is(err, unix.ESRCH) || !strings.Contains(err.Error(), "not the thread of NAPI 265") {
		t.Errorf("our own process: got %v", err)
	}
	if _, err := OfNAPI(0, 265); !errors.Is(err, unix.ESRCH) {
		t.Errorf("no process: got %v", err)
	}
	// A thread that was right once is checked again at every use.
	stale := Thread{PID: os.Getpid(), NAPIID: 265}
	for what, err := range map[string]error{
		"affinity": stale.SetAffinity(cpu.Of(0)),
		"priority": stale.SetPriority(Priority{Policy: FIFO, Realtime: 50}),
	} {
		if !errors.Is(err, unix.ESRCH) {
			t.Errorf("set %s of another process: got %v", what, err)
		}
	}
}

// polling returns the thread of the only NAPI of a new veth.
func polling(t *testing.T) (Thread, *napi.Conn) {
	t.Helper()
	pair := kerneltest.NewPair(t, 1)
	e, err := ethtool.Dial(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.SetFeatures(pair.NearName, map[string]bool{ethtool.GRO: true}); err != nil {
		t.Fatal(err)
	}
	c, err := napi.Dial(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	index := kerneltest.Device(t, kerneltest.Netlink(t, pair.Near), pair.NearName).Attrs().Index
	list, err := c.List(index)
	if err != nil || len(list) != 1 {
		t.Fatalf("got NAPIs %+v, %v", list, err)
	}
	if err := c.SetThreaded(list[0].ID, true); err != nil {
		t.Fatal(err)
	}
	n, err := c.Get(list[0].ID)
	if err != nil || !n.Threaded {
		t.Fatalf("got NAPI %+v, %v", n, err)
	}
	th, err := OfNAPI(n.PID, n.ID)
	if err != nil {
		t.Fatal(err)
	}
	return th, c
}

func TestAffinityAndPriorityReadBack(t *testing.T) {
	th, _ := polling(t)
	online, err := cpu.Online()
	if err != nil {
		t.Fatal(err)
	}
	last := cpu.Of(online.Members()[online.Len()-1])
	if err := th.SetAffinity(last); err != nil {
		t.Fatal(err)
	}
	if got, err := th.Affinity(); err != nil || got != last {
		t.Errorf("affinity: got %q, %v, want %q", got, err, last)
	}
	for _, p := range []Priority{
		{Policy: Other, Nice: -7}, {Policy: FIFO, Realtime: 5}, {Policy: RR, Realtime: 1}, {},
	} {
		if err := th.SetPriority(p); err != nil {
			t.Errorf("set %v: %v", p, err)
			continue
		}
		if got, err := th.Priority(); err != nil || got != p {
			t.Errorf("got %v, %v, want %v", got, err, p)
		}
	}
	if _, err := th.Times(); err != nil {
		t.Error(err)
	}
}

func TestImpossibleSettingsAreRefused(t *testing.T) {
	th, _ := polling(t)
	if err := th.SetAffinity(cpu.Set{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no CPU: got %v", err)
	}
	for _, p := range []Priority{{Policy: FIFO}, {Policy: FIFO, Realtime: 100}, {Realtime: -1}, {Nice: 20}, {Policy: Other, Realtime: 1}} {
		if err := th.SetPriority(p); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

func TestAThreadThatWasStoppedIsGone(t *testing.T) {
	th, c := polling(t)
	if err := c.SetThreaded(th.NAPIID, false); err != nil {
		t.Fatal(err)
	}
	n, err := c.Get(th.NAPIID)
	if err != nil || n.Threaded {
		t.Fatalf("got %+v, %v", n, err)
	}
	testenv.Eventually(t, 5*time.Second, "the thread has ended", func() bool {
		_, err := th.Times()
		return errors.Is(err, unix.ESRCH)
	})
}
