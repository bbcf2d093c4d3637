// SPDX-License-Identifier: Apache-2.0

//go:build manual

package main

import (
	"os"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/manual"
)

// main writes the manual pages and the completions of p2pcheck into a directory.
func main() {
	version = cli.Version(version)
	root := (&app{stdout: os.Stdout, stderr: os.Stderr}).root()
	cli.Strict(root)
	os.Exit(manual.Main(root, os.Args[1:], os.Stderr))
}
