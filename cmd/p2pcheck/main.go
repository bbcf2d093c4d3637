// SPDX-License-Identifier: Apache-2.0

//go:build !manual

// Command p2pcheck predicts, for every GPU and RDMA NIC of a machine, whether the NIC reaches the
// GPU's memory, and names the obstacles. To add a subcommand, write it into a file of its own, and name
// it in root.go.
package main

import (
	"os"
	"runtime/debug"

	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/pciids"
)

// gcPercent lets the heap grow to two and a half times what is in use before the garbage collector runs.
// With more, a machine of 60,000 devices needs more than 64 MiB, depending on when the collector ends.
const gcPercent = 150

// memoryLimit is where the collector runs more often: a machine of 100,000 functions needs less.
const memoryLimit = 160 << 20

// tune sets how much memory the program takes before it looks for what is not in use any more.
func tune() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
}

func main() {
	tune()
	version, revision = cli.Version(version), cli.Revision(revision)
	a := &app{stdout: os.Stdout, stderr: os.Stderr, ids: pciids.Paths}
	a.color = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	os.Exit(a.run(os.Args[1:]))
}
