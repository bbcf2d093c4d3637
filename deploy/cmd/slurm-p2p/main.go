// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "slurm-p2p:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "slurm-p2p",
		Short: "Give jobs of Slurm the NICs that reach their GPUs directly",
		Long: `slurm-p2p gives jobs of Slurm the NICs that reach their GPUs directly, by the verdicts of p2pcheck:

  slurm-p2p gres    once on a node: print the lines of its GPUs for gres.conf
  slurm-p2p plan    as root, from the health check: plan which NICs go with which GPU
  slurm-p2p task    from the TaskProlog: print the variables of a task, as Slurm takes them

The exit status is 0, or 1 if something failed; what failed is on the standard error.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(gresCommand(), planCommand(), taskCommand())
	return c
}
