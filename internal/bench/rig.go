package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"xlane/internal/awm"
	"xlane/internal/kernel/cpu"
	"xlane/internal/kernel/netns"
	"xlane/internal/kernel/netstat"
	"xlane/internal/lab"
)

const (
	// awmPort is where the server on the lab's host answers runs.
	awmPort = 5201
	// readyWait is how long that server may take to start.
	readyWait = 10 * time.Second
	// runSlack is how long a run may take beyond its warm-up and window: opening
	// its connections, and ending them in good order.
	runSlack = 30 * time.Second
)

// places are the CPUs that the parts of a bench run on.
type places struct{ server, wire, client int }

// placesOf gives the server the first CPU for itself, the wire the second, and
// the clients the third where there is one.
func placesOf(online cpu.Set) (places, error) {
	m := online.Members()
	if len(m) < 2 {
		return places{}, fmt.Errorf("bench: it takes two CPUs, one for the server and one for the wire; this machine has %d", len(m))
	}
	p := places{server: m[0], wire: m[1], client: m[1]}
	if len(m) > 2 {
		p.client = m[2]
	}
	return p, nil
}

// rig is the lab of one bench: a server, a client for the interactive load and
// another for the streams. Streams have a host of their own so that the shaper
// on it, which stands for a 1 Gb/s wire, does not delay the interactive
// client's frames by a queue that no wire has.
type rig struct {
	cfg    Config
	at     places
	lab    *lab.Lab
	server *lab.Host
	client *lab.Host
	bulk   *lab.Host

	serverNS, wireNS *netns.Handle
	address          string
}

func newRig(ctx context.Context, cfg Config) (*rig, error) {
	online, err := cpu.Online()
	if err != nil {
		return nil, err
	}
	r := &rig{cfg: cfg}
	if r.at, err = placesOf(online); err != nil {
		return nil, err
	}
	if r.lab, err = lab.New(ctx, lab.Config{WireCPU: &r.at.wire}); err != nil {
		return nil, err
	}
	if err := r.build(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) build(ctx context.Context) (err error) {
	for _, h := range []struct {
		name string
		at   **lab.Host
	}{{"server", &r.server}, {"client", &r.client}, {"bulk", &r.bulk}} {
		if *h.at, err = r.lab.AddHost(h.name, lab.LinkSpec{}); err != nil {
			return err
		}
	}
	if r.serverNS, err = netns.OpenPath(r.server.NetNSPath); err != nil {
		return err
	}
	if r.wireNS, err = netns.OpenPath(r.lab.Wire.NetNSPath); err != nil {
		return err
	}
	return r.serve(ctx)
}

// close removes the lab and all that runs in it.
func (r *rig) close() error {
	for _, ns := range []*netns.Handle{r.serverNS, r.wireNS} {
		if ns != nil {
			ns.Close()
		}
	}
	return r.lab.Close()
}

// serve starts the workload modeler's server and waits until it answers.
func (r *rig) serve(ctx context.Context) error {
	r.address = netip.AddrPortFrom(r.server.Addr4, awmPort).String()
	args := append(append([]string{}, r.cfg.Program[1:]...), "awm", "serve", "--listen", r.address, "--cpu", strconv.Itoa(r.at.server))
	cmd := r.server.Command(r.cfg.Program[0], args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "ready ") {
			err = fmt.Errorf("it says %q", strings.TrimSpace(line))
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-time.After(readyWait):
		err = errors.New("it does not get ready")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("start the server: %w; %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// setWire makes the streams' way what the experiment asks for. Loss hits the
// same frames in every mode of a round.
func (r *rig) setWire(e Experiment, round int) error {
	rate, frames := uint64(gigabit), r.cfg.SendFrames
	if e.Wire != WireGigabit {
		rate, frames = 0, 0
	}
	return errors.Join(
		r.bulk.SetRate(lab.Out, rate),
		r.bulk.SetSendFrames(frames),
		r.bulk.SetFaults(lab.Out, lab.Faults{Loss: e.Loss, Seed: uint64(round)}),
	)
}

// load is one of the two parts of a run, under way.
type load struct {
	cmd    *lab.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
}

// start begins a part of the load on a host.
func (r *rig) start(h *lab.Host, spec string) (*load, error) {
	args := append(append([]string{}, r.cfg.Program[1:]...), "awm", "run", "--json",
		"--cpu", strconv.Itoa(r.at.client), "--warmup", r.cfg.Warmup.String(), "--duration", r.cfg.Duration.String(), r.address, spec)
	l := &load{cmd: h.Command(r.cfg.Program[0], args...)}
	l.cmd.Stdout, l.cmd.Stderr = &l.stdout, &l.stderr
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	return l, nil
}

// wait waits for the load's report.
func (l *load) wait(ctx context.Context, limit time.Duration) (awm.Report, error) {
	var report awm.Report
	done := make(chan error, 1)
	go func() { done <- l.cmd.Wait() }()
	var err error
	ended := false
	select {
	case err = <-done:
		ended = true
	case <-time.After(limit):
		err = fmt.Errorf("it takes more than %v", limit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !ended {
		_ = l.cmd.Process.Kill() // what ends by itself meanwhile needs none
		<-done
	}
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && l.stdout.Len() > 0) {
		return report, fmt.Errorf("run the load: %w: %s", err, bytes.TrimSpace(l.stderr.Bytes()))
	}
	// A run with wrong payload fails and reports: the report says it better.
	if jsonErr := json.Unmarshal(l.stdout.Bytes(), &report); jsonErr != nil {
		return report, fmt.Errorf("read the load's report: %w: %s", errors.Join(err, jsonErr), bytes.TrimSpace(l.stderr.Bytes()))
	}
	return report, nil
}

// losses are counters of the whole run.
type losses struct {
	counters netstat.Counters
	dropped  uint64
}

func (r *rig) losses() (losses, error) {
	c, err := netstat.Read(r.serverNS)
	if err != nil {
		return losses{}, err
	}
	dropped, err := r.server.Drops()
	return losses{c, dropped}, err
}
