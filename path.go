// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/placement"
)

// Path describes how a NIC reaches a Buffer's bytes.
type Path struct {
	NIC    string
	Staged bool                // the NIC uses pinned host memory in place of the bytes
	Route  ibvfd.Route         // the component that has registered the memory; "" if none has
	Why    string              // with Data Direct: which DMA function of the NIC's card moves the bytes, or why none does; "" otherwise
	Reason error               // why no component has: an *ibvfd.RegError, or nil with StagedOnly
	Proof  placement.Placement // the last answer of Prove; its Memory is Unknown before the first one
}

// String returns all fields in one line: "registered with mlx5_0, by ibv_reg_dmabuf_mr". It says "direct with" in
// place of "registered with" only after Prove has seen that DMA goes straight to device memory.
func (p Path) String() string {
	text := p.kind()
	if p.Route == "" {
		if p.Reason != nil {
			text += fmt.Sprintf(": %v", p.Reason)
		}
		return text
	}
	text += fmt.Sprintf(", by %v", p.Route)
	if p.Why != "" {
		text += " (" + p.Why + ")"
	}
	if p.Proof.Memory != placement.Unknown || p.Proof.Reason != "" {
		text += fmt.Sprintf("; %v", p.Proof)
	}
	return text
}

// kind returns the first words of String.
func (p Path) kind() string {
	switch {
	case p.Staged:
		return "staged for " + p.NIC
	case p.Route == "":
		return "not reached by " + p.NIC
	case p.Proof.Direct() == placement.Yes:
		return "direct with " + p.NIC
	}
	return "registered with " + p.NIC
}

// Path returns the path of the first NIC of the Fabric that reaches the bytes, or else of the first NIC.
func (b *Buffer) Path() Path {
	list := b.Paths()
	return list[max(0, slices.IndexFunc(list, func(p Path) bool { return p.Route != "" }))]
}

// Paths returns how each NIC of the Fabric reaches the bytes, in the order of Open.
func (b *Buffer) Paths() (list []Path) {
	for _, part := range b.parts {
		p := part.Path()
		list = append(list, Path{NIC: part.NIC().Name(), Staged: p.Direct == memory.Staged, Route: p.Route, Why: p.Why, Reason: p.Reason, Proof: p.Proof})
	}
	return list
}

// Prove asks a prover, such as a trace.Tracer, where the bytes are that each NIC accesses, and keeps the answers for
// Paths. It returns the answer for the NIC of Path. The prover must have been started before the Buffer was
// registered. For host memory and staged memory Prove returns an error.
func (b *Buffer) Prove(ctx context.Context, p placement.Prover) (placement.Placement, error) {
	proof, err := memory.ProveAll(ctx, p, b.parts)
	return proof, plain(err)
}
