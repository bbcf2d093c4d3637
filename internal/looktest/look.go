// SPDX-License-Identifier: Apache-2.0

package looktest

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// Look is a run, and the PCI tree of its machine.
type Look struct {
	Run  result.Run
	Tree topo.Topology
}

// At looks at a machine, without the checks of skip: IDs or families.
func At(tb testing.TB, tree testenv.Tree, skip ...string) Look {
	tb.Helper()
	return Below(tb, tree.Write(tb), skip...)
}

// Below is At for the machine whose files are below a directory.
func Below(tb testing.TB, root string, skip ...string) Look {
	tb.Helper()
	m := machine.Open(root)
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		tb.Fatal(err1, err2)
	}
	var pairs []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			pairs = append(pairs, p2p.Judge(m, g, n))
		}
	}
	p2p.Combine(m, pairs)
	l := Look{Run: result.New(m, gpus, nics, pairs)}
	l.Run.AddFindings(checks.Run(m, check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs, Skip: skip}))
	var errs []error
	if l.Tree, errs = topo.Read(m, gpus, nics, true); len(errs) > 0 {
		tb.Fatal(errs)
	}
	return l
}
