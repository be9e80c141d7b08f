// Command xlane is the daemon and the operator's tool in one static binary.
// It only hands its arguments to the command room.
package main

import (
	"os"

	"xlane/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr))
}
