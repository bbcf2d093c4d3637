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
	Memory    buffer.Description `json:"memory"`     // this side's memory
	NIC       string             `json:"nic"`        // the name of the NIC; of several all names, with commas
	NICReason string             `json:"nic_reason"` // why this NIC was taken
	Policy    string             `json:"policy"`     // the value of --policy
	// Path is how the first NIC that reaches the memory does: "direct" (the memory itself is registered,
	// which does not say where its bytes are: Placement does), "moved" (registered, and --trace saw that
	// the bytes are not in the GPU's memory), "staged" (through host memory), "host" (it is host memory).
	Path  string `json:"path"`
	Route string `json:"route"` // the call that registered the memory; "" if staged
	Why   string `json:"why"`   // the reason of that path, in words
	// Placement is where the bytes were when they had been registered; null without --trace, and where
	// only host memory is registered.
	Placement *placement.Placement `json:"placement"`
	// Failure is the refusal of the registration, as --trace saw it; null without --trace or without a
	// refusal.
	Failure       *trace.Failure `json:"failure"`
	Registrations []registration `json:"registrations"` // how each NIC reaches the memory
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
		_, err := fmt.Fprintf(w, "path:    %s\n", PathWords(s.Path, s.Why))
		return err
	}
	for _, r := range s.Registrations {
		if _, err := fmt.Fprintf(w, "path:    with %s %s\n", r.NIC, PathWords(r.Path, r.Why)); err != nil {
			return err
		}
	}
	return nil
}
