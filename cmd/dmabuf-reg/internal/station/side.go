// SPDX-License-Identifier: Apache-2.0

package station

import (
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// Side is one side's memory and NICs, and how the NICs reach the memory. The fields from Path to Failure
// are those of the first NIC that reaches it.
type Side struct {
	Memory    buffer.Description `json:"memory"`
	NIC       string             `json:"nic"` // all names, with commas
	NICReason string             `json:"nic_reason"`
	Policy    string             `json:"policy"`
	Path      string             `json:"path"`  // direct, moved, staged, host
	Route     string             `json:"route"` // how it was registered; "" if staged
	Why       string             `json:"why"`   // in words
	// Placement is where the bytes were when they had been registered, Failure which
	// kernel function refused that; null without --trace.
	Placement     *placement.Placement `json:"placement"`
	Failure       *trace.Failure       `json:"failure"`
	Registrations []registration       `json:"registrations"` // one for each NIC
}

// Text says what a side is, in three lines, or more if it has several NICs.
func (s *Side) Text(w io.Writer) error {
	what := s.Memory.Spec
	if s.Memory.Exporter != "" {
		what += ", exporter " + s.Memory.Exporter
	}
	fmt.Fprintf(w, "memory:  %s, %s, %s\n", what, s.Memory.Words(), bytesize.Format(s.Memory.Size))
	fmt.Fprintf(w, "nic:     %s: %s\n", s.NIC, s.NICReason)
	if len(s.Registrations) < 2 {
		_, err := fmt.Fprintf(w, "path:    %s: %s\n", s.Path, s.Why)
		return err
	}
	for _, r := range s.Registrations {
		if _, err := fmt.Fprintf(w, "path:    with %s %s: %s\n", r.NIC, r.Path, r.Why); err != nil {
			return err
		}
	}
	return nil
}
