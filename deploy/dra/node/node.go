// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Node is the devices of a node that a pod may be given.
type Node struct {
	GPUs  []GPU
	NICs  []NIC
	Pairs []Pair // of all GPUs with all NICs
	Dev   string // where this process sees the node's /dev; "" is there
}

// GPU is a GPU with memory of its own, on a PCI bus.
type GPU struct {
	ID    string // its PCI address as a part of a DNS label
	PCI   pciaddr.Addr
	Files Files
	result.Place
}

// NIC is an RDMA NIC on a PCI bus.
type NIC struct {
	ID    string
	PCI   pciaddr.Addr
	Name  string // its RDMA device: "mlx5_0"
	Ports []int  // those that are up
	Files Files
	result.Place
}

// Pair is a GPU, a NIC, and what is known of the way between them.
type Pair struct {
	GPU, NIC string // IDs
	Outcome  chain.Outcome
	Why      string
	Proven   bool   // it was tried, and the proof still holds
	Distance string // as NCCL names it: "PIX"; "" if it is not known
	Rate     uint64 // bytes a second, of the slowest link; 0 if it is not known
	Slow     bool   // it is slower than it could be

	Taken   time.Time // of the proof that decides; zero if none does
	ByTrial bool      // a proof, or the kernel's log, has decided: another proof may decide otherwise
}

// Options say what is read of a node. The zero value is right for a node of a cluster.
type Options struct {
	Kept     proofs.Store // proofs of earlier runs, which count as far as they still hold
	File     string       // the name of the file that has them
	Software bool         // NICs whose work the CPU does count, too: those of a test bed
	Dev      string       // where this process sees the node's /dev; "" is there
}

// Look reads a machine. With an error, the node has what could be read.
func Look(m *machine.Machine, o Options) (Node, error) {
	gpus, nics, err := devices(m, o)
	var all []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			p := p2p.Judge(m, g, n)
			o.Kept.Recall(m, &p, o.File)
			all = append(all, p)
		}
	}
	r := result.New(m, gpus, nics, all)
	n := Node{Dev: o.Dev}
	for i, g := range gpus {
		n.GPUs = append(n.GPUs, gpuOf(m, g, r.GPUs[i].Place))
	}
	for i, id := range nicIDs(nics) {
		n.NICs = append(n.NICs, nicOf(nics[i], id, r.NICs[i].Place))
	}
	for i, p := range all {
		way, _ := p2p.WayOf(m, p, m.Function)
		n.Pairs = append(n.Pairs, Pair{
			GPU: n.GPUs[i/len(nics)].ID, NIC: n.NICs[i%len(nics)].ID,
			Outcome: p.Verdict.Outcome(), Why: p.Verdict.String(), Proven: p.Verdict.Chain()[chain.Proof].State == chain.Holds,
			Distance: p.Letters.NCCL, Rate: way.Rate, Slow: r.Pairs[i].Slow(), Taken: o.taken(p), ByTrial: byTrial(p.Verdict),
		})
	}
	return n, err
}

// idOf is an address as a part of a DNS label, which has no colon and no dot.
func idOf(a pciaddr.Addr) string { return label(a.String()) }

func label(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
}

// Direct returns the pairs that may be given to a pod, neighbours in a row: those that the NIC reaches
// directly. A pair of which something is unknown is not among them.
func (n *Node) Direct() (list []pairs.Pair) {
	for _, p := range n.Pairs {
		if p.Outcome == chain.Direct {
			list = append(list, pairs.Pair{GPU: p.GPU, NIC: p.NIC, Cost: p.Cost()})
		}
	}
	slices.SortStableFunc(list, func(p, q pairs.Pair) int {
		x, y := n.GPU(p.GPU), n.GPU(q.GPU)
		return cmp.Or(cmp.Compare(numa(x.NUMA), numa(y.NUMA)), cmp.Compare(text(x.Root), text(y.Root)), cmp.Compare(x.ID, y.ID), cmp.Compare(p.Cost, q.Cost))
	})
	return list
}

func numa(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// distances are NCCL's names, the nearest first.
var distances = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}

// Cost is lower for a pair that is nearer, and as fast as it can be.
func (p *Pair) Cost() int {
	at := slices.Index(distances, p.Distance)
	if at < 0 {
		at = len(distances)
	}
	if p.Slow {
		return 2*at + 1
	}
	return 2 * at
}

// GPU returns a GPU by its ID; its zero value if there is none.
func (n *Node) GPU(id string) (g GPU) {
	if i := slices.IndexFunc(n.GPUs, func(g GPU) bool { return g.ID == id }); i >= 0 {
		g = n.GPUs[i]
	}
	return g
}

// NIC returns a NIC by its ID; its zero value if there is none.
func (n *Node) NIC(id string) (x NIC) {
	if i := slices.IndexFunc(n.NICs, func(x NIC) bool { return x.ID == id }); i >= 0 {
		x = n.NICs[i]
	}
	return x
}

// Pair returns a pair by the IDs of its devices.
func (n *Node) Pair(gpu, nic string) (Pair, bool) {
	i := slices.IndexFunc(n.Pairs, func(p Pair) bool { return p.GPU == gpu && p.NIC == nic })
	if i < 0 {
		return Pair{}, false
	}
	return n.Pairs[i], true
}
