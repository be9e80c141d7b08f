package probe

import "fmt"

// Require returns an error, one sentence, for the first thing that this host
// lacks and without which nothing can be sorted. It costs some milliseconds.
func Require() error {
	for _, probe := range []func() Probe{privilege, kernelVersion, btf, tcx, napiSet, napiThreaded} {
		if p := probe(); !p.OK {
			return fmt.Errorf("this host cannot run xlane: %s: %s", p.Name, p.Detail)
		}
	}
	return nil
}
