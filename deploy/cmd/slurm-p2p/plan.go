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
	var slurmd, scontrol, node, output string
	c := &cobra.Command{
		Use:   "plan",
		Short: "Plan which NICs go with which GPU, and write it to a file",
		Long: `Plan which NICs go with which GPU, from a run of p2pcheck and from the GPUs that slurmd -G prints, in
its order:

  p2pcheck --json | slurm-p2p plan -o /run/p2pcheck/gpu07.json

p2pcheck needs root for its answers. p2pcheck-health.sh calls this command if P2PCHECK_NICS is set.

GPUs that jobs have, by scontrol show node --details, keep the NICs of an earlier plan. If scontrol does not
say which these are, all do.`,
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
			var used func(int) bool // without an earlier plan there is nothing to keep
			if before != nil {
				if used, err = inUse(c.Context(), scontrol, node); err != nil {
					fmt.Fprintln(c.ErrOrStderr(), "slurm-p2p: each GPU keeps the NICs of the earlier plan, as if a job had it:", err)
					used = func(int) bool { return true }
				}
			}
			p, err := nicplan.Make(run, machine.Open(from.root), files, before, used)
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
	c.Flags().StringVar(&scontrol, "scontrol", "scontrol", "the `program` scontrol, which says which GPUs jobs have")
	c.Flags().StringVar(&node, "node", "", "`name` of the node in slurm.conf, if that is not the host's")
	c.Flags().StringVarP(&output, "output", "o", "", "`file` for the plan; the new plan keeps the choices of an earlier one there that are still as good")
	return c
}

// inUse asks scontrol which GPUs of the node jobs have.
func inUse(ctx context.Context, scontrol, node string) (func(int) bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second) // it waits for a slurmctld that does not answer
	defer cancel()
	if node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		node, _, _ = strings.Cut(name, ".")
	}
	args := []string{"--details", "show", "node", node}
	out, err := exec.CommandContext(ctx, scontrol, args...).CombinedOutput()
	if err == nil {
		var used func(int) bool
		if used, err = gres.InUse(string(out)); err == nil {
			return used, nil
		}
	}
	return nil, fmt.Errorf("%s %s: %w: %s", scontrol, strings.Join(args, " "), err, tail(string(out)))
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
