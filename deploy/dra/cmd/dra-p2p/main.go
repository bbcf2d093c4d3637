// SPDX-License-Identifier: Apache-2.0

// Command dra-p2p is a driver of Kubernetes' dynamic resource allocation for pairs of a GPU and a NIC that
// reach each other directly. It runs on each node, beside the kubelet. docs/fleet.md says how to use it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dra-p2p:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := defaults()
	c := &cobra.Command{
		Use:   "dra-p2p",
		Short: "Publish the pairs of a GPU and a NIC that reach each other directly, and give them to pods",
		Long: `dra-p2p publishes the pairs of a GPU and a NIC of this node that reach each other directly, as
devices of Kubernetes' dynamic resource allocation, and prepares them for the pods that
get them. It needs no GPU and no NIC for itself.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return run(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.node, "node-name", o.node, "name of this node in Kubernetes (default $NODE_NAME)")
	f.StringVar(&o.pod, "pod-uid", o.pod, "UID of this pod, with which a new version starts before the old one ends (default $POD_UID)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the address and the credentials of the API server; without it those of the pod")
	f.StringVar(&o.kubelet, "kubelet-dir", o.kubelet, "`directory` of the kubelet")
	f.StringVar(&o.cdi, "cdi-dir", o.cdi, "`directory` in which the container's runtime looks for CDI specifications")
	f.StringVar(&o.root, "root", o.root, "`directory` above sys and proc of the node")
	f.StringVar(&o.dev, "dev-dir", "", "`directory` where this program sees the node's device files (default dev below --root)")
	f.StringVar(&o.proofs, "proofs", "", "`file` with proofs that p2pcheck --live has kept: those pairs count as proven")
	f.IntVar(&o.partners, "partners", o.partners, "pairs of each GPU that are published at most")
	f.DurationVar(&o.every, "every", o.every, "time between two looks at the machine")
	f.BoolVar(&o.software, "software", false, "publish NICs whose work the CPU does, too, as those of a test bed")
	return c
}
