// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/placement"
)

const (
	// slowRead is how many times slower a read may be than a write.
	slowRead = 10
	// slowGPU is how many times slower the GPU's memory may be than the host's.
	slowGPU = 2
)

func (l *look) proveRates() {
	l.perProof("no hardware moved data", func(name string, p Pair) {
		q := p.Proof
		if p.NIC.Software || p.NIC.Importer.ByCPU || q.WriteRate <= 0 || q.ReadRate <= 0 {
			return
		}
		read := fmt.Sprintf("writes %.2g GB/s, reads %.2g GB/s", q.WriteRate/1e9, q.ReadRate/1e9)
		compared := q.HostWriteRate > 0 && q.HostReadRate > 0
		if compared {
			read = fmt.Sprintf("writes %.2g GB/s (%.0f%% of host memory), reads %.2g GB/s (%.0f%%)",
				q.WriteRate/1e9, 100*q.WriteRate/q.HostWriteRate, q.ReadRate/1e9, 100*q.ReadRate/q.HostReadRate)
		}
		limit, link := l.narrowest(p)
		if limit > 0 {
			read += fmt.Sprintf("; the narrowest link (%s) passes %.2g GB/s", link, limit/1e9)
		}
		switch {
		case q.ReadRate*slowRead < q.WriteRate:
			l.warn(name, nil, "%s", read)
		case !compared:
			l.unknown(name, nil, "%s; what host memory reaches was not measured: %s", read, q.Uncompared)
		case limit > 0 && max(q.WriteRate, q.ReadRate) > limit:
			l.unknown(name, nil, "%s: so the bytes did not take it", read)
		case q.WriteRate*slowGPU < q.HostWriteRate || q.ReadRate*slowGPU < q.HostReadRate:
			l.warn(name, nil, "%s: less than half", read)
		default:
			l.pass(name, nil, "%s", read)
		}
	})
}

// narrowest is what the narrowest link between the two can pass at its best, in
// bytes per second, and the function below it; 0 if not all links are known. A
// link that is slow because it is idle is not slow when bytes come.
func (l *look) narrowest(p Pair) (limit float64, link string) {
	if p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil || l.m.virtual.is != placement.No {
		return 0, ""
	}
	linked := l.linked()
	common := p.Prediction.Decision.Common
	for _, end := range []Addr{*p.GPU.Exporter.PCI, *p.NIC.Importer.PCI} {
		f := l.function(end)
		for _, x := range append([]Addr{end}, f.Upstream...) {
			if common != nil && x == *common {
				break
			}
			i := slices.IndexFunc(linked, func(f *function) bool { return f.PCI == x })
			if i < 0 {
				continue // the upper end of a link
			}
			s, ok := l.linkOf(linked[i])
			if !ok {
				return 0, ""
			}
			if passes := s.bytesPerSecond(); limit == 0 || passes < limit {
				limit, link = passes, linked[i].name
			}
		}
	}
	return limit, link
}

// bytesPerSecond is what a link passes in one direction at its best, without what
// packets cost: 8 bits are sent as 10 up to 5 GT/s, and 128 as 130 beyond.
func (s linkState) bytesPerSecond() float64 {
	coded := 128.0 / 130
	if s.maxSpeed <= 5 {
		coded = 0.8
	}
	return s.maxSpeed * 1e9 * float64(s.maxWidth) / 8 * coded
}
