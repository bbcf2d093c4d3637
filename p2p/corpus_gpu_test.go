// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/product"
)

// No prediction contradicts an answer of a vendor's library in the corpus.
func TestCorpusLibraries(t *testing.T) {
	asked := 0
	for _, c := range testenv.Corpus(t) {
		if len(c.GPUs) == 0 {
			continue
		}
		m := machine.Open(c.Tree.Write(t))
		gpus, err := drivers.GPUs(m)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		for _, said := range c.GPUs {
			i := slices.IndexFunc(gpus, func(g drivers.GPU) bool { return g.Name == said.GPU })
			if i < 0 {
				t.Errorf("%s: %s is not found", c.Name, said.GPU)
				continue
			}
			asked++
			exports := p2p.Exports(m, gpus[i].Exporter)
			if exports.State == chain.Breaks && said.DMABuf == "yes" || exports.State == chain.Holds && said.DMABuf == "no" {
				t.Errorf("%s: %s: %v: %s; the library's answer is %s (%s): %s", c.Name, said.GPU, exports.State, exports.Text(), said.DMABuf, said.Mark, said.Reason)
			}
			peer := p2p.Product(m, gpus[i].Exporter)
			if peer.PeerMem == product.No && said.RDMA == "yes" || peer.PeerMem == product.Yes && said.RDMA == "no" {
				t.Errorf("%s: %s: %v: %s; the library's answer is %s (%s): %s", c.Name, said.GPU, peer.PeerMem, peer.Why, said.RDMA, said.Mark, said.Reason)
			}
		}
	}
	if asked == 0 {
		t.Error("no answer of a library is in the corpus")
	}
}
