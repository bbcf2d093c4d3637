// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/placement"
)

// Direct says how the NIC reaches a Buffer's bytes.
type Direct int

// The values of Direct.
const (
	Staged     Direct = iota // the NIC uses host memory in their place
	Registered               // they are registered; it is not proven where the driver keeps them
	Proven                   // registered, and a prover saw that DMA goes straight to device memory
	Missing                  // the NIC does not reach the memory, and another one does
)

// String returns "staged", "registered", "proven" or "missing".
func (d Direct) String() string {
	switch d {
	case Staged:
		return "staged"
	case Registered:
		return "registered"
	case Proven:
		return "proven"
	case Missing:
		return "missing"
	}
	return fmt.Sprintf("Direct(%d)", int(d))
}

// Path describes how the NIC reaches a Buffer's bytes.
type Path struct {
	Direct Direct
	Route  ibvfd.Route         // the component that registered the memory, or RoutePeerDirect; "" if it is not registered
	Why    string              // why by that route, where there is more to say: the DMA function of Data Direct
	Reason error               // why it is not: the *ibvfd.RegError, or nil if the policy said so
	Proof  placement.Placement // the prover's last answer; Unknown if no prover was asked
}

// String returns all fields in one line, as "registered, by ibv_reg_dmabuf_mr".
func (p Path) String() string {
	text := p.Direct.String()
	if p.Route != "" {
		text += fmt.Sprintf(", by %v", p.Route)
	}
	if p.Why != "" {
		text += " (" + p.Why + ")"
	}
	if p.Reason != nil {
		text += fmt.Sprintf(": %v", p.Reason)
	}
	if p.Proof.Memory != placement.Unknown || p.Proof.Reason != "" {
		text += fmt.Sprintf("; %v", p.Proof)
	}
	return text
}

// Path returns how the NIC reaches the Buffer's bytes.
func (b *Buffer) Path() Path {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	return b.core.path
}

// GPUDirect reports whether the Buffer is a GPU's memory and registered, so that the NIC
// reaches it without staging. It is also true if the GPU's driver has moved the bytes to
// system memory to have them registered, as i915 always does. [Buffer.Prove] detects that, and
// Path's Proof reports it from then on.
func (b *Buffer) GPUDirect() bool {
	d := b.Path().Direct
	return b.core.gpu() && (d == Registered || d == Proven)
}

// ErrStaged is the error of calls that need a direct Buffer.
var ErrStaged = errors.New("the buffer is staged")

// errHost is the error of Prove for host memory that the core has allocated.
var errHost = errors.New("the buffer is host memory: the NIC uses no dma-buf whose place could be proven")

// Prove asks a prover where the bytes are, and keeps the answer for Path. The prover must have
// been started before the Buffer was registered. The Buffer is Proven if every one of its MRs is;
// otherwise the answer is that of the first MR that is not. For host memory, a staged or a missing Buffer
// Prove returns an error.
func (b *Buffer) Prove(ctx context.Context, p placement.Prover) (placement.Placement, error) {
	if err := b.Use(); err != nil {
		return placement.Placement{}, err
	}
	defer b.core.unuse()
	c := b.core
	c.moving.RLock() // the answer is about the memory that the Buffer is on
	defer c.moving.RUnlock()
	if c.missing() {
		return placement.Placement{}, b.NotReached("prove a path")
	}
	switch {
	case c.staging != nil:
		return placement.Placement{}, ErrStaged
	case c.source() == nil:
		return placement.Placement{}, errHost
	}
	inodes := b.Inodes()
	direct := Proven
	var proof placement.Placement
	for i, piece := range c.reg.Local {
		key := placement.Key{Device: c.nic.Name(), LKey: piece.Key, RKey: c.reg.Remote[i].Key}
		// For memory registered by a device pointer the kernel knows no dma-buf.
		if len(inodes) == len(c.reg.Local) && c.reg.Route != ibvfd.RoutePeerDirect {
			key.Inode = inodes[i]
		}
		answer, err := p.Prove(ctx, key)
		if err != nil {
			return placement.Placement{}, err
		}
		if i == 0 || direct == Proven {
			proof = answer
		}
		if answer.Direct() != placement.Yes {
			direct = Registered
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.path.Direct, c.path.Proof = direct, proof
	c.moved.Store(proof.Direct() == placement.No)
	return proof, nil
}

// ProveAll is Prove for the Buffers that several NICs have of one memory, and returns the answer for the
// first NIC that reaches it.
func ProveAll(ctx context.Context, p placement.Prover, list []*Buffer) (first placement.Placement, err error) {
	for i, found := 0, false; i < len(list); i++ {
		b := list[i]
		if b.core.missing() {
			continue
		}
		proof, err := b.Prove(ctx, p)
		if err != nil {
			return placement.Placement{}, err
		}
		if !found {
			first, found = proof, true
		}
	}
	return first, nil
}
