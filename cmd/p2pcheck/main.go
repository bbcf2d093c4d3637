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
)

func main() {
	tune()
	version = cli.Version(version)
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	a.color = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	os.Exit(a.run(os.Args[1:]))
}
