// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/bench"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/connect"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/devices"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/inspect"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/mesh"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/register"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/serve"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/tracing"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/verify"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// root makes the command, with its subcommands.
func root(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   app.Program,
		Short: "Register GPU memory with an RDMA NIC through dma-buf, and prove that it works",
		Long: `dmabuf-reg allocates memory on a GPU (or a software stand-in), exports it as a
dma-buf, registers it with an RDMA NIC, and moves bytes in and out by RDMA to
prove that the NIC reaches the right ones.

  dmabuf-reg devices     what this machine has, and what is missing
  dmabuf-reg verify      the proof, for every kind of memory there is
  dmabuf-reg register    one registration, with every parameter in your hand
  dmabuf-reg inspect     the dma-bufs there are, and the processes that hold them
  dmabuf-reg trace       what the kernel registers: where the bytes are, which function refused
  dmabuf-reg explain     the same in words, of a program that knows nothing of this
  dmabuf-reg serve       offer a buffer to another host
  dmabuf-reg connect     move bytes to and from it, and verify every one
  dmabuf-reg bench       how fast that is: direct, staged and host memory side by side
  dmabuf-reg mesh        between all NICs of many nodes: reached, rate, latency, and which node is slow

Tables are at most 100 columns wide, on a terminal and in a file: they leave out columns
and name those. --wide shows all columns; --json is for scripts.

Sizes are bytes: 4096, 0x1000, 64KiB, 1MiB, 8G.

Exit status: 0 done and right, 1 tried and failed, 2 wrong usage, 3 nothing
here to try it with (no such device, no libibverbs, a build without cgo), 130
interrupted by Ctrl-C, SIGTERM or SIGHUP, after closing everything.`,
		Version:       cli.VersionAndCommit(a.Version, a.Revision),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cli.Given(cmd, needs), cli.Apart(cmd, outputs, inputs))
		},
	}
	cli.FoldFlags(root)
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print one JSON document (schema "+app.Schema+") instead of tables")
	root.PersistentFlags().BoolVar(&a.Wide, "wide", false, "show all columns of a table, and fold no line; without it they fit 100 columns")
	root.AddCommand(devices.Command(a), register.Command(a), verify.Command(a), inspect.Command(a), tracing.Trace(a), tracing.Explain(a), serve.Command(a), connect.Command(a), bench.Command(a), mesh.Command(a))
	return root
}

// The flags that name files: those that are written, and those that are read.
var (
	outputs = []string{"output", "report", "csv", "svg", "html"}
	inputs  = []string{"nodes", "tls-cert", "tls-key", "tls-ca", "locate"}
)

// needs is what a flag is given, and not left empty.
var needs = map[string]string{
	"gpu": "a spec that `dmabuf-reg devices` lists, or auto", "nic": "a NIC's name, or auto",
	"tls-cert": "a file", "tls-key": "a file", "tls-ca": "a file",
	"csv": "a file", "svg": "a file", "report": "a file", "locate": "a program",
	"listen": "an address and a port", "nodes": "a file, or - for stdin", "allow": "a network",
}
