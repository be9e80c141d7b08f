// Package netstat reads a namespace's protocol counters: the "TcpExt" and
// other groups of /proc/net/netstat, and "Tcp", "Ip" and others of
// /proc/net/snmp. What a change in them means is decided elsewhere.
package netstat

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"xlane/internal/kernel/netns"
)

// Counters are values by group and name, joined as "TcpExtTCPOFOQueue" and
// "TcpRetransSegs", the names that nstat(8) prints. A few are no counters but
// settings ("TcpMaxConn" is -1).
type Counters map[string]int64

// Read returns the namespace's counters.
func Read(ns *netns.Handle) (Counters, error) {
	counters := make(Counters, 512)
	err := ns.Do(func() error {
		for _, file := range []string{"/proc/thread-self/net/netstat", "/proc/thread-self/net/snmp"} {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			err = parse(f, counters)
			f.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read counters of namespace %s: %w", ns, err)
	}
	return counters, nil
}

// Since returns how far each counter moved between two readings.
func (c Counters) Since(before Counters) Counters {
	moved := make(Counters, len(c))
	for name, v := range c {
		moved[name] = v - before[name]
	}
	return moved
}

// parse reads pairs of lines: "Group: names…" and "Group: values…".
func parse(r io.Reader, into Counters) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		names := strings.Fields(lines.Text())
		if len(names) == 0 {
			continue
		}
		if !lines.Scan() {
			return fmt.Errorf("group %q has no line of values", names[0])
		}
		values := strings.Fields(lines.Text())
		if len(values) != len(names) || values[0] != names[0] {
			return fmt.Errorf("group %q: names and values do not match", names[0])
		}
		group := strings.TrimSuffix(names[0], ":")
		for i := 1; i < len(names); i++ {
			v, err := strconv.ParseInt(values[i], 10, 64)
			if err != nil {
				// An unsigned counter past 2^63 wraps as the kernel's own
				// arithmetic does.
				u, unsignedErr := strconv.ParseUint(values[i], 10, 64)
				if unsignedErr != nil {
					return fmt.Errorf("%s%s: %w", group, names[i], err)
				}
				v = int64(u)
			}
			into[group+names[i]] = v
		}
	}
	return lines.Err()
}
