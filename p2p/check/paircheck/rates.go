// SPDX-License-Identifier: Apache-2.0

package paircheck

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

const (
	// slowRead is how many times slower a read may be than a write.
	slowRead = 10
	// slowGPU is how many times slower the GPU's memory may be than the host's.
	slowGPU = 2
)

func proveRates(l *check.Look) {
	check.PerProof(l, "no hardware moved data", func(name string, p p2p.Pair) {
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
		limit, link := narrowest(l, p)
		if limit > 0 {
			read += fmt.Sprintf("; the narrowest link (%s) passes %.1f GB/s", link, limit/1e9)
		}
		switch {
		case q.ReadRate*slowRead < q.WriteRate:
			l.Warn(name, nil, "%s", read)
		case !compared:
			l.Unknown(name, nil, "%s; the rate of host memory was not measured: %s", read, q.Uncompared)
		case limit > 0 && max(q.WriteRate, q.ReadRate) > limit:
			l.Unknown(name, nil, "%s: the bytes were faster, and so they took another way", read)
		case q.WriteRate*slowGPU < q.HostWriteRate || q.ReadRate*slowGPU < q.HostReadRate:
			l.Warn(name, nil, "%s: less than half", read)
		default:
			l.Pass(name, nil, "%s", read)
		}
	})
}

// narrowest returns the highest rate of the slowest link between the two devices of a pair, in
// bytes per second, and the function below that link; 0 if it is not known. It takes the highest
// rates of links, because an idle link is slow only until bytes move.
func narrowest(l *check.Look, p p2p.Pair) (limit float64, link string) {
	w, ok := p2p.BestWay(l.Machine, p, l.ReadFunction)
	if !ok {
		return 0, ""
	}
	return float64(w.Rate), w.Slowest.String()
}
