// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
	"github.com/gpurdma/gpurdma/deploy/slurm/task"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func taskCommand() *cobra.Command {
	var plan, root string
	c := &cobra.Command{
		Use:   "task",
		Short: "Print the variables of a task for a TaskProlog",
		Long: `Print the variables of a task for a TaskProlog, as "export NAME=VALUE", by the plan of the node and the
variables that Slurm has set. Where it is not certain which GPUs the task uses, or where one of them
has no NIC that reaches it directly, print nothing, and the reason on the standard error.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if plan == "" {
				return errors.New("--plan FILE is needed: what slurm-p2p plan has written")
			}
			p, err := nicplan.Read(plan)
			if err != nil {
				return fmt.Errorf("no plan, so that no NIC is chosen for this task: %w", err)
			}
			if boot := nicplan.Boot(machine.Open(root)); boot == "" || boot != p.Boot {
				return fmt.Errorf("%s is not of this start of the machine, so that no NIC is chosen for this task", plan)
			}
			set, kept, err := task.Variables(p, os.LookupEnv)
			if errors.Is(err, task.ErrNoGPU) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("no NIC is chosen for this task: %w", err)
			}
			for _, s := range set {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "export %s=%s\n", s.Name, s.Value); err != nil {
					return err
				}
			}
			if len(kept) > 0 {
				fmt.Fprintln(c.ErrOrStderr(), "slurm-p2p: the job has set these itself, and they stay:", strings.Join(kept, ", "))
			}
			return nil
		},
	}
	c.Flags().StringVar(&plan, "plan", "", "`file` that slurm-p2p plan has written")
	c.Flags().StringVar(&root, "root", "/", "`directory` above proc of the node")
	return c
}
