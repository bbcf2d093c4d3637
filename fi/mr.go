// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"io"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Source is memory that Register takes; *[gpualloc.Buffer] is one. ReadAt and WriteAt access it
// by CPU.
type Source interface {
	io.ReaderAt
	io.WriterAt
	dmabuf.Holder
	Size() int64 // bytes
	// Segments returns its dma-bufs, in order. Memory that cannot be exported returns none, and
	// is staged, or with MROptions.PeerDirect segments with an Addr and no Buf.
	Segments() []gpualloc.Segment
	PCI() (pciaddr.Addr, bool) // the PCI function that has the memory, or whose driver exports it
}

// Policy says whether an MR may be staged: the NIC then uses host memory in its place, and the
// CPU copies the bytes.
type Policy int

// The policies.
const (
	PreferDirect Policy = iota // register the memory if that is possible, and stage it otherwise
	DirectOnly                 // never stage: Register returns the error of the registration
	StagedOnly                 // always stage
)

// Ordering says in which order a NIC's writes to an MR reach the memory.
type Ordering int

// The orderings.
const (
	// RelaxedOrdering lets writes overtake one another on their way to the memory. A completion
	// of this side still means that the bytes of its operation, and of the operations before it,
	// have arrived.
	RelaxedOrdering Ordering = iota
	// StrictOrdering is for memory that a program polls without waiting for a completion, such
	// as a flag that follows its data.
	StrictOrdering
)

// MROptions say how memory is registered. The zero value is usable.
type MROptions struct {
	Policy   Policy
	Ordering Ordering
	// PeerDirect allows the memory to be registered by the device pointers of its segments, with
	// a peer-memory client such as nvidia-peermem, if its dma-bufs cannot be registered.
	PeerDirect bool
}

func (o MROptions) engine() memory.BufferOptions {
	return memory.BufferOptions{Policy: memory.Policy(o.Policy), Ordering: memory.Ordering(o.Ordering), PeerDirect: o.PeerDirect}
}

// MR is registered memory (struct fid_mr), or a slice of it. Operations use it as local memory,
// and Endpoint.Key makes keys to it for peers. Its methods may be called from several goroutines
// at once.
type MR struct {
	buf *memory.Buffer
}

func mrOf(b *memory.Buffer, err error) (*MR, error) {
	if err != nil {
		return nil, coded(err)
	}
	return &MR{b}, nil
}

// Size returns the size in bytes.
func (m *MR) Size() int64 { return m.buf.Size() }

// All returns all bytes, as local memory of an operation.
func (m *MR) All() IOV { return IOV{MR: m, Length: m.Size()} }

// Part returns length bytes from offset on, as local memory of an operation.
func (m *MR) Part(offset, length int64) IOV { return IOV{m, offset, length} }

// ReadAt copies bytes out of the memory by CPU. It follows io.ReaderAt, and sees what peers have
// written.
func (m *MR) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.buf.ReadAt(p, off)
	if err == io.EOF { //nolint:errorlint // io.ReaderAt's own
		return n, err
	}
	return n, coded(err)
}

// WriteAt copies bytes into the memory by CPU; the NIC and peers see them. If p does not fit, it
// returns [EINVAL] and writes nothing.
func (m *MR) WriteAt(p []byte, off int64) (int, error) {
	n, err := m.buf.WriteAt(p, off)
	return n, coded(err)
}

// Sync makes staged memory and its staging buffer equal: call it before a peer reads what a GPU
// has written, before a GPU reads what a peer has written, and between a GPU's write and a
// peer's to the same bytes. If the MR is not staged it does nothing.
func (m *MR) Sync() error { return coded(m.buf.Sync()) }

// Slice returns an MR of size bytes from offset on, under the same registration. The caller
// closes it.
func (m *MR) Slice(offset, size int64) (*MR, error) { return mrOf(m.buf.Slice(offset, size)) }

// ReadOnlySlice is Slice for memory that neither operations nor peers may change.
func (m *MR) ReadOnlySlice(offset, size int64) (*MR, error) {
	return mrOf(m.buf.ReadOnlySlice(offset, size))
}

// StrictSlice is Slice with StrictOrdering for the writes of peers that use its keys: for a flag
// that follows its data.
func (m *MR) StrictSlice(offset, size int64) (*MR, error) {
	return mrOf(m.buf.StrictSlice(offset, size))
}

// Path describes how the NIC reaches an MR's bytes.
type Path struct {
	Staged bool        // the NIC uses host memory in place of the bytes
	Route  ibvfd.Route // the component that has registered the memory; "" if Staged
	Why    string      // with Data Direct: see gpurdma.Path; "" otherwise
	Reason error       // why the memory is staged; nil with StagedOnly
}

// Path returns how the NIC reaches the bytes.
func (m *MR) Path() Path {
	p := m.buf.Path()
	return Path{Staged: p.Direct == memory.Staged, Route: p.Route, Why: p.Why, Reason: p.Reason}
}

// Close ends the registration (fi_close). While the MR has slices, operations under way or keys,
// Close returns [EBUSY] and ends nothing. Close of a slice closes only the slice. A second Close
// does nothing.
func (m *MR) Close() error { return coded(m.buf.Close()) }

// Release closes the MR for the program. The registration ends when the last slice is closed,
// the last operation has completed and the last key has ended. After Release or Close, Release
// returns [EBADF].
func (m *MR) Release() error { return coded(m.buf.Release()) }

// IOV is local memory of an operation: Length bytes of an MR from Offset on (struct iovec, with
// the descriptor that fi_mr_desc returns). The zero IOV has no bytes.
type IOV struct {
	MR             *MR
	Offset, Length int64
}

func (v IOV) engine() memory.Span {
	s := memory.Span{Offset: v.Offset, Length: v.Length}
	if v.MR != nil {
		s.Buf = v.MR.buf
	}
	return s
}
