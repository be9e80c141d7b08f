package veth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// numberQueues makes a full ring's poll wake the transmit queue that feeds it.
//
// When the far end has a queueing discipline, a full ring stops the transmit
// queue, and the poll starts it again: veth_xdp_rcv (drivers/net/veth.c, seen
// in 6.18) takes the queue's number from rq->xdp_rxq.queue_index, which only
// attaching an XDP program ever writes. Where GRO alone has made the NAPIs all
// of them say 0, so that a transmit queue other than the first stays stopped
// for good once its ring was full. Attaching a program that passes everything,
// and taking it off at once, writes the numbers; they last as long as the
// device, and nothing else remains of it.
func (a *Adapter) numberQueues(n int) error {
	if n < 2 || a.numbered == n && a.numberedIndex == a.device.Index {
		return nil
	}
	if a.sorter == nil && a.spec.PinDir != "" {
		if left, err := a.pinned(); err != nil || left {
			// Its daemon numbered them, and attaching loses a few of the packets
			// that are under way (seen: 11), which adopting must not.
			a.numbered, a.numberedIndex = n, a.device.Index
			return err
		}
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Flags:        bpfXDPHasFrags, // or the MTU would have to fit a page
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program to number the queues of %q: %w", a.device.Name, err)
	}
	defer prog.Close()
	err = a.spec.NS.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: a.device.Index, Flags: link.XDPDriverMode})
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EEXIST) {
			return nil
		}
		if err != nil {
			return err
		}
		return l.Close()
	})
	if err != nil {
		return fmt.Errorf("number the queues of %q: %w", a.device.Name, err)
	}
	a.numbered, a.numberedIndex = n, a.device.Index
	return nil
}

// pinned reports whether a daemon that died left its sorter on this device.
func (a *Adapter) pinned() (bool, error) {
	_, err := os.Stat(filepath.Join(a.spec.PinDir, "link_"+linkSort))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Values of include/uapi/linux/bpf.h.
const (
	xdpPass        = 2
	bpfXDPHasFrags = 1 << 5
)
