package stack

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"xlane/internal/api"
	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/link"
	"xlane/internal/model"
	"xlane/internal/receive/sorter"
)

// snapshot asks the goroutine that runs the device for its view.
func (in *iface) snapshot(ctx context.Context, q api.Query) (model.Interface, error) {
	var view model.Interface
	var err error
	done := make(chan struct{})
	f := func() {
		defer close(done)
		view, err = in.view(q)
	}
	select {
	case in.ask <- f:
		<-done
		return view, err
	case <-in.ended:
		return model.Interface{Device: in.cfg.Device, Netns: in.cfg.Netns, State: model.StateNotActive, Reason: in.reason}, nil
	case <-ctx.Done():
		return view, ctx.Err()
	}
}

func (in *iface) view(q api.Query) (model.Interface, error) {
	v := model.Interface{
		Device: in.cfg.Device, Netns: in.cfg.Netns, Adapter: in.adapter.Name(), State: in.state, Reason: in.reason,
		INBPERF: in.cfg.INBPERF, WorkloadQ: in.cfg.WorkloadQ, OLM: in.cfg.OLM, Cannot: in.adapter.Cannot(),
	}
	for _, s := range in.journal.Recorded() {
		v.Changes = append(v.Changes, model.Change{What: s.String(), From: s.From, To: s.To})
	}
	if err := in.viewDevice(&v); err != nil && in.state == model.StateReady {
		return v, err
	}
	counted := map[model.QueueID]model.QueueCounters{}
	if s := in.adapter.Sorter(); s != nil {
		if err := in.viewSorter(&v, s, counted, q); err != nil {
			return v, err
		}
	}
	return v, in.viewQueues(&v, counted)
}

func (in *iface) viewDevice(v *model.Interface) error {
	links, err := link.Dial(in.ns)
	if err != nil {
		return err
	}
	defer links.Close()
	dev, err := links.ByName(in.cfg.Device)
	if err != nil {
		return err
	}
	v.Ifindex, v.MTU, v.MAC = dev.Index, dev.MTU, dev.MAC.String()
	v.Link = model.LinkStats{
		RxBytes: dev.Stats.RxBytes, RxPackets: dev.Stats.RxPackets, RxErrors: dev.Stats.RxErrors, RxDropped: dev.Stats.RxDropped,
		TxBytes: dev.Stats.TxBytes, TxPackets: dev.Stats.TxPackets, TxErrors: dev.Stats.TxErrors, TxDropped: dev.Stats.TxDropped,
	}
	if v.Addresses, err = links.Addresses(dev.Index); err != nil {
		return err
	}
	tool, err := ethtool.Dial(in.ns)
	if err != nil {
		return err
	}
	defer tool.Close()
	f, err := tool.Features(in.cfg.Device)
	if err != nil {
		return err
	}
	v.ChecksumOffload = model.AnswerOf(f["rx-checksum"].Active)
	v.SegmentationOffload = model.AnswerOf(f[ethtool.TSO4].Active)
	return nil
}

func (in *iface) viewSorter(v *model.Interface, s *sorter.Sorter, counted map[model.QueueID]model.QueueCounters, q api.Query) error {
	c, err := s.Counters()
	if err != nil {
		return err
	}
	for _, id := range model.AllQueues() {
		counted[id] = model.QueueCounters{Packets: c.Packets[id], Bytes: c.Bytes[id]}
	}
	st, err := s.State()
	if err != nil {
		return err
	}
	v.Sorter = model.Sorter{
		Reasons: c.Reason, ReasonOrder: sorter.Reasons(), Flows: st.Tracked, FlowCapacity: st.Capacity,
		FlowsRefused: c.Event["refused"], FlowsEvicted: c.Event["replaced"], MovesDone: c.Moves(), MovesPending: st.Pending,
	}
	if v.Rules.SysDist, err = s.SysDist(); err != nil {
		return err
	}
	if v.Rules.EELocal, err = s.Local(); err != nil {
		return err
	}
	d := sorter.DefaultConfig()
	for p := d.EEPortFirst; p <= d.EEPortLast; p++ {
		v.Rules.EEPorts = append(v.Rules.EEPorts, p)
	}
	now := in.stack.Clock()
	err = s.Flows(true, func(f sorter.Flow) bool {
		if f.Idle > d.Silence { // as good as released: its next packet finds it so
			return true
		}
		if f.Remote.Addr().Is4() {
			v.Rules.Bulk4Total++
		} else {
			v.Rules.Bulk6Total++
		}
		v.Rules.Bulk = append(v.Rules.Bulk, model.BulkConnection{
			Source: f.Remote, Destination: f.Local, VLANs: f.VLAN, Since: now.Add(-f.Since).Round(time.Microsecond),
			Packets: f.Packets, Bytes: f.Bytes, FoundBytes: f.FoundBytes, MovedBytes: f.MovedBytes,
		})
		return true
	})
	sort.Slice(v.Rules.Bulk, func(i, j int) bool { return v.Rules.Bulk[i].Since.Before(v.Rules.Bulk[j].Since) })
	if n := q.MaxConnections; n >= 0 && len(v.Rules.Bulk) > n {
		v.Rules.Bulk = v.Rules.Bulk[:n]
	}
	return err
}

func (in *iface) viewQueues(v *model.Interface, counted map[model.QueueID]model.QueueCounters) error {
	queues, err := in.adapter.Queues()
	if err != nil {
		return err
	}
	readings, err := in.adapter.Read()
	if err != nil {
		return errors.Join(fmt.Errorf("read the queues of %q", in.cfg.Device), err)
	}
	for _, q := range queues {
		m := model.Queue{
			ID: q.ID, Shares: q.Shares, Hardware: q.Index, NAPI: q.NAPI, ThreadPID: q.PID, CPU: q.CPU, Priority: q.Priority,
			Hold: q.Hold.Timeout, DeferCount: q.Hold.DeferCount, RingEntries: q.Ring,
			Counters: counted[q.ID], Decision: in.timers.decided[q.ID],
		}
		for _, r := range readings {
			if r.ID != q.ID || q.Shares != 0 {
				continue
			}
			if in.adapter.Sorter() == nil && r.Known.Packets {
				m.Counters.Packets, m.Counters.Bytes = r.Packets, r.Bytes
			}
			if r.Known.Drops {
				m.Counters.RingDrops = model.Known(r.Drops)
			}
			if r.Known.Thread {
				m.Counters.ThreadRun = model.Known(uint64(r.ThreadRun))
				m.Counters.ThreadWakes = model.Known(r.ThreadWakes)
			}
		}
		v.Queues = append(v.Queues, m)
	}
	sort.Slice(v.Queues, func(i, j int) bool { return v.Queues[i].ID < v.Queues[j].ID })
	return nil
}
