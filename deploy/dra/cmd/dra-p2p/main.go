// SPDX-License-Identifier: Apache-2.0

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
get them. It needs no GPU and no NIC for itself, unless it tries the pairs (--live).`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			o.memlockGiven = c.Flags().Changed("memlock")
			return run(c.Context(), o)
		},
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
	f.StringVar(&o.what, "publish", o.what, "`what` is published: pairs, or nics where another driver gives the GPUs to pods")
	f.StringVar(&o.pcieRoot, "pcie-root", o.pcieRoot, "`whose` host bridge a NIC has in the attribute pcieRoot: its own where it reaches all GPUs there directly (own), else that of GPUs that it reaches (partner)")
	f.BoolVar(&o.lists, "lists", false, "publish the partners of a NIC as a list: the cluster has the gate DRAListTypeAttributes")
	f.StringSliceVar(&o.vendors, "gpu-drivers", o.vendors, "`drivers` whose devices are GPUs")
	f.IntVar(&o.partners, "partners", o.partners, "pairs of each GPU that are published at most")
	f.DurationVar(&o.every, "every", o.every, "time between two looks at the machine")
	f.BoolVar(&o.software, "software", false, "publish NICs whose work the CPU does, too, as those of a test bed")
	f.BoolVar(&o.live, "live", false, "try pairs that no pod has, as p2pcheck --live does, and keep the results in the file of --proofs (default in the driver's directory)")
	f.DurationVar(&o.liveEvery, "live-every", o.liveEvery, "time between two proofs, and before the first one")
	f.DurationVar(&o.liveAgain, "live-again", o.liveAgain, "time after which a pair is tried again whose proof still holds")
	f.StringVar(&o.memlock, "memlock", o.memlock, "`limit` of locked memory of the claims' containers: a quantity, unlimited, or off")
	return c
}
