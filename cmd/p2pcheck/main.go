// SPDX-License-Identifier: Apache-2.0

// Command p2pcheck predicts, for every GPU and RDMA NIC of a machine, whether the NIC reaches the
// GPU's memory, and names the obstacles. To add a subcommand, write it into a file of its own, and name
// it in root.go.
package main

import (
	"os"
	"runtime/debug"

	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// gcPercent lets the heap grow to a few times what is in use before the garbage collector runs: most
// runs end in a fifth of a second, and use little memory.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	version = cli.Version(version)
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	a.color = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	os.Exit(a.run(os.Args[1:]))
}
