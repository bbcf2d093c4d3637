// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/fleet"
)

// The flags that name files: those that are written, and those that are read.
var (
	outputs = []string{"output", "html", "nfd"}
	inputs  = []string{"snapshot", "lspci", "lspci-tree", "baseline", "proofs", "container-spec", "config", "since"}
)

// apart refuses an output that is an input. The error does not go there either.
func (a *app) apart(cmd *cobra.Command, args []string) error {
	var read []string
	switch cmd.Name() {
	case "diff":
		read = args
	case "report":
		// The command reports files that cannot be listed when it reads them.
		read, _ = fleet.Files(args)
		since, _ := fleet.Files([]string{cmd.Flag("since").Value.String()})
		read = append(read, since...)
	}
	err := cli.Apart(cmd, outputs, inputs, read...)
	if err != nil {
		a.output = ""
	}
	return err
}
