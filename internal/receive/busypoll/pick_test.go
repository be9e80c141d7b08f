package busypoll

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	primaryNAPI = 100
	bulkNAPI    = 101
)

func TestOneWaiterIsPicked(t *testing.T) {
	here := func(pid int, active ...uint32) waiter {
		return waiter{kind: epoll, proc: process{pid: pid, start: 1}, fd: 4, active: active}
	}
	withBulk := here(1, 11)
	withBulk.bulk = true
	current := here(1, 11)
	for _, c := range []struct {
		name    string
		waiters []waiter
		recent  map[uint32]uint32 // inode → segments
		napi    map[uint32]uint32
		current *waiter
		want    int // pid; 0 = none
		why     string
	}{
		{name: "nothing received anything", why: "no connection receives from the primary queue"},
		{name: "only another queue's connections are active", waiters: []waiter{here(1, 11)},
			recent: map[uint32]uint32{11: 50}, napi: map[uint32]uint32{11: bulkNAPI},
			why: "no connection receives from the primary queue"},
		{name: "one has it all", waiters: []waiter{here(1, 11, 12)},
			recent: map[uint32]uint32{11: 50, 12: 50}, napi: map[uint32]uint32{11: primaryNAPI, 12: primaryNAPI}, want: 1},
		{name: "a quiet second one does not matter", waiters: []waiter{here(1, 11), here(2, 12)},
			recent: map[uint32]uint32{11: 90, 12: 10}, napi: map[uint32]uint32{11: primaryNAPI, 12: primaryNAPI}, want: 1},
		{name: "two that are alike would be in each other's way", waiters: []waiter{here(1, 11), here(2, 12)},
			recent: map[uint32]uint32{11: 60, 12: 40}, napi: map[uint32]uint32{11: primaryNAPI, 12: primaryNAPI},
			why: "several wait for the primary queue; the busiest for 60% of it"},
		{name: "the one that is engaged stays with less", waiters: []waiter{here(1, 11), here(2, 12)}, current: &current,
			recent: map[uint32]uint32{11: 60, 12: 40}, napi: map[uint32]uint32{11: primaryNAPI, 12: primaryNAPI}, want: 1},
		{name: "a busy stream elsewhere does not count", waiters: []waiter{here(1, 11), here(2, 12)},
			recent: map[uint32]uint32{11: 9, 12: 5000}, napi: map[uint32]uint32{11: primaryNAPI, 12: bulkNAPI}, want: 1},
		{name: "a bulk connection among its own forbids it", waiters: []waiter{withBulk},
			recent: map[uint32]uint32{11: 50}, napi: map[uint32]uint32{11: primaryNAPI}, why: "it has a bulk connection as well"},
		{name: "a connection of another queue forbids it", waiters: []waiter{here(1, 11, 12)},
			recent: map[uint32]uint32{11: 50, 12: 5}, napi: map[uint32]uint32{11: primaryNAPI, 12: bulkNAPI},
			why: "it has connections of other queues as well"},
		{name: "a loopback connection is of no queue", waiters: []waiter{here(1, 11, 12)},
			recent: map[uint32]uint32{11: 50, 12: 50}, napi: map[uint32]uint32{11: primaryNAPI, 12: 0}, want: 1},
		{name: "the process was not found", recent: map[uint32]uint32{11: 50}, napi: map[uint32]uint32{11: primaryNAPI},
			why: "no process was found that has the primary queue's connections"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &table{socks: map[uint32]sock{}}
			for ino, n := range c.recent {
				table.socks[ino] = sock{recent: n}
			}
			got, why := pick(c.waiters, table, c.napi, primaryNAPI, c.current)
			pid := 0
			if got != nil {
				pid = got.proc.pid
			}
			if pid != c.want || why != c.why {
				t.Errorf("got process %d, %q; want %d, %q", pid, why, c.want, c.why)
			}
		})
	}
}

func TestMembersOfAnEpollInstanceAreReadFromFdinfo(t *testing.T) {
	const fdinfo = `pos:	0
flags:	02000002
mnt_id:	16
ino:	1057
tfd:       14 events: 8000201d data: 100000001  pos:0 ino:38f5 sdev:8
tfd:        8 events:       19 data: ffffffff  pos:0 ino:421 sdev:10
tfd: a line cut sh`
	if got, want := parseMembers([]byte(fdinfo)), []uint32{0x38f5, 0x421}; !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestAProcessIsIdentifiedWhateverItsName(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil || !me.alive() {
		t.Fatalf("%+v, %v", me, err)
	}
	before, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile("/proc/self/comm", before, 0) })
	if err := os.WriteFile("/proc/self/comm", []byte("a) S 1 (b"), 0); err != nil {
		t.Fatal(err)
	}
	again, err := identify(os.Getpid())
	if err != nil || again.start != me.start || again.name != "a) S 1 (b" {
		t.Errorf("got %+v, %v", again, err)
	}
	me.start++
	if me.alive() {
		t.Error("another process that has its number was taken for it")
	}
	if _, err := me.borrow(0); !isGone(err) || !strings.Contains(err.Error(), "no such process") {
		t.Errorf("a descriptor of it was borrowed: %v", err)
	}
}
