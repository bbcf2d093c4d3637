// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
)

// docs/reference/commands has the pages of this command and its subcommands. `make reference` writes them.
func TestCommandPages(t *testing.T) {
	referencetest.Commands(t, strict(), *update)
}

// Each line of the documents that calls this command has flags and arguments that it takes.
func TestLinesOfDocuments(t *testing.T) { referencetest.Lines(t, strict, 50) }

// strict is the command as main makes it.
func strict() *cobra.Command {
	c := (&app{stdout: io.Discard, stderr: io.Discard}).root()
	cli.Strict(c)
	return c
}
