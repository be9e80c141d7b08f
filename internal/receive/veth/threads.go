package veth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/setting"
	"xlane/internal/kernel/thread"
)

// Thread is the kind of setting under which a queue's thread is recorded that
// was there before: its CPUs and priority. A thread that is ours ends with the
// queue's own setting, and needs no record.
const Thread setting.Kind = "thread"

// threadKey begins the key; the queue's number follows. It reads "thread of
// rx-0 of eth0" to an operator.
const threadKey = "thread of rx-"

// recordThread writes down how a thread of somebody else's was placed, before
// it is placed anew. was is the queue as it was found before any change.
func (a *Adapter) recordThread(i int, was napi.NAPI, t thread.Thread, cpus cpu.Set, p thread.Priority) error {
	if !a.threadedBefore(i, was) {
		return nil
	}
	now, err := threadValue(t)
	want := formatThread(cpus, p)
	if err != nil || now == want {
		return err
	}
	return a.spec.Journal.Record(setting.Setting{
		Kind: Thread, NS: a.near.NS().ID(), Device: a.device.Name, Key: threadKey + strconv.Itoa(i), From: now, To: want,
	})
}

// threadedBefore says whether the queue had a thread before xlane came: the
// record knows, where there is one about it.
func (a *Adapter) threadedBefore(i int, was napi.NAPI) bool {
	for _, s := range a.spec.Journal.Recorded() {
		if s.Kind == setting.NAPI && s.NS == a.near.NS().ID() && s.Device == a.device.Name && s.Key == strconv.Itoa(i) {
			return strings.HasSuffix(s.From, "threaded on")
		}
	}
	return was.Threaded
}

func threadValue(t thread.Thread) (string, error) {
	cpus, err := t.Affinity()
	if err != nil {
		return "", err
	}
	p, err := t.Priority()
	return formatThread(cpus, p), err
}

func formatThread(cpus cpu.Set, p thread.Priority) string {
	return fmt.Sprintf("cpus %v policy %d realtime %d nice %d", cpus, p.Policy, p.Realtime, p.Nice)
}

func parseThread(v string) (cpus cpu.Set, p thread.Priority, err error) {
	var list string
	if _, err = fmt.Sscanf(v, "cpus %s policy %d realtime %d nice %d", &list, &p.Policy, &p.Realtime, &p.Nice); err != nil {
		return cpus, p, fmt.Errorf("read %q: not the place of a thread", v)
	}
	cpus, err = cpu.ParseList(list)
	return cpus, p, err
}

// UndoThread puts a recorded thread back, wherever the queue's thread is now.
// One that ended with its queue or device needs nothing.
func UndoThread(h *setting.Host, s setting.Setting) error {
	cpus, p, err := parseThread(s.From)
	if err != nil {
		return err
	}
	i, err := strconv.Atoi(strings.TrimPrefix(s.Key, threadKey))
	if err != nil {
		return fmt.Errorf("read %q: not the thread of a queue", s.Key)
	}
	dev, err := h.Links().ByName(s.Device)
	if errors.Is(err, syscall.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := h.NAPIs().List(dev.Index)
	if err != nil || i >= len(list) || list[i].PID == 0 {
		return err
	}
	t, err := thread.OfNAPI(list[i].PID, list[i].ID)
	if err == nil {
		err = errors.Join(t.SetAffinity(cpus), t.SetPriority(p))
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("put back %v: %w", s, err)
	}
	return nil
}
