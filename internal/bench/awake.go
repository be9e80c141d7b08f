package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// haltPoll is how long an idle CPU of a virtual machine looks for work before
// it halts, where the haltpoll governor rules (Linux 5.4). Some hosts start
// their guests with 0: waking a CPU then costs more than all that is measured
// here, 25 µs each time.
const haltPoll = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"

// haltPollUsual is the governor's own default
// (drivers/cpuidle/governors/haltpoll.c).
const haltPollUsual = "200000"

// awakeRecord keeps what haltPoll was, should this process be killed.
var awakeRecord = "/run/xlane/bench-halt-poll"

// keepAwake gives haltPoll its usual value where it is 0, for as long as a
// bench runs. It does nothing where there is no such setting.
func keepAwake() (restore func() error, err error) {
	if _, err := RestoreIdle(); err != nil { // what an earlier bench left
		return nil, err
	}
	nothing := func() error { return nil }
	now, err := os.ReadFile(haltPoll)
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(now)) != "0" {
		return nothing, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how CPUs idle: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(awakeRecord), 0o755); err != nil {
		return nil, fmt.Errorf("write down how CPUs idle: %w", err)
	}
	if err := os.WriteFile(awakeRecord, now, 0o600); err != nil {
		return nil, fmt.Errorf("write down how CPUs idle: %w", err)
	}
	if err := os.WriteFile(haltPoll, []byte(haltPollUsual), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("keep idle CPUs awake: %w", err), os.Remove(awakeRecord))
	}
	return func() error {
		_, err := RestoreIdle()
		return err
	}, nil
}

// RestoreIdle puts back what keepAwake changed, also for a bench that was
// killed, and reports whether there was anything.
func RestoreIdle() (bool, error) {
	was, err := os.ReadFile(awakeRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = os.WriteFile(haltPoll, was, 0)
	}
	if err == nil {
		err = os.Remove(awakeRecord)
	}
	if err != nil {
		return false, fmt.Errorf("put back how CPUs idle: %w", err)
	}
	return true, nil
}
