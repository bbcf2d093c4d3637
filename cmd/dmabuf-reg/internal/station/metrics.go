// SPDX-License-Identifier: Apache-2.0

package station

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurdma/gpurdma/internal/nicmetrics"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Metrics returns the counters of all clients, for each NIC.
func (s *Station) Metrics() prometheus.Collector {
	return nicmetrics.Collector(func() map[string]*workqueue.Sum {
		if s.set == nil {
			sum := s.ep.Counts()
			return map[string]*workqueue.Sum{s.NIC: &sum}
		}
		_, each := s.set.Counts()
		return each
	})
}
