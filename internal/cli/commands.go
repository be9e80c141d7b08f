package cli

import "github.com/spf13/cobra"

// commands lists every command, in the order that help shows them.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newRun(),
		newCheck(),
		newReset(),
		newDoctor(),
		newNetstat(),
		newDisplay(),
		newTNStats(),
		newAWM(),
		newBench(),
		newLab(),
	}
}
