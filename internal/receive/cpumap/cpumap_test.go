package cpumap_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	xdplink "github.com/cilium/ebpf/link"

	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/setting"
	"xlane/internal/lab"
	"xlane/internal/receive"
	"xlane/internal/receive/adaptertest"
	"xlane/internal/receive/cpumap"
	"xlane/internal/testenv"
)

func TestAdapter(t *testing.T) {
	testenv.Lab(t)
	adaptertest.Run(t, adaptertest.Subject{
		Name: "cpumap",
		New: func(spec receive.Spec) (receive.Adapter, error) {
			a, err := cpumap.New(spec)
			if err != nil {
				return nil, err
			}
			return a, nil
		},
		Can: adaptertest.Can{
			Hold: false, Places: 2,
			Minds: []adaptertest.Disturbance{
				adaptertest.FarChecksumOn, adaptertest.ProgramDetached, adaptertest.FarMoved,
			},
		},
		Also: []adaptertest.Link{
			{Name: "jumbo frames", Spec: lab.LinkSpec{MTU: 9000}},
			{Name: "a device without XDP in its driver", Over: overMacvlan},
			{Name: "a device without XDP in its driver, over a plain veth", Spec: lab.LinkSpec{PlainVeth: true}, Over: overMacvlan},
		},
	})
}

// overMacvlan makes a macvlan on the host's device, with the host's addresses.
func overMacvlan(run func(name string, args ...string)) string {
	run("ip", "link", "add", "link", "eth0", "name", "over0", "type", "macvlan", "mode", "bridge")
	// Else the device below may answer for addresses that are over it.
	run("sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=1")
	run("sh", "-c", `set -e
for a in $(ip -o address show dev eth0 scope global | awk '{print $4}'); do
	ip address del $a dev eth0
	ip address add $a dev over0 nodad
done
ip link set over0 up`)
	return "over0"
}

// noted is a journal that only counts.
type noted struct{ n int }

func (j *noted) Record(setting.Setting) error { j.n++; return nil }
func (j *noted) Recorded() []setting.Setting  { return nil }

func passAll(t *testing.T) *ebpf.Program {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog
}

// TestRefusals: each is one sentence that says what to do, and changes nothing.
func TestRefusals(t *testing.T) {
	testenv.Lab(t)
	for _, c := range []struct {
		name    string
		prepare string
		change  func(*receive.Spec)
		want    string
	}{
		{"the loopback", "", func(s *receive.Spec) { s.Device = "lo" }, `device "lo" is the loopback`},
		{"a bridge", "ip link add br0 type bridge && ip link set br0 up",
			func(s *receive.Spec) { s.Device = "br0" }, `device "br0" is a bridge: traffic is sorted where it comes in; name its ports`},
		{"a device that is down", "ip link set eth0 down", func(*receive.Spec) {}, "is down; set it up first"},
		{"one CPU", "", func(s *receive.Spec) { s.CPUs = cpu.Of(0) }, "a second CPU, and may use CPU 0 alone"},
		{"a CPU beyond what the sorter can name", "", func(s *receive.Spec) { s.CPUs = cpu.Of(0, 254) }, "BULKDATA would be on CPU 254"},
		{"no sorting", "", func(s *receive.Spec) { s.Sort = false }, "ask for WORKLOADQ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := kerneltest.NewPair(t, 1)
			run(t, pair, c.prepare)
			journal := &noted{}
			spec := receive.Spec{NS: pair.Near, Device: pair.NearName, Sort: true, Journal: journal}
			c.change(&spec)
			a, err := cpumap.New(spec)
			if err == nil {
				a.Close()
				t.Fatal("it was taken")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, want one sentence with %q", err, c.want)
			}
			if journal.n != 0 {
				t.Errorf("%d changes were recorded", journal.n)
			}
		})
	}
}

// run runs shell commands in the near namespace.
func run(t *testing.T, pair kerneltest.Pair, script string) {
	t.Helper()
	if script == "" {
		return
	}
	sh := testenv.Tool(t, "sh")
	err := pair.Near.Do(func() error {
		// The child is made on this thread, so it starts in the namespace.
		out, err := exec.Command(sh, "-c", script).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnothersXDP: a device has room for one XDP program, and the one that was
// there first stays, whether it came before New or between New and Apply.
func TestAnothersXDP(t *testing.T) {
	testenv.Lab(t)
	for _, when := range []string{"before New", "between New and Apply"} {
		t.Run(when, func(t *testing.T) {
			pair := kerneltest.NewPair(t, 1)
			spec := receive.Spec{NS: pair.Near, Device: pair.NearName, Sort: true, Journal: &noted{}}
			attach := func() {
				index := kerneltest.Device(t, kerneltest.Netlink(t, pair.Near), pair.NearName).Attrs().Index
				err := pair.Near.Do(func() error {
					l, err := xdplink.AttachXDP(xdplink.XDPOptions{Program: passAll(t), Interface: index})
					if err == nil {
						t.Cleanup(func() { l.Close() })
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if when == "before New" {
				attach()
			}
			a, err := cpumap.New(spec)
			if when != "before New" {
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				attach()
				err = a.Apply(context.Background())
			}
			if !errors.Is(err, cpumap.ErrTaken) || !strings.Contains(err.Error(), "take it off first") {
				t.Errorf("%v, want ErrTaken and what to do", err)
			}
		})
	}
}

// TestWhereTheSorterIs: in the driver where frames keep all they need, before
// the stack otherwise, and Cannot gives the reason.
func TestWhereTheSorterIs(t *testing.T) {
	testenv.Lab(t)
	for _, c := range []struct {
		name, prepare, device string
		named, driver         bool
		why                   string
	}{
		{"a veth whose far end is seen", "", "eth0", true, true, ""},
		{"a veth whose far end is in a namespace that only a file holds", "", "eth0", false, false, "cannot be seen"},
		{"a macvlan", "ip link add link eth0 name over0 type macvlan && ip link set over0 up", "over0", true, false, "frames of a macvlan may have unfinished checksums"},
		{"a tap", "ip tuntap add tap0 mode tap && ip link set tap0 up", "tap0", true, false, "frames of a tun may have unfinished checksums"},
	} {
		t.Run(c.name, func(t *testing.T) {
			far := kerneltest.Namespace(t)
			if c.named {
				_, far = kerneltest.Named(t)
			}
			pair := kerneltest.Connect(t, kerneltest.Namespace(t), far, 1)
			run(t, pair, c.prepare)
			a, err := cpumap.New(receive.Spec{NS: pair.Near, Device: c.device, Sort: true, Journal: &noted{}})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if err := a.Apply(context.Background()); err != nil {
				t.Fatal(err)
			}
			said := strings.Join(a.Cannot(), "\n")
			if c.driver == strings.Contains(said, "sort in the driver") || !strings.Contains(said, c.why) {
				t.Errorf("Cannot says:\n%s", said)
			}
			if c.driver != strings.Contains(a.Describe(), "in the driver") {
				t.Errorf("Describe says: %s", a.Describe())
			}
		})
	}
}
