// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// run executes one command line and returns the exit status.
func (a *app) run(args []string) int {
	a.mark = rand.Text()
	a.stderr = terminal.Writer{Writer: a.stderr}
	root := a.root()
	root.SetArgs(args)
	out := &cli.Remembered{Writer: a.stdout} // of help, which Cobra prints
	root.SetOut(out)
	root.SetErr(a.stderr)
	cli.Strict(root) // once it knows where to write
	cmd, err := root.ExecuteC()
	if err == nil && !a.reached {
		return a.printed(out.Err, cli.ExitOK)
	}
	if a.reached {
		return a.status
	}
	// Cobra refused the command line before any code of this command ran. It has parsed only the flags in
	// front of the wrong one.
	a.format = formatAsked(args)
	a.json = a.json || slices.Contains(args, "--json") || a.format == "json"
	if cli.NamedTwice(a.output, args) || cli.FlagLike(a.output) {
		a.output = "" // it may be an input, or no file at all
	}
	if cmd != root {
		a.refused = cmd.Name()
	}
	return a.finish("", nil, &cli.UsageError{Err: err})
}

// formatAsked is the value of --format in a command line that cobra refused: the program that reads
// the format gets the error in it, too.
func formatAsked(args []string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--format="); ok {
			return value
		}
		if arg == "--format" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Predict whether RDMA NICs reach GPU memory, and name the obstacles",
		Long: `p2pcheck predicts for every GPU and RDMA NIC the outcome of a registration of the
GPU's memory with the NIC, by the rules of this kernel and its drivers:

  direct   every link from the vendor's library to the fabric is known to hold
  STAGED   the NIC gets system memory instead, without an error
  REFUSED  the registration fails
  LOST     the registration succeeds, and the NIC's data does not arrive
  BROKEN   a link is known not to hold; the registration's result is not predicted
  ?        not known; unknown is never a yes

For each pair that is not direct it prints the reasons and the one thing to
change. Then come the checks of everything else that can be in the way, failures
first. Run it as root: the kernel shows ACS to root only.

With --live p2pcheck tries each pair as well: it allocates memory on the GPU,
registers it with the NIC, writes and reads it by RDMA, and compares every byte. A
trace of the kernel shows where the bytes are. A proof that contradicts its
prediction comes first in the output. Without --live p2pcheck moves no data.

p2pcheck analyses another machine from a copy of its files: --root DIR with sys,
proc and boot below it, or --sysfs DIR and --proc DIR. --lspci FILE takes the text
that lspci printed there: the tree and ACS are known then, and no pair is direct.

Exit status: 0 all pairs are direct and no check fails, 1 some pair is staged,
refused, lost or broken, or a check fails, 2 wrong usage or nothing could be read, 3 no pair to
check, or a pair or a check is unknown and none is bad. With --live the proof
decides, and a pair that could not be proven is unknown; 1 is also for wrong bytes
and for a proof that contradicts its prediction, and 130 for an interruption, after
p2pcheck has closed everything. Pairs of a device without memory of its own (vgem,
virtio graphics) are shown and do not count, and neither do checks that never do
more than warn.`,
		Version:       cli.VersionAndCommit(version, revision),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          a.action("check", a.check),
	}
	cli.FoldFlags(root)
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print one JSON document (schema "+schema+")")
	flags.StringVar(&a.source.Root, "root", "", "read the machine whose sys, proc and boot are below this directory")
	flags.StringVar(&a.source.Sys, "sysfs", "", "sysfs of the machine")
	flags.StringVar(&a.source.Proc, "proc", "", "procfs of the machine")
	flags.StringVar(&a.source.Release, "kernel", "", "release of its kernel, if procfs does not have it (\"6.12.1\")")
	flags.StringVar(&a.source.Config, "config", "", "configuration of its kernel (\"/boot/config-…\")")
	flags.StringSliceVar(&a.gpu, "gpu", nil, "only these GPUs: PCI address (\"0000:13:00.0\", \"13:00.0\"), name or driver")
	flags.StringSliceVar(&a.nic, "nic", nil, "only these NICs: RDMA device, PCI address or driver")
	flags.StringSliceVar(&a.skip, "skip", nil, "leave out these checks: IDs or families (\"KRN-BTF,NET\"), \"all\"")
	root.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "reasons of all pairs, the direct ones too, notes, and all checks")
	root.Flags().BoolVar(&a.proving, "live", false, "prove each pair: allocate, register, write, read, compare, under trace (root, in short)")
	root.Flags().DurationVar(&a.limit, "timeout", 0, "with --live: how long a pair may take (default 1m)")
	root.Flags().Var(&a.size, "size", "with --live: how much memory a pair is proven with; a proof holds for memory of this class: up to 2 MiB, up to 256 MiB, above (default 256KiB)")
	root.Flags().StringVar(&a.proofs, "proofs", "", proofsHelp+"; with --live: add its proofs to this file")
	root.Flags().StringVar(&a.pid, "pid", "", "limits, capabilities, control group, /dev/shm and environment (as it was started) of this process, not of p2pcheck")
	root.Flags().StringVar(&a.spec, "container-spec", "", "judge the variables of these containers, not of this process: an OCI config.json, a Kubernetes Pod as JSON, or docker inspect")
	root.Flags().StringVar(&a.baseline, "baseline", "", "compare with the --json output of an earlier run: a difference for the worse is a failure")
	root.Flags().StringVar(&a.html, "html", "", pageHelp)
	root.Flags().StringVar(&a.format, "format", "text", "text, json, nagios, npd (node-problem-detector), prometheus, nfd (node-feature-discovery), dra (attributes for dynamic resource allocation)")
	flags.StringVarP(&a.output, "output", "o", "", "write to this file instead of the standard output (-): a file is replaced, whole or not at all; a device is written to")
	flags.StringVar(&a.snapshotFile, "snapshot", "", "analyse the machine in this file, which p2pcheck snapshot or rdma_topo dump wrote (-: standard input)")
	flags.StringVar(&a.lspciFile, "lspci", "", "analyse the machine in this output of lspci -vvvnn -D as root (-: standard input); values that lspci does not print are unknown")
	flags.StringVar(&a.lspciTree, "lspci-tree", "", "with --lspci: the output of lspci -tv, which names the root buses (-: standard input)")
	a.completeFlags(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		return errors.Join(usesFlags(cmd), a.apart(cmd, args))
	}
	root.AddCommand(a.whyCommand(), a.explain(), a.snapshot(), a.diff(), a.report(), a.serve())
	draw := &cobra.Command{
		Use:   "topo",
		Short: "Draw the PCI tree of GPUs and NICs, and name the way of each pair",
		Long: `topo draws GPUs, NICs, NVMe controllers and the bridges above them, with the
values that decide: ACS, the IOMMU and its groups, NUMA nodes, links and memory
regions. A virtual function is below its physical one, and a DMA function of a
ConnectX NIC beside its GPU. The table has for each pair the kernel's decision, and
the letters of NCCL and nvidia-smi for the same way. The letters name the way's
shape, not whether the kernel allows it. LINKS is the rate of the slowest link on
the way, and names that link if the links of GPU and NIC are faster. With --gpu or
--nic only GPUs and RDMA devices are drawn, with their bridges.

Exit status: 0, or 2 if nothing could be read, 3 without GPU or NIC.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%q: topo takes no arguments; --output FILE writes to a file, --gpu and --nic choose devices", args[0])
			}
			return nil
		},
		RunE: a.action("topo", a.topo),
	}
	draw.Flags().BoolVar(&a.svg, "svg", false, "draw in SVG")
	draw.Flags().BoolVar(&a.wide, "wide", false, wideHelp)
	draw.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "all ACS bits, the ports' IOMMU groups, the addresses of regions, the best speed of both ends of links")
	root.AddCommand(draw)
	showUsed(root)
	return root
}
