// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// prediction is what a copy of the machine's files leads to. No library has a part in it.
type prediction struct {
	m     *machine.Machine
	gpus  []drivers.GPU // with memory of their own, or of which that is not known
	plain []drivers.GPU // without: displays of servers' boards
	nics  []drivers.NIC
	pairs []result.Pair // of gpus
}

// predict judges each pair of the machine whose files lie below root.
func predict(root string) (prediction, error) {
	p := prediction{m: machine.Open(root)}
	gpus, err1 := drivers.GPUs(p.m)
	nics, err2 := drivers.NICs(p.m)
	p.nics = nics
	for _, g := range gpus {
		if g.Exporter.Class == drivers.ClassSystem {
			p.plain = append(p.plain, g)
			continue
		}
		p.gpus = append(p.gpus, g)
		for _, n := range nics {
			p.pairs = append(p.pairs, result.PairOf(p2p.Judge(p.m, g, n)))
		}
	}
	return p, errors.Join(err1, err2)
}

// lacks names what a pair needs and the machine does not have; "" if it has both.
func (p prediction) lacks() string {
	switch {
	case len(p.gpus) == 0 && len(p.nics) == 0:
		return "the machine has no GPU and no RDMA NIC"
	case len(p.gpus) == 0:
		return "the machine has no GPU"
	case len(p.nics) == 0:
		return "the machine has no RDMA NIC"
	}
	return ""
}

// functionOf is the PCI address of a NIC, or its name where it has none: the snapshot may have
// another name for it.
func functionOf(name string, nics []result.NIC) string {
	for _, n := range nics {
		if n.Name == name && n.PCI != nil {
			return n.PCI.String()
		}
	}
	return name
}

// functionIn is functionOf for a NIC of the prediction.
func (p prediction) functionIn(name string) string {
	for _, n := range p.nics {
		if n.Name == name && n.Importer.PCI != nil {
			return n.Importer.PCI.String()
		}
	}
	return name
}
