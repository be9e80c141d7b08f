// Package probe finds out what this host can do for us, one answer per need,
// with what is lost without it. Each probe tries the thing itself where that
// leaves no trace, in a namespace of its own; none changes the host.
package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/bpffs"
	"xlane/internal/kernel/napi"
	"xlane/internal/kernel/netns"
)

// Probe is one need and whether the host meets it.
type Probe struct {
	// Name is a stable word for it.
	Name string
	OK   bool
	// Detail says what was found, in the kernel's words where it refused.
	Detail string
	// Lost says what does not work without it.
	Lost string
}

// The oldest kernel that has per-NAPI timers over netlink (commit
// f15e3b3ddb9f, Linux 6.13).
const (
	kernelMajor = 6
	kernelMinor = 13
)

// All runs every probe. It takes some 50 ms and never fails: what
// cannot be found out is not OK, and its Detail says why.
func All() []Probe {
	return []Probe{
		kernelVersion(),
		privilege(),
		btf(),
		tcx(),
		xdp(),
		napiSet(),
		napiThreaded(),
		bpfFileSystem(bpffs.Root),
	}
}

func answer(name, lost, found string, err error) Probe {
	if err != nil {
		return Probe{Name: name, Detail: err.Error(), Lost: lost}
	}
	return Probe{Name: name, OK: true, Detail: found, Lost: lost}
}

func kernelVersion() Probe {
	var uts unix.Utsname
	err := unix.Uname(&uts)
	release := unix.ByteSliceToString(uts.Release[:])
	if err == nil {
		err = checkRelease(release)
	}
	return answer("kernel", "timers per queue: one hold for all of a device's queues, or none", "Linux "+release, err)
}

// checkRelease judges a release such as "6.18.44-fc" or "6.13-rc1".
func checkRelease(release string) error {
	first, rest, _ := strings.Cut(release, ".")
	second := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		second = rest[:end]
	}
	major, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("cannot read the version of Linux %q", release)
	}
	minor, err := strconv.Atoi(second)
	if err != nil {
		return fmt.Errorf("cannot read the version of Linux %q", release)
	}
	if major < kernelMajor || major == kernelMajor && minor < kernelMinor {
		return fmt.Errorf("kernel %s is too old (requires kernel >= %d.%d)", release, kernelMajor, kernelMinor)
	}
	return nil
}

// capability is one that we need, and one that includes it.
type capability struct {
	name   string
	number int
	or     int
}

var capabilities = []capability{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, unix.CAP_NET_ADMIN},
	{"CAP_BPF", unix.CAP_BPF, unix.CAP_SYS_ADMIN},
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, unix.CAP_SYS_ADMIN},
	{"CAP_SYS_NICE", unix.CAP_SYS_NICE, unix.CAP_SYS_NICE},
}

func privilege() Probe {
	const lost = "everything but reading: xlane must run as root, or with these capabilities"
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return answer("privilege", lost, "", fmt.Errorf("read capabilities: %w", err))
	}
	effective := uint64(data[0].Effective) | uint64(data[1].Effective)<<32
	missing := missingCapabilities(effective)
	if len(missing) > 0 {
		return answer("privilege", lost, "", fmt.Errorf("missing %s", strings.Join(missing, ", ")))
	}
	return answer("privilege", lost, "all capabilities needed", nil)
}

func missingCapabilities(effective uint64) []string {
	var missing []string
	for _, c := range capabilities {
		if effective&(1<<c.number|1<<c.or) == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing
}

func btf() Probe {
	const file = "/sys/kernel/btf/vmlinux"
	_, err := os.Stat(file)
	return answer("btf", "BPF programs that read kernel structures: measurements of the socket layer", file, err)
}

// returning is a program of two instructions.
func returning(kind ebpf.ProgramType, verdict int32) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         kind,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
}

// onLoopback loads a program and attaches it to the loopback device of a
// namespace made for the purpose, which dies with it.
func onLoopback(kind ebpf.ProgramType, verdict int32, attach func(*ebpf.Program, int) (link.Link, error)) error {
	ns, err := netns.Create()
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		program, err := returning(kind, verdict)
		if err != nil {
			return err
		}
		defer program.Close()
		// The loopback device is the first of every namespace.
		l, err := attach(program, 1)
		if err != nil {
			return err
		}
		return l.Close()
	})
}

func tcx() Probe {
	const tcxNext = -1 // TCX_NEXT
	err := onLoopback(ebpf.SchedCLS, tcxNext, func(p *ebpf.Program, index int) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXIngress})
	})
	return answer("tcx", "sorting on veth: the sorter is a tcx program", "a program was attached", err)
}

func xdp() Probe {
	const xdpPass = 2 // XDP_PASS
	err := onLoopback(ebpf.XDP, xdpPass, func(p *ebpf.Program, index int) (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Interface: index, Program: p, Flags: link.XDPGenericMode})
	})
	return answer("xdp", "sorting on devices other than veth, and the distributor", "a program was attached", err)
}

// napiChange asks for a change of a NAPI that cannot exist: a kernel that
// knows what was asked looks for it and answers ENOENT, one that does not
// refuses the request itself.
func napiChange(change napi.Change) error {
	ns, err := netns.Current()
	if err != nil {
		return err
	}
	defer ns.Close()
	c, err := napi.Dial(ns)
	if err != nil {
		return err
	}
	defer c.Close()
	// Real numbers start above MIN_NAPI_ID, the number of possible CPUs.
	const none = 1
	err = c.Set(none, change)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func napiSet() Probe {
	zero := uint32(0)
	err := napiChange(napi.Change{DeferHardIRQs: &zero})
	return answer("napi-set", "timers per queue", "the kernel takes timers per NAPI", err)
}

func napiThreaded() Probe {
	off := false
	err := napiChange(napi.Change{Threaded: &off})
	return answer("napi-threaded", "a thread per queue: its own CPU and priority (requires kernel >= 6.17)", "the kernel takes threads per NAPI", err)
}

func bpfFileSystem(path string) Probe {
	const lost = "sorting that goes on when the daemon dies, and its adoption by the next"
	mounted, err := bpffs.IsMounted(path)
	if err != nil || mounted {
		return answer("bpffs", lost, "mounted at "+path, err)
	}
	context, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return answer("bpffs", lost, "", fmt.Errorf("not mounted at %s, and cannot be: %w", path, err))
	}
	unix.Close(context)
	return answer("bpffs", lost, "not mounted at "+path+" yet, can be mounted", nil)
}
