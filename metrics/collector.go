// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/nicmetrics"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Collector is a prometheus.Collector of Fabrics.
type Collector struct{ prometheus.Collector }

// NewCollector returns a collector of Fabrics. The counters of NICs that have the same
// name in several Fabrics are added. To keep them apart, register a collector for each
// Fabric by prometheus.WrapRegistererWith, with a label. A closed Fabric keeps its
// counters.
func NewCollector(fabrics ...*gpurdma.Fabric) *Collector {
	fabrics = slices.Clone(fabrics)
	return &Collector{nicmetrics.Collector(func() map[string]*workqueue.Sum {
		nics := map[string]*workqueue.Sum{}
		for _, f := range fabrics {
			for name, s := range f.Stats().ByNIC {
				if nics[name] == nil {
					nics[name] = &workqueue.Sum{}
				}
				nics[name].Add(sum(s))
			}
		}
		return nics
	})}
}

// sum is a NIC's counters.
func sum(s gpurdma.Stats) *workqueue.Sum {
	n := &workqueue.Sum{Conns: s.Conns, Pinned: s.Pinned, Copied: s.Staged, Blocks: workqueue.Blocks{Checked: s.Checked, Corrupt: s.Corrupt}}
	for kind, of := range s.ByKind {
		for _, k := range nicmetrics.Kinds {
			if k.String() == kind.String() {
				n.Counts[k] = workqueue.KindCounts{Failed: of.Failed, Repeats: of.Repeats, Bytes: of.Bytes, Staged: of.Staged, Time: of.Time, Latency: [workqueue.Buckets]uint64(of.Latency)}
			}
		}
	}
	return n
}
