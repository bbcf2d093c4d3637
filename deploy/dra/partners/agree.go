// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

func direct(n *node.Node, gpu, nic string) bool {
	p, ok := n.Pair(gpu, nic)
	return ok && p.Outcome == chain.Direct
}

// Agree returns an error if the GPUs and NICs of a claim are not partners: each NIC reaches one of the GPUs
// directly, each GPU is reached by one of the NICs, and no two need the same one where there are enough. A claim
// without a GPU has no partners to ask for.
func Agree(n *node.Node, gpus, nics []string) error {
	if len(gpus) == 0 {
		return nil
	}
	var list []pairs.Pair
	for _, g := range gpus {
		for _, x := range nics {
			if direct(n, g, x) {
				list = append(list, pairs.Pair{GPU: g, NIC: x})
			}
		}
	}
	for _, x := range nics {
		if !slices.ContainsFunc(list, func(p pairs.Pair) bool { return p.NIC == x }) {
			return fmt.Errorf("NIC %s reaches no GPU of the claim directly: %s", n.NIC(x).Name, why(n, gpus, []string{x}))
		}
	}
	for _, g := range gpus {
		if !slices.ContainsFunc(list, func(p pairs.Pair) bool { return p.GPU == g }) {
			return fmt.Errorf("no NIC of the claim reaches GPU %v directly: %s", n.GPU(g).PCI, why(n, []string{g}, nics))
		}
	}
	if found, want := pairs.Make(list, pairs.Taken{}, 1).Matched, min(len(gpus), len(nics)); found < want {
		return fmt.Errorf("only %d of the claim's %d GPUs can have a NIC of their own: %s", found, len(gpus), reach(n, gpus))
	}
	return nil
}

// why says of each pair why it is not direct, and which NICs reach the GPUs.
func why(n *node.Node, gpus, nics []string) string {
	var b strings.Builder
	for _, g := range gpus {
		for _, x := range nics {
			p, ok := n.Pair(g, x)
			if !ok {
				p.Why = "one of the two is not there"
			}
			fmt.Fprintf(&b, "GPU %v and NIC %s: %s; ", n.GPU(g).PCI, n.NIC(x).Name, p.Why)
		}
	}
	return b.String() + reach(n, gpus)
}

// reach says by which NICs some GPUs are reached.
func reach(n *node.Node, gpus []string) string {
	var b strings.Builder
	for i, g := range gpus {
		if i > 0 {
			b.WriteString("; ")
		}
		names := Names(n, g)
		if len(names) == 0 {
			names = []string{"no NIC"}
		}
		fmt.Fprintf(&b, "GPU %v is reached by %s", n.GPU(g).PCI, strings.Join(names, ", "))
	}
	return b.String()
}

// Names are the names of the NICs that reach a GPU directly.
func Names(n *node.Node, gpu string) (list []string) {
	for _, p := range n.Direct() {
		if p.GPU == gpu {
			list = append(list, n.NIC(p.NIC).Name)
		}
	}
	return list
}
