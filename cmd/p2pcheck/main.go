// SPDX-License-Identifier: Apache-2.0

//go:build !manual

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
