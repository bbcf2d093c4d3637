// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"io"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
)

var update = flag.Bool("update", false, "write the documents that are made from the command")

// docs/reference/commands has the pages of this command and its subcommands. `make reference` writes them.
func TestCommandPages(t *testing.T) {
	referencetest.Commands(t, strict(), *update)
}

// Each line of the documents that calls this command has flags and arguments that it takes.
func TestLinesOfDocuments(t *testing.T) { referencetest.Lines(t, strict, 50) }

// strict is the command as main makes it.
func strict() *cobra.Command {
	c := root(&app.App{Stdout: io.Discard, Stderr: io.Discard})
	cli.Strict(c)
	return c
}
