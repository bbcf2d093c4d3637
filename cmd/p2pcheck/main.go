// SPDX-License-Identifier: Apache-2.0

//go:build !manual

// Command p2pcheck predicts, for every GPU and RDMA NIC of a machine, whether the NIC reaches the
// GPU's memory, and names the obstacles. To add a subcommand, write it into a file of its own, and name
// it in root.go.
package main

import (
	"os"

	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/pciids"
)

func main() {
	tune()
	version, revision = cli.Version(version), cli.Revision(revision)
	a := &app{stdout: os.Stdout, stderr: os.Stderr, ids: pciids.Paths}
	a.color = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	os.Exit(a.run(os.Args[1:]))
}
