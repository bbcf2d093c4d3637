// SPDX-License-Identifier: Apache-2.0

package station

import (
	"strings"

	"github.com/gpurdma/gpurdma/internal/exposition"
)

// Metrics returns the counters of all clients, for each NIC.
func (s *Station) Metrics() string {
	var list []exposition.NIC
	if s.set == nil {
		sum := s.ep.Counts()
		list = []exposition.NIC{{Name: s.NIC, Sum: &sum}}
	} else {
		_, each := s.set.Counts()
		for _, n := range s.set.NICs {
			list = append(list, exposition.NIC{Name: n.Name(), Sum: each[n.Name()]})
		}
	}
	var b strings.Builder
	exposition.Write(&b, list...)
	return b.String()
}
