// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// gpuLibrary reports for each GPU the answer of its pairs' link Library.
func gpuLibrary(l *check.Look) {
	perGPU(l, func() {
		check.PerPair(l, func(p p2p.Pair) {
			a := p.Verdict.Link(chain.Library)
			var at []string
			for _, e := range a.Evidence {
				at = append(at, e.File)
			}
			switch {
			case p.GPU.Exporter.Withheld != "":
				// NV-DMABUF-ATTR and NV-CC report it.
			case a.State == chain.Breaks:
				l.Fail(p.Name(), at, "%s", a.Text()).Remedy = a.Remedy
			case a.State == chain.Unknown:
				l.Unknown(p.Name(), at, "%s", a.Text()).Remedy = a.Remedy
			case a.State.Good():
				l.Pass(p.Name(), at, "it does")
			}
		})
	})
	if len(l.Found) == 0 {
		l.Skip("no pair depends on the library, or another check has the library's answer")
	}
}
