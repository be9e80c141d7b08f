// Package sorter decides which inbound queue a packet belongs on. The decision
// is made in BPF, per packet, at the adapter's side of the link: it reads the
// headers, looks up the rules, finds bulk connections by their one-way
// payload, and keeps every connection's packets in order while it changes
// queue. This package holds the programs, their maps, and the Go that loads,
// configures and reads them. Where the programs are attached, how many queues
// there are and how long each holds its packets is left to the adapters; what
// to hold to the policies.
package sorter

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"xlane/internal/model"
)

// LayoutVersion is raised when the pinned maps change shape. A daemon adopts
// pinned maps of its own layout only.
const LayoutVersion = uint8(sortLimitLAYOUT_VERSION)

// Config is how the sorter tells bulk from interactive. Zero fields take the
// values of DefaultConfig.
type Config struct {
	// ThresholdBytes of one-way payload make a connection bulk. 180 KB is the
	// one criterion the original publishes (zos.md §3.2).
	ThresholdBytes uint32
	// ShortRunBytes: a run between two turns below this counts as interactive.
	ShortRunBytes uint32
	// ShortTurns interactive runs in a row release a bulk connection.
	ShortTurns uint32
	// Window: the threshold must be reached within it, and a registered
	// connection must carry WindowMinBytes in each.
	Window         time.Duration
	WindowMinBytes uint32
	// Silence releases a bulk connection.
	Silence time.Duration
	// Forget takes an idle connection out of the table.
	Forget time.Duration
	// Guard is how long after its last packet was seen at the host a
	// connection may change to a queue that another CPU polls.
	Guard time.Duration
	// Pause is how long a connection must be still to change queue with
	// nothing seen at all. It must exceed any hold and any delay of a queue's
	// thread.
	Pause time.Duration
	// BulkMax connections are registered at one time.
	BulkMax uint32
	// FlowsMax connections are tracked at one time: a power of two >= 64.
	FlowsMax uint32
	// EEPortFirst and EEPortLast are the UDP ports of EE; both zero turn it off.
	EEPortFirst, EEPortLast uint16
}

// DefaultConfig returns the values used when nothing else is said.
func DefaultConfig() Config {
	return Config{
		ThresholdBytes: 180_000,
		ShortRunBytes:  90_000, // half the threshold: hysteresis against flapping at the edge
		ShortTurns:     4,
		Window:         time.Second,
		WindowMinBytes: 45_000, // a quarter of the threshold
		Silence:        time.Second,
		Forget:         time.Minute,
		Guard:          time.Millisecond, // a poll hands over at most 64 packets: tens of microseconds
		Pause:          500 * time.Millisecond,
		BulkMax:        4096,
		FlowsMax:       65_536,
		EEPortFirst:    12000, // zos.md §3.1, Enterprise Extender
		EEPortLast:     12004,
	}
}

// check fills in defaults and refuses what the programs cannot keep.
func (c *Config) check() error {
	d := DefaultConfig()
	for _, f := range []struct{ v, def *uint32 }{
		{&c.ThresholdBytes, &d.ThresholdBytes}, {&c.ShortTurns, &d.ShortTurns}, {&c.FlowsMax, &d.FlowsMax},
	} {
		if *f.v == 0 {
			*f.v = *f.def
		}
	}
	for _, f := range []struct{ v, def *time.Duration }{
		{&c.Window, &d.Window}, {&c.Silence, &d.Silence}, {&c.Forget, &d.Forget},
		{&c.Guard, &d.Guard}, {&c.Pause, &d.Pause},
	} {
		if *f.v == 0 {
			*f.v = *f.def
		}
	}
	if c.BulkMax == 0 {
		c.BulkMax = min(d.BulkMax, c.FlowsMax/2) // bulk connections are never pushed out: others need room, too
	}
	if c.ShortRunBytes == 0 {
		c.ShortRunBytes = c.ThresholdBytes / 2
	}
	if c.WindowMinBytes == 0 {
		c.WindowMinBytes = c.ThresholdBytes / 4
	}
	if c.FlowsMax < 64 || c.FlowsMax > 1<<22 || c.FlowsMax&(c.FlowsMax-1) != 0 {
		return fmt.Errorf("flow table of %d connections: use a power of two from 64 to %d", c.FlowsMax, 1<<22)
	}
	if c.BulkMax > c.FlowsMax {
		return fmt.Errorf("%d bulk connections do not fit a table of %d", c.BulkMax, c.FlowsMax)
	}
	if c.Forget < c.Silence {
		return fmt.Errorf("forget connections after %v: must not be shorter than silence, %v", c.Forget, c.Silence)
	}
	if c.EEPortLast < c.EEPortFirst {
		return fmt.Errorf("EE ports %d-%d: the last is below the first", c.EEPortFirst, c.EEPortLast)
	}
	return nil
}

// Queues says which of the adapter's queues carries each inbound queue: index,
// or -1 when it shares PRIMARY's. SameCPU says that all of them are polled on
// one CPU, so that a packet seen at the host is also processed.
type Queues struct {
	Index   map[model.QueueID]int
	SameCPU bool
}

// Maps are the maps that every program of a sorter shares.
type Maps struct {
	Config      *ebpf.Map `ebpf:"config"`
	FlowByKey   *ebpf.Map `ebpf:"flow_by_key"`
	State       *ebpf.Map `ebpf:"state"`
	Counters    *ebpf.Map `ebpf:"counters"`
	QueueByAddr *ebpf.Map `ebpf:"queue_by_addr"`
	LocalAddr   *ebpf.Map `ebpf:"local_addr"`
}

func (m *Maps) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		"config": &m.Config, "flow_by_key": &m.FlowByKey, "state": &m.State,
		"counters": &m.Counters, "queue_by_addr": &m.QueueByAddr, "local_addr": &m.LocalAddr,
	}
}

func (m *Maps) replacements() map[string]*ebpf.Map {
	r := map[string]*ebpf.Map{}
	for name, p := range m.byName() {
		r[name] = *p
	}
	return r
}

func (m *Maps) close() {
	for _, p := range m.byName() {
		if *p != nil {
			(*p).Close()
		}
	}
}

// Sorter is a set of programs over one set of maps. It is not safe for use by
// several goroutines at once.
type Sorter struct {
	Maps  Maps
	Sort  *ebpf.Program // tc, egress of the adapter's side
	Prove *ebpf.Program // tc, ingress of the host's side
	Turn  *ebpf.Program // tc, egress of the host's side
	sweep *ebpf.Program

	flowsMax uint32
	config   sortSorterConfig
	view     *ebpf.Memory
	links    map[string]link.Link
}

// New makes the maps and loads the programs. Nothing is attached.
func New(cfg Config) (*Sorter, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the locked-memory limit: %w", err)
	}
	spec, err := loadSort()
	if err != nil {
		return nil, err
	}
	s := &Sorter{flowsMax: cfg.FlowsMax, links: map[string]link.Link{}}
	spec.Maps["flow_by_key"].MaxEntries = cfg.FlowsMax / uint32(sortLimitBUCKET_WAYS)
	for name, p := range s.Maps.byName() {
		ms := spec.Maps[name]
		if *p, err = ebpf.NewMap(ms); err != nil {
			s.Close()
			return nil, fmt.Errorf("make map %q: %w", name, err)
		}
	}
	if err := s.loadPrograms(); err != nil {
		s.Close()
		return nil, err
	}
	s.config = cfg.wire()
	var seed [16]byte
	rand.Read(seed[:])
	s.config.Seed0 = binary.LittleEndian.Uint64(seed[:8])
	s.config.Seed1 = binary.LittleEndian.Uint64(seed[8:])
	return s, nil
}

// Reconfigure changes the thresholds of a running sorter. The size of the
// table is fixed when it is made.
func (s *Sorter) Reconfigure(cfg Config) error {
	cfg.FlowsMax = s.flowsMax
	if err := cfg.check(); err != nil {
		return err
	}
	next := cfg.wire()
	next.Seed0, next.Seed1 = s.config.Seed0, s.config.Seed1
	next.SysdistRules, next.Detect = s.config.SysdistRules, s.config.Detect
	next.SameCpu, next.Hwq, next.Version = s.config.SameCpu, s.config.Hwq, s.config.Version
	s.config = next
	return s.putConfig()
}

func (c *Config) wire() sortSorterConfig {
	return sortSorterConfig{
		SilenceNs: uint64(c.Silence), WindowNs: uint64(c.Window), GuardNs: uint64(c.Guard),
		PauseNs: uint64(c.Pause), ForgetNs: uint64(c.Forget),
		ThresholdBytes: c.ThresholdBytes, ShortRunBytes: c.ShortRunBytes, WindowMinBytes: c.WindowMinBytes,
		ShortTurns: c.ShortTurns, BulkMax: c.BulkMax,
		EePortFirst: c.EEPortFirst, EePortLast: c.EEPortLast,
	}
}

// LoadProgram loads one more program over the sorter's maps, for an adapter
// that has its own form of the sorter. extra names maps of the adapter's own.
func (s *Sorter) LoadProgram(spec *ebpf.CollectionSpec, name string, extra map[string]*ebpf.Map) (*ebpf.Program, error) {
	if v, ok := spec.Variables["bucket_mask"]; ok {
		if err := v.Set(s.flowsMax/uint32(sortLimitBUCKET_WAYS) - 1); err != nil {
			return nil, fmt.Errorf("set bucket_mask: %w", err)
		}
	}
	replace := map[string]*ebpf.Map{}
	for n, m := range s.Maps.replacements() {
		if ms, ok := spec.Maps[n]; ok {
			ms.MaxEntries = m.MaxEntries()
			replace[n] = m
		}
	}
	for n, m := range extra {
		replace[n] = m
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, fmt.Errorf("load program %q: %w", name, err)
	}
	defer coll.Close()
	prog := coll.DetachProgram(name)
	if prog == nil {
		return nil, fmt.Errorf("load program %q: not in the object file", name)
	}
	return prog, nil
}

func (s *Sorter) loadPrograms() error {
	for _, p := range []struct {
		load func() (*ebpf.CollectionSpec, error)
		name string
		prog **ebpf.Program
	}{
		{loadSort, "sort_skb", &s.Sort},
		{loadProve, "prove_skb", &s.Prove},
		{loadTurn, "turn_skb", &s.Turn},
		{loadSweep, "sweep_flows", &s.sweep},
	} {
		spec, err := p.load()
		if err != nil {
			return err
		}
		if *p.prog, err = s.LoadProgram(spec, p.name, nil); err != nil {
			return err
		}
	}
	return nil
}

// Start begins sorting onto the given queues. Before it, every packet goes on
// unchanged and counts under OFF.
func (s *Sorter) Start(q Queues) error {
	s.config.Hwq = [8]uint8{}
	for _, id := range model.AllQueues() {
		if i, ok := q.Index[id]; ok && i >= 0 {
			if i > 254 {
				return fmt.Errorf("put %v on queue %d: the highest is 254", id, i)
			}
			s.config.Hwq[id] = uint8(i + 1)
		}
	}
	if s.config.Hwq[model.Primary] == 0 {
		return errors.New("start sorting: PRIMARY has no queue")
	}
	s.config.SameCpu = boolByte(q.SameCPU)
	s.config.Detect = boolByte(q.Index[model.BulkData] >= 0 && s.config.Hwq[model.BulkData] != 0)
	s.config.Version = LayoutVersion
	return s.putConfig()
}

// Drain makes every connection go home to PRIMARY, each as soon as its older
// packets have left its queue. Sorting can be taken away without reordering
// once State().Pending and Registered are zero.
func (s *Sorter) Drain() error {
	s.config.Detect, s.config.SysdistRules = 0, 0
	s.config.EePortFirst, s.config.EePortLast = 0, 0
	return s.putConfig()
}

func (s *Sorter) putConfig() error {
	if err := s.Maps.Config.Put(uint32(0), &s.config); err != nil {
		return fmt.Errorf("write the sorter's configuration: %w", err)
	}
	return nil
}

func boolByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// addrKey writes an address as the programs see it.
func addrKey(a netip.Addr) sortAddrKey {
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return sortAddrKey{Addr: [2]uint64{v4Mark, uint64(binary.LittleEndian.Uint32(b[:]))}}
	}
	b := a.As16()
	return sortAddrKey{Addr: [2]uint64{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}}
}

// v4Mark is V4_MARK of bpf/flow.h.
const v4Mark = ^uint64(0)

func addrOf(w [2]uint64) netip.Addr {
	if w[0] == v4Mark {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(w[1]))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], w[0])
	binary.LittleEndian.PutUint64(b[8:], w[1])
	return netip.AddrFrom16(b)
}

// SetSysDist replaces the set of distributed addresses. TCP to one of them,
// on any port, goes to SYSDIST unless its connection is bulk.
func (s *Sorter) SetSysDist(addrs []netip.Addr) error {
	n, err := setAddrs(s.Maps.QueueByAddr, addrs)
	if err != nil {
		return fmt.Errorf("register SYSDIST addresses: %w", err)
	}
	s.config.SysdistRules = uint32(n)
	return s.putConfig()
}

// SetLocal replaces the set of the host's own addresses, to which EE's UDP
// ports apply.
func (s *Sorter) SetLocal(addrs []netip.Addr) error {
	if _, err := setAddrs(s.Maps.LocalAddr, addrs); err != nil {
		return fmt.Errorf("register local addresses: %w", err)
	}
	return nil
}

func setAddrs(m *ebpf.Map, addrs []netip.Addr) (int, error) {
	if len(addrs) > int(m.MaxEntries()) {
		return 0, fmt.Errorf("%d addresses: at most %d", len(addrs), m.MaxEntries())
	}
	want := map[sortAddrKey]bool{}
	for _, a := range addrs {
		want[addrKey(a)] = true
	}
	var k sortAddrKey
	var v uint8
	var gone []sortAddrKey
	there := map[sortAddrKey]bool{}
	it := m.Iterate()
	for it.Next(&k, &v) {
		there[k] = true
		if !want[k] {
			gone = append(gone, k)
		}
	}
	if err := it.Err(); err != nil {
		return 0, err
	}
	for k := range want { // added before others go; most are there already
		if there[k] {
			continue
		}
		if err := m.Put(&k, uint8(1)); err != nil {
			return 0, err
		}
	}
	for _, k := range gone {
		if err := m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, err
		}
	}
	return len(want), nil
}

// SysDist returns the registered distributed addresses.
func (s *Sorter) SysDist() ([]netip.Addr, error) { return addrsOf(s.Maps.QueueByAddr) }

// Local returns the registered local addresses.
func (s *Sorter) Local() ([]netip.Addr, error) { return addrsOf(s.Maps.LocalAddr) }

func addrsOf(m *ebpf.Map) ([]netip.Addr, error) {
	var k sortAddrKey
	var v uint8
	var out []netip.Addr
	it := m.Iterate()
	for it.Next(&k, &v) {
		out = append(out, addrOf(k.Addr))
	}
	return out, it.Err()
}

// Sweep releases bulk connections that fell silent and forgets idle ones. The
// daemon calls it a few times a second.
func (s *Sorter) Sweep() error {
	if _, err := s.sweep.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("sweep the flow table: %w", err)
	}
	return nil
}

// Attach attaches one program to a device by number and keeps the link under
// a name. The caller must be in the device's network namespace.
func (s *Sorter) Attach(name string, prog *ebpf.Program, at ebpf.AttachType, ifindex int) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: at})
	if err != nil {
		return fmt.Errorf("attach %q to device %d: %w", name, ifindex, err)
	}
	s.Keep(name, l)
	return nil
}

// Keep takes over a link that an adapter made, closing what had its name.
func (s *Sorter) Keep(name string, l link.Link) {
	if old := s.links[name]; old != nil {
		old.Unpin()
		old.Close()
	}
	s.links[name] = l
}

// AttachedTo says whether the named link still holds to the device of that
// number, as the device's own namespace numbers it.
func (s *Sorter) AttachedTo(name string, ifindex int) bool {
	l := s.links[name]
	if l == nil {
		return false
	}
	info, err := l.Info()
	if err != nil {
		return false
	}
	if tcx := info.TCX(); tcx != nil {
		return int(tcx.Ifindex) == ifindex
	}
	if xdp := info.XDP(); xdp != nil {
		return int(xdp.Ifindex) == ifindex
	}
	return false
}

// Pin keeps maps and links alive without this process, under dir.
func (s *Sorter) Pin(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	for name, p := range s.Maps.byName() {
		if (*p).IsPinned() {
			continue
		}
		if err := (*p).Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin map %q: %w", name, err)
		}
	}
	for name, l := range s.links {
		path := filepath.Join(dir, linkPrefix+name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := l.Pin(path); err != nil {
			return fmt.Errorf("pin link %q: %w", name, err)
		}
	}
	return nil
}

const linkPrefix = "link_"

// ErrLayout says that pinned maps belong to another version of xlane.
var ErrLayout = errors.New("pinned maps have another layout than this version of xlane")

// Adopt opens the maps and links that Pin left under dir. The programs in the
// links are those of the process that pinned them; they go on running, and
// packets are sorted without a gap. It fails with ErrLayout for pins that
// this version cannot read, and with fs.ErrNotExist where there are none.
func Adopt(dir string) (*Sorter, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the locked-memory limit: %w", err)
	}
	s := &Sorter{links: map[string]link.Link{}}
	ok := false
	defer func() {
		if !ok {
			s.Close()
		}
	}()
	spec, err := loadSort()
	if err != nil {
		return nil, err
	}
	for name, p := range s.Maps.byName() {
		if *p, err = ebpf.LoadPinnedMap(filepath.Join(dir, name), nil); err != nil {
			return nil, fmt.Errorf("adopt map %q: %w", name, err)
		}
		ms := spec.Maps[name]
		if (*p).ValueSize() != ms.ValueSize || (*p).KeySize() != ms.KeySize || (*p).Type() != ms.Type {
			return nil, fmt.Errorf("adopt map %q: %w", name, ErrLayout)
		}
	}
	if err := s.Maps.Config.Lookup(uint32(0), &s.config); err != nil {
		return nil, fmt.Errorf("read the sorter's configuration: %w", err)
	}
	if s.config.Version != LayoutVersion {
		return nil, fmt.Errorf("adopt layout %d: %w", s.config.Version, ErrLayout)
	}
	s.flowsMax = s.Maps.FlowByKey.MaxEntries() * uint32(sortLimitBUCKET_WAYS)
	if err := s.loadPrograms(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, isLink := strings.CutPrefix(e.Name(), linkPrefix)
		if !isLink {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(dir, e.Name()), nil)
		if err != nil {
			return nil, fmt.Errorf("adopt link %q: %w", name, err)
		}
		s.links[name] = l
	}
	ok = true
	return s, nil
}

// Unpin removes the pins under dir. What this process holds stays.
func Unpin(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// Detach takes one program off its device.
func (s *Sorter) Detach(name string) error {
	l := s.links[name]
	if l == nil {
		return nil
	}
	delete(s.links, name)
	if err := l.Unpin(); err != nil && !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, os.ErrNotExist) {
		l.Close()
		return fmt.Errorf("unpin %q: %w", name, err)
	}
	return l.Close()
}

// Close lets go of everything. Pinned programs go on sorting; programs that
// are not pinned are detached.
func (s *Sorter) Close() {
	for _, l := range s.links {
		l.Close()
	}
	for _, p := range []*ebpf.Program{s.Sort, s.Prove, s.Turn, s.sweep} {
		if p != nil {
			p.Close()
		}
	}
	s.Maps.close()
}
