// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
)

// Placement is the verdict on one mapping.
type Placement struct {
	Memory Memory  `json:"memory"`           // where the bytes are
	Proof  Proof   `json:"proof"`            // the kind of evidence for the verdict
	Places []Place `json:"places,omitempty"` // how many bytes are in each place
	Errno  int     `json:"errno,omitempty"`  // the error number of a mapping that was refused, positive
	Reason string  `json:"reason,omitempty"` // why Memory is unknown, stale, bounced or not mapped
	// Likely is the verdict that the evidence of an unknown placement suggests; it is never proof.
	Likely Memory `json:"likely,omitzero"`

	Route       Route  `json:"route"`                  // the way that DMA takes to the bytes
	RouteReason string `json:"route_reason,omitempty"` // how the way is known

	Evidence Inputs `json:"-"`
}

// Direct says whether DMA goes straight to device memory. It is Yes only if all
// bytes are proven to be behind a BAR and the way to them is known. It is No if
// some bytes are in system memory, or nothing is mapped, and AnswerUnknown for
// the other verdicts, [CoherentGPUMemory] among them.
func (p Placement) Direct() Answer {
	switch p.Memory {
	case PeerToPeer:
		if p.Route != RouteUnknown {
			return Yes
		}
	case SystemMemory, Mixed, Bounced, NotMapped:
		return No
	}
	return AnswerUnknown
}

// GPU reports whether all bytes behind BARs are in BARs of GPUs. The BAR of a
// peer-to-peer placement may also be the importer's own, or that of another
// device.
func (p Placement) GPU() bool {
	if p.Memory != PeerToPeer && p.Memory != Mixed {
		return false
	}
	found := false
	for _, q := range p.Places {
		if q.Kind == KindBAR {
			if !q.GPU {
				return false
			}
			found = true
		}
	}
	return found
}

// String returns the verdict, its evidence and the route in one line:
//
//	peer-to-peer: 0000:03:00.0 BAR 2 (physical address), through the root complex
//	mixed: 65536 bytes in 0000:03:00.0 BAR 2, 4096 bytes in RAM (struct page)
//	unknown: only device addresses were seen, and an IOMMU translates them
func (p Placement) String() string {
	var b strings.Builder
	b.WriteString(p.Memory.String())
	switch p.Memory {
	case PeerToPeer, CoherentGPUMemory:
		if d := devices(p.Places); d != "" {
			b.WriteString(": " + d)
		}
	case Mixed:
		for i, q := range p.Places {
			sep := ", "
			if i == 0 {
				sep = ": "
			}
			fmt.Fprintf(&b, "%s%d bytes in %v", sep, q.Bytes, q)
		}
	}
	if p.Proof != NoProof {
		fmt.Fprintf(&b, " (%v)", p.Proof)
	}
	if p.Reason != "" {
		b.WriteString(": " + p.Reason)
	}
	if p.Likely != Unknown {
		fmt.Fprintf(&b, "; likely %v", p.Likely)
	}
	if p.Route != RouteUnknown {
		fmt.Fprintf(&b, ", %v", p.Route)
	}
	return b.String()
}
