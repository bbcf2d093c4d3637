// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/deploy/slurm/gres"
	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func planCommand() *cobra.Command {
	var from source
	var slurmd, node, output string
	c := &cobra.Command{
		Use:   "plan",
		Short: "Plan which NICs go with which GPU, and write it to a file",
		Long: `Plan which NICs go with which GPU, from a run of p2pcheck and from the GPUs that slurmd -G prints, in
its order:

  p2pcheck --json | slurm-p2p plan -o /run/p2pcheck/gpu07.json

p2pcheck needs root for its answers. p2pcheck-health.sh calls this command if P2PCHECK_NICS is set.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output == "" {
				return errors.New("-o FILE is needed: where slurm-p2p task finds the plan")
			}
			run, err := from.read(c.InOrStdin())
			if err != nil {
				return err
			}
			files, err := gpuFiles(c.Context(), slurmd, node)
			if err != nil {
				return err
			}
			before, err := nicplan.Read(output)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				fmt.Fprintln(c.ErrOrStderr(), "slurm-p2p: the earlier plan is ignored:", err)
			}
			p, err := nicplan.Make(run, machine.Open(from.root), files, before)
			if err != nil {
				return err
			}
			if p.Boot == "" {
				return errors.New("/proc/sys/kernel/random/boot_id cannot be read: after the next boot nothing would show that the plan is old")
			}
			return p.Write(output)
		},
	}
	from.flags(c)
	c.Flags().StringVar(&slurmd, "slurmd", "slurmd", "the `program` slurmd, which says how it counts the GPUs")
	c.Flags().StringVar(&node, "node", "", "`name` of the node in slurm.conf, where several slurmd run on a machine")
	c.Flags().StringVarP(&output, "output", "o", "", "`file` for the plan; the new plan keeps the choices of an earlier one there that are still as good")
	return c
}

// gpuFiles asks slurmd for the device files of the node's GPUs.
func gpuFiles(ctx context.Context, slurmd, node string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	args := []string{"-G"}
	if node != "" {
		args = append(args, "-N", node)
	}
	cmd := exec.CommandContext(ctx, slurmd, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said // the list is on the standard error
	err := cmd.Run()
	text := said.String()
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: --slurmd names the program, which says how it counts the GPUs", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", slurmd, strings.Join(args, " "), err, tail(text))
	}
	files, err := gres.Files(text)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", slurmd, strings.Join(args, " "), err, tail(text))
	}
	return files, nil
}

// tail is the last of what a program has said, on one line.
func tail(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = "…" + text[len(text)-300:]
	}
	return text
}
