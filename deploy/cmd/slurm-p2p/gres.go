// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/deploy/slurm/gres"
	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

func gresCommand() *cobra.Command {
	var from source
	var lines gres.Lines
	c := &cobra.Command{
		Use:   "gres",
		Short: "Print the lines of this node's GPUs for gres.conf",
		Long: `Print the lines of this node's GPUs for gres.conf, by PCI address, from a run of p2pcheck:

  p2pcheck --json | slurm-p2p gres --node gpu07

On another machine, from the node's snapshot:

  p2pcheck --snapshot gpu07.p2pcheck --json | slurm-p2p gres --node gpu07 --snapshot gpu07.p2pcheck`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			run, err := from.read(c.InOrStdin())
			if err != nil {
				return err
			}
			m, done, err := from.machine()
			if err != nil {
				return err
			}
			devices := nicplan.Devices(run, m)
			done()
			if len(devices) == 0 {
				return errors.New("the run of p2pcheck has no GPU with memory of its own on a PCI bus")
			}
			var out bytes.Buffer
			missing, err := lines.Write(&out, devices)
			if err != nil {
				return err
			}
			if _, err := out.WriteTo(c.OutOrStdout()); err != nil {
				return err
			}
			if missing > 0 {
				return fmt.Errorf("%d of %d GPUs have no device file that /proc/driver/nvidia/gpus or /sys names, and no line", missing, len(devices))
			}
			return nil
		},
	}
	from.flags(c)
	c.Flags().StringVar(&from.snapshot, "snapshot", "", "`file` that p2pcheck snapshot wrote on the node, in place of --root")
	c.Flags().StringVar(&lines.Node, "node", "", "`name` of the node in slurm.conf; without it the lines name none")
	c.Flags().StringVar(&lines.Type, "type", "", "`type` of the GPUs, as Gres=gpu:TYPE:COUNT in slurm.conf has it")
	return c
}
