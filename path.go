// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/placement"
)

// Path describes how a NIC reaches a Buffer's bytes.
type Path struct {
	NIC    string
	Staged bool                // the NIC uses host memory in their place
	Route  ibvfd.Route         // the component that registered the memory; "" if staged
	Reason error               // why it is staged: the *ibvfd.RegError, or nil if StagedOnly said so
	Proof  placement.Placement // the last answer of Prove; Unknown if no prover was asked
}

// String returns all fields in one line: "direct by mlx5_0: registered by ibv_reg_dmabuf_mr".
// It says "direct" only after Prove has seen that DMA goes straight to device memory.
func (p Path) String() string {
	text := p.kind()
	if p.Staged {
		if p.Reason != nil {
			text += fmt.Sprintf(": %v", p.Reason)
		}
		return text
	}
	text += fmt.Sprintf(", by %v", p.Route)
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
	case p.Proof.Direct() == placement.Yes:
		return "direct with " + p.NIC
	}
	return "registered with " + p.NIC
}

// Path returns how the first NIC of the Fabric reaches the bytes.
func (b *Buffer) Path() Path { return b.pathOf(0) }

func (b *Buffer) pathOf(i int) Path {
	p := b.parts[i].Path()
	return Path{
		NIC: b.fabric.nics[i].nic.Name(), Staged: p.Direct == memory.Staged, Route: p.Route, Reason: p.Reason, Proof: p.Proof,
	}
}

// Prove asks a prover, such as a trace.Tracer, where the bytes are that the first NIC of the
// Fabric accesses, and keeps the answer for Path. The prover must have been started before the
// Buffer was registered.
func (b *Buffer) Prove(ctx context.Context, p placement.Prover) (placement.Placement, error) {
	proof, err := b.parts[0].Prove(ctx, p)
	return proof, plain(err)
}
