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
has no NIC that reaches it directly, no NIC is chosen. GPURDMA_NO_NICS has the reason then, as Slurm
gives a TaskProlog no standard error.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			set, kept, err := variables(plan, root)
			var out strings.Builder
			if err != nil {
				for _, name := range task.Stale(os.LookupEnv) {
					fmt.Fprintf(&out, "unset %s\n", name)
				}
				if !errors.Is(err, task.ErrNoGPU) {
					fmt.Fprintln(c.ErrOrStderr(), "slurm-p2p: no NIC is chosen for this task:", err)
					fmt.Fprintf(&out, "export %s=%s\n", task.Why, oneLine(err.Error()))
				}
			} else {
				fmt.Fprintf(&out, "unset %s\n", task.Why)
			}
			for _, s := range set {
				fmt.Fprintf(&out, "export %s=%s\n", s.Name, s.Value)
			}
			if len(kept) > 0 {
				fmt.Fprintln(c.ErrOrStderr(), "slurm-p2p: the job has set these itself, and they stay:", strings.Join(kept, ", "))
			}
			_, err = fmt.Fprint(c.OutOrStdout(), out.String())
			return err
		},
	}
	c.Flags().StringVar(&plan, "plan", "", "`file` that slurm-p2p plan has written")
	c.Flags().StringVar(&root, "root", "/", "`directory` above proc of the node")
	return c
}

// variables finds the variables of this process's task.
func variables(plan, root string) (set []task.Set, kept []string, err error) {
	if plan == "" {
		return nil, nil, errors.New("--plan FILE is needed: what slurm-p2p plan has written")
	}
	p, err := nicplan.Read(plan)
	if err != nil {
		return nil, nil, fmt.Errorf("no plan: %w", err)
	}
	if boot := nicplan.Boot(machine.Open(root)); boot == "" || boot != p.Boot {
		return nil, nil, fmt.Errorf("%s is of an earlier boot", plan)
	}
	return task.Variables(p, os.LookupEnv)
}

// oneLine makes a text one line without control characters, as Slurm reads lines.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
