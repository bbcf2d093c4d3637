// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// A NIC that does not reach memory which another NIC reaches has a Buffer of it without keys. Its
// operations and its peers cannot use the memory; the CPU can. So the memory has one copy, whatever
// NIC the bytes come through.

// registerMissing makes the Buffer of a NIC that does not reach memory which another one reaches. why
// is the refusal.
func (n *NIC) registerMissing(of *Buffer, why error, opt BufferOptions) (*Buffer, error) {
	first := of.core
	if err := n.Enter(); err != nil {
		return nil, err
	}
	c := &core{
		nic: n, id: first.id, name: opt.Name, size: first.size, policy: opt.Policy, order: opt.Ordering, peer: opt.PeerDirect,
		local: keyless(first.local), path: Path{Direct: Missing, Reason: why},
	}
	c.at.Store(first.at.Load())
	if err := c.hold(); err != nil {
		n.Leave()
		return nil, err
	}
	c.owned = opt.Owned
	return c.buffer(of.off, of.size, of.readOnly, of.order), nil
}

// keyless returns the same memory without keys.
func keyless(s lower.Space) lower.Space {
	m := slices.Clone(s.Memory)
	for i := range m {
		m[i].Key = 0
	}
	return lower.NewSpace(m)
}

// missing reports whether the NIC does not reach the memory.
func (c *core) missing() bool { return c.reg == nil }

// NotReached returns the error of an operation that needs the memory by the Buffer's NIC, which does
// not reach it.
func (b *Buffer) NotReached(op string) error {
	n := b.core.nic.Name()
	return &failure.Error{
		Op: op, Device: n, Detail: fmt.Sprintf("the NIC does not reach %v, and another NIC of the fabric does", b), Err: fmt.Errorf("%w: %w", unix.EOPNOTSUPP, b.Path().Reason),
		Remedy: "use the NICs that reach it, or register it with StagedOnly, which stages it for all NICs",
	}
}

// Missing returns a Buffer of the span that its NIC does not reach; nil if there is none.
func (s *Span) Missing() *Buffer {
	switch {
	case s.Buf != nil:
		if s.Buf.core.missing() {
			return s.Buf
		}
	case s.View != nil:
		return s.View.missing
	}
	return nil
}

// Moved reports whether a prover saw that a NIC's DMA to the span does not go straight to the memory
// of the device.
func (s *Span) Moved() bool {
	is := func(b *Buffer) bool { return b.core.moved.Load() }
	return s.Buf != nil && is(s.Buf) || s.View != nil && slices.ContainsFunc(s.View.bufs, is)
}
