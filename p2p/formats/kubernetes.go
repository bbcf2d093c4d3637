// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// NFD is the format of labels for the local source of node-feature-discovery.
func NFD(b *strings.Builder, run Input) int {
	r, status := run.Found, run.Status
	fmt.Fprintf(b, "p2pcheck.result=%s\n", result.Verdict(r, status))
	if r == nil {
		return status
	}
	direct := map[string]bool{}
	for _, p := range r.Pairs {
		if p.Counts && p.Outcome == "direct" {
			direct[p.GPU] = true
		}
	}
	fmt.Fprintf(b, "p2pcheck.gpus=%d\n", result.Counting(r.GPUs))
	fmt.Fprintf(b, "p2pcheck.gpus-direct=%d\n", len(direct))
	fmt.Fprintf(b, "p2pcheck.nics=%d\n", len(r.NICs))
	fmt.Fprintf(b, "p2pcheck.pairs-direct=%d\n", r.Summary.Direct)
	if l := r.Live; l != nil {
		fmt.Fprintf(b, "p2pcheck.pairs-proven-direct=%d\n", l.Proven.Direct)
		fmt.Fprintf(b, "p2pcheck.contradicted=%d\n", l.Contradicted)
	}
	return status
}

// dra writes the devices as a ResourceSlice of Kubernetes names them, one a line: a claim takes a
// GPU and a NIC of one resource.kubernetes.io/pcieRoot together. An attribute that is not known
// is left out, and a device with several names is written once.
func dra(b *strings.Builder, run Input) int {
	r, status := run.Found, run.Status
	fmt.Fprintf(b, "# p2pcheck: %s\n", result.Verdict(r, status))
	if r == nil {
		return status
	}
	b.WriteString("devices:\n")
	seen := map[pciaddr.Addr]bool{}
	device := func(kind, name string, pci *pciaddr.Addr, at result.Place) {
		switch {
		case pci == nil:
			fmt.Fprintf(b, "# %s is on no PCI bus\n", terminal.Escape(name))
			return
		case seen[*pci]:
			return
		}
		seen[*pci] = true
		attributes := fmt.Sprintf("resource.kubernetes.io/pciBusID: {string: %q}", pci)
		if at.Root != nil {
			attributes += fmt.Sprintf(", resource.kubernetes.io/pcieRoot: {string: %q}", *at.Root)
		}
		// A name is a DNS label: no colon and no dot.
		id := strings.NewReplacer(":", "-", ".", "-").Replace(pci.String())
		fmt.Fprintf(b, "- {name: %s-%s, attributes: {%s}}\n", kind, id, attributes)
	}
	for _, g := range r.GPUs {
		if g.Counts {
			device("gpu", g.Name, g.PCI, g.Place)
		}
	}
	for _, n := range r.NICs {
		device("nic", n.Name, n.PCI, n.Place)
	}
	return status
}
