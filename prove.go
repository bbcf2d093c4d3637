// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"os"

	"github.com/gpurdma/gpurdma/placement"
)

// Prove asks a prover, which has watched the kernel since before the Buffer was
// registered, where the bytes are, and keeps the answer for Path. The Buffer is
// Proven if every one of its MRs is; the answer is otherwise that of the first
// MR that is not. A staged Buffer answers an error.
func (b *Buffer) Prove(ctx context.Context, p placement.Prover) (placement.Placement, error) {
	if err := b.use(); err != nil {
		return placement.Placement{}, err
	}
	defer b.core.unuse()
	c := b.core
	if c.stand != nil || c.src == nil {
		return placement.Placement{}, errStaged
	}
	direct := Proven
	var proof placement.Placement
	for i, piece := range c.reg.local {
		key := placement.Key{Device: c.nic.Name(), PID: os.Getpid(), LKey: piece.Key, RKey: c.reg.remote[i].Key}
		if len(c.inodes) == len(c.reg.local) {
			key.Inode = c.inodes[i]
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
	return proof, nil
}
