package archtest

// Room is one row of the map: a folder, what it may import of this module,
// and why. A row covers the folders below it unless they have a row of their own.
type Room struct {
	// Path leaves "internal/" out. A "*" stands for any one element.
	Path string
	// May lists the rooms that its shipped files may import beside themselves
	// and what lies below them. "kernel" is that package alone,
	// "kernel/..." all below it as well, "..." every room.
	May []string
	// Pure rooms use the standard library and May only, and never the clock,
	// the environment, files, sockets or a global random source.
	Pure bool
	// TestOnly rooms may be imported by tests and by each other, never by
	// what is shipped.
	TestOnly bool
	// ToCome rooms may be absent. A row without this mark fails when its
	// folder is gone, so that a rename cannot disarm a rule unseen.
	ToCome bool
	Why    string
}

// Rooms is the whole map. A package without a row fails: whoever makes a room
// says here what it may lean on.
var Rooms = []Room{
	{Path: "cmd/xlane", May: []string{"cli"},
		Why: "main only wires: what it decided could be neither tested nor reused"},
	{Path: "model", Pure: true,
		Why: "nouns that all rooms share must lean on none of them"},

	{Path: "profile", May: []string{"model"}, Pure: true, ToCome: true,
		Why: "a PROFILE must be checked the same on any machine, also where xlane cannot run"},
	{Path: "policy/*", May: []string{"model"}, Pure: true,
		Why: "a decision is a function of state, observation and now, so that a simulation runs the daemon's very code"},
	{Path: "display", May: []string{"model"}, Pure: true,
		Why: "a report is a function of a snapshot, so that a golden file shows all of it"},

	{Path: "kernel", May: []string{"model"},
		Why: "the floor: it speaks to Linux and knows nothing of what is above"},
	{Path: "kernel/kerneltest", May: []string{"model", "kernel/...", "testenv"}, TestOnly: true, ToCome: true,
		Why: "makes what the kernel rooms' tests share"},
	{Path: "receive", May: []string{"model", "kernel/...", "receive/sorter"},
		Why: "the contract that all adapters, the stack and the suite import; it must know none of them. The sorter is part of it: every adapter hands it out"},
	{Path: "receive/sorter", May: []string{"model", "kernel/..."},
		Why: "every adapter attaches the sorter, so the sorter may know no adapter"},
	{Path: "receive/*", May: []string{"model", "kernel/...", "receive", "receive/sorter"}, ToCome: true,
		Why: "sibling data planes never import each other: what two of them share goes to bpf/, kernel or receive"},
	{Path: "receive/adaptertest", May: []string{"model", "kernel/...", "receive", "receive/sorter", "lab/...", "awm/...", "testenv"}, TestOnly: true, ToCome: true,
		Why: "the suite judges every adapter through the contract alone"},
	{Path: "transmit", May: []string{"model", "kernel/..."}, ToCome: true,
		Why: "a sibling data plane of receive and distributor: shares with them through bpf/ and kernel only"},
	{Path: "distributor", May: []string{"model", "kernel/..."}, ToCome: true,
		Why: "a sibling data plane of receive and transmit: shares with them through bpf/ and kernel only"},
	{Path: "vip", May: []string{"model", "kernel/..."}, ToCome: true,
		Why: "moves addresses; who owns which is decided by policy and carried out by stack"},

	{Path: "group", May: []string{"model"}, ToCome: true,
		Why: "membership is truth about members, not about this host's devices"},
	{Path: "wlm", May: []string{"model", "kernel/..."}, ToCome: true,
		Why: "measures this member, and decides nothing from it"},
	{Path: "api", May: []string{"model"}, ToCome: true,
		Why: "serves a snapshot that somebody else makes; the source is an interface declared there"},
	{Path: "metrics", May: []string{"model"}, ToCome: true,
		Why: "one more view of the snapshot"},
	{Path: "stack", ToCome: true,
		May: []string{"model", "profile", "policy/...", "kernel/...", "receive/...", "transmit/...", "distributor/...", "vip", "group", "wlm", "api", "metrics"},
		Why: "the loop owns every room below it; it knows no command, report, lab or load"},

	{Path: "awm", May: []string{"model", "kernel/..."}, ToCome: true,
		Why: "the workload modeler runs on hosts without BPF or xlane, so it leans on no data plane"},
	{Path: "lab", May: []string{"model", "kernel/...", "awm/..."}, ToCome: true,
		Why: "hosts and wires only: what is tried in them comes from bench and from tests"},
	{Path: "bench", ToCome: true,
		May: []string{"model", "policy/...", "kernel/...", "receive/...", "transmit/...", "distributor/...", "stack/...", "awm/...", "lab/...", "api", "display", "profile"},
		Why: "runs the product in the lab under the modeler's load; only cli starts it"},
	{Path: "cli", May: []string{"..."},
		Why: "the top: it calls one room and prints what that answers"},

	{Path: "testenv", TestOnly: true,
		Why: "says what a test needs; a daemon has no business knowing it"},
	{Path: "archtest", TestOnly: true,
		Why: "reads the project's source, which is not there at run time"},
	{Path: "wholetest", May: []string{"model", "kernel/...", "testenv"}, TestOnly: true,
		Why: "judges the real binary from outside, as an operator would"},
	{Path: "doctest", May: []string{"testenv"}, TestOnly: true,
		Why: "reads the project's documents, which are not there at run time"},
	{Path: "bpf/headertest", May: []string{"testenv"}, TestOnly: true, ToCome: true,
		Why: "tries the C headers that programs share; no program is built from it"},
}

// Door says which rooms may import an outside library in what they ship.
type Door struct {
	// Library is an import path; what lies below it is meant too.
	Library string
	// Rooms are patterns as in Room.May. Empty means tests only.
	Rooms []string
	// ToCome libraries may be absent from go.mod.
	ToCome bool
	Why    string
}

// Doors is the whole list. A library without a row fails: whoever adds one
// says here who keeps its door.
var Doors = []Door{
	{Library: "github.com/cilium/ebpf", Rooms: []string{"kernel/...", "receive/...", "transmit/...", "distributor/...", "lab/..."},
		Why: "BPF objects are loaded by data planes, by kernel, and by the lab for its loss and delay"},
	{Library: "github.com/vishvananda/netlink", Rooms: []string{"kernel/...", "lab/..."},
		Why: "one room speaks netlink, so that errors, namespaces and retries are handled once"},
	{Library: "github.com/vishvananda/netns", Rooms: []string{"kernel/...", "lab/..."},
		Why: "changing namespace is a thread's matter that is easy to get wrong: it is done in one place"},
	{Library: "github.com/mdlayher", Rooms: []string{"kernel/...", "lab/..."},
		Why: "one room speaks generic netlink, as with route netlink"},
	{Library: "go.etcd.io", Rooms: []string{"group/..."}, ToCome: true,
		Why: "etcd is for truth and fencing: all that is asked of it is asked by group"},
	{Library: "github.com/prometheus", Rooms: []string{"metrics/..."}, ToCome: true,
		Why: "counters live in their rooms; only the page knows the exposition format"},
	{Library: "github.com/spf13/cobra", Rooms: []string{"cli/..."},
		Why: "flags are a matter of the command line; rooms take arguments"},
	{Library: "github.com/spf13/pflag", Rooms: []string{"cli/..."},
		Why: "as cobra, which it belongs to"},
	{Library: "github.com/HdrHistogram/hdrhistogram-go", Rooms: []string{"awm/...", "bench/..."},
		Why: "latencies are recorded by the modeler and compared by bench"},
	{Library: "golang.org/x/sys", Rooms: []string{"..."},
		Why: "constants and system calls; the pure rooms are kept from it by being pure"},
	{Library: "golang.org/x/sync", Rooms: []string{"..."},
		Why: "errgroup: goroutines that end together; the pure rooms are kept from it by being pure"},
	{Library: "github.com/gopacket/gopacket", Rooms: []string{"receive/adaptertest"},
		Why: "packets for tests, and a second reader of ours; too slow to ship"},
	{Library: "github.com/google/go-cmp",
		Why: "differences for people to read, in tests"},
	{Library: "github.com/rogpeppe/go-internal",
		Why: "txtar and test scripts"},
}
