// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/pciaddr"
	"golang.org/x/sys/unix"
)

// Source is memory that Register takes; *[gpualloc.Buffer] is one. ReadAt and WriteAt access it by CPU.
type Source interface {
	io.ReaderAt
	io.WriterAt
	dmabuf.Holder
	Size() int64 // bytes
	// Segments returns its dma-bufs, in order. Memory that cannot be exported returns none, and is staged, or with
	// PeerDirect segments with an Addr and no Buf.
	Segments() []gpualloc.Segment
	PCI() (pciaddr.Addr, bool) // the PCI function that has the memory, or whose driver exports it
}

// Buffer is registered memory. Its methods may be called from several goroutines at once. Use after Close returns
// ErrClosed.
//
// A Buffer is made with one reference. Retain adds one; Release takes one away, and the last Release closes the
// Buffer. Slices have references of their own, and keep the memory.
//
// After the call in the last column, on the side that has the memory, the reader in the second column sees the bytes:
//
//	bytes written by              then read by                    call
//	a peer, or a Read             the CPU, by ReadAt              nothing
//	a peer, or a Read             an operation of this side       nothing
//	a peer                        a GPU's kernel launched later   Sync
//	a Read                        a GPU's kernel launched later   nothing
//	a peer, or a Read             a GPU's kernel that runs        Flush
//	the CPU, by WriteAt           anyone                          nothing
//	a GPU's kernel that is done   an operation of this side       nothing
//	a GPU's kernel that runs      an operation of this side       SetReady, before the operation
//	a GPU's kernel that is done   a peer                          Sync, before the peer reads
//	a GPU's kernel, then a peer   anyone, the same bytes          Sync, between the two writes
//
// Sync is for staged memory, and does nothing for other memory: a program that must work with both calls it. Flush
// includes Sync, and does nothing for host memory.
type Buffer struct {
	fabric *Fabric
	parts  []*memory.Buffer // by NIC
	size   int64

	mu   sync.Mutex
	refs int
}

// BufferOption says how a Buffer is registered.
type BufferOption func(*bufferOptions)

type bufferOptions struct {
	options        memory.BufferOptions
	direct, staged bool
}

// chosen applies options to the defaults.
func chosen(opts []BufferOption) (memory.BufferOptions, error) {
	var o bufferOptions
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.direct && o.staged {
		return o.options, &failure.Error{Op: "register a buffer", Detail: "DirectOnly and StagedOnly", Remedy: "leave one of them out", Err: unix.EINVAL}
	}
	return o.options, nil
}

// DirectOnly makes Alloc and Register return an error if no NIC reaches the memory, instead of staging it: errors.As
// finds the *[ibvfd.RegError]. No operation then moves its bytes by CPU.
func DirectOnly() BufferOption {
	return func(o *bufferOptions) { o.options.Policy, o.direct = memory.DirectOnly, true }
}

// StagedOnly stages the memory for all NICs, even if they reach it. With DirectOnly it is refused (EINVAL).
func StagedOnly() BufferOption {
	return func(o *bufferOptions) { o.options.Policy, o.staged = memory.StagedOnly, true }
}

// StrictOrdering is for memory that a program polls without waiting for a notification, such as a flag that follows
// its data: a NIC's write to it does not overtake the NIC's earlier writes to the same device's memory. Other memory
// is registered with relaxed ordering.
func StrictOrdering() BufferOption {
	return func(o *bufferOptions) { o.options.Ordering = memory.StrictOrdering }
}

// PeerDirect allows the memory to be registered by its device pointer, with a peer-memory client such as
// nvidia-peermem, if it has no dma-buf or neither the provider nor the kernel registers dma-bufs.
func PeerDirect() BufferOption {
	return func(o *bufferOptions) { o.options.PeerDirect = true }
}

// Alloc allocates memory of size bytes and registers it as Register does. spec is "host", for pinned host memory, or
// an allocator of package gpualloc: "cuda:0", "rocm:0", "drm:renderD128", "udmabuf" and others. A program imports the
// backend of "cuda", "rocm" or "ze", such as gpualloc/cuda. The Buffer owns the memory, and frees it. Errors: EINVAL
// for a size that is not positive, ErrLimit, and those of gpualloc.Open.
func (f *Fabric) Alloc(ctx context.Context, spec string, size int64, opts ...BufferOption) (*Buffer, error) {
	opt, err := chosen(opts)
	if err == nil {
		err = errs.Ended(ctx)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case spec == "host":
		if opt.Policy == memory.StagedOnly {
			return nil, &failure.Error{Op: "allocate host memory", Detail: "StagedOnly", Remedy: "leave it out: NICs reach host memory", Err: unix.EINVAL}
		}
		return f.made(memory.AllocHostWith(f.set.Memory(), size, opt.Ordering))
	case f.alloc != nil:
		src, err := f.alloc(ctx, spec, size)
		if err != nil {
			return nil, err
		}
		return f.register(ctx, src.(Source), spec, size, []io.Closer{src.(io.Closer)}, opt)
	}
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		return nil, err
	}
	mem, err := a.Alloc(ctx, size, gpualloc.Options{})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return f.register(ctx, mem, spec, size, []io.Closer{mem, a}, opt)
}

// made returns the Buffer of memory that all NICs have registered.
func (f *Fabric) made(parts []*memory.Buffer, err error) (*Buffer, error) {
	if err != nil {
		return nil, f.failed(err)
	}
	return f.addBuffer(&Buffer{fabric: f, parts: parts, size: parts[0].Size(), refs: 1})
}

// Register makes a Buffer of memory that the program has, and holds it: the source's Close returns failure.ErrInUse
// until the Buffer, its slices and their keys have let go of the memory. The caller closes the Buffer. ErrLimit:
// staging would pin too much.
//
// A NIC that does not reach the memory takes no part in operations on it, if another NIC of the Fabric reaches it:
// see "Several NICs". If no NIC does, the Buffer is staged: the NICs use pinned host memory in its place, and the CPU
// copies the bytes before and after operations. Paths has the reasons, and Register logs them by package slog.
func (f *Fabric) Register(ctx context.Context, src Source, opts ...BufferOption) (*Buffer, error) {
	if src == nil {
		return nil, &failure.Error{Op: "register a buffer", Detail: "no source", Remedy: "give memory of package gpualloc, or of your own", Err: unix.EINVAL}
	}
	name := "" // of the allocator, for messages
	if s, ok := src.(interface{ Spec() string }); ok {
		name = s.Spec()
	}
	opt, err := chosen(opts)
	if err != nil {
		return nil, err
	}
	return f.register(ctx, src, name, src.Size(), nil, opt)
}

func (f *Fabric) register(ctx context.Context, src Source, name string, size int64, owned []io.Closer, opt memory.BufferOptions) (*Buffer, error) {
	opt.Name = name
	b, err := f.made(memory.RegisterSource(ctx, f.set.Memory(), owned, src, size, opt))
	if err != nil {
		return nil, err
	}
	for _, p := range b.Paths() {
		if p.Reason != nil {
			slog.WarnContext(ctx, "gpurdma: the NIC does not reach the memory", "nic", p.NIC, "bytes", size, "staged", p.Staged, "reason", p.Reason)
		}
	}
	return b, nil
}

func (f *Fabric) addBuffer(b *Buffer) (*Buffer, error) {
	if !f.add(func() { f.buffers[b] = struct{}{} }) {
		return nil, errors.Join(f.isClosed(), b.giveUp())
	}
	return b, nil
}

// Size returns the number of bytes.
func (b *Buffer) Size() int64 { return b.size }

// GPU returns the PCI function of the GPU that has the memory; false for host memory, even if a GPU's driver exports
// it.
func (b *Buffer) GPU() (pciaddr.Addr, bool) { return b.parts[0].GPU() }

// Slice returns a Buffer of n bytes of this one, from off on, with a reference of its own: for parts of one piece of
// memory that different goroutines keep. n must not be 0. The caller closes it.
func (b *Buffer) Slice(off, n int64) (*Buffer, error) {
	return b.slice(func(p *memory.Buffer) (*memory.Buffer, error) { return p.Slice(off, n) })
}

// ReadOnlySlice is Slice for bytes that must not change by way of the slice: operations and WriteAt that would change
// them return EACCES, and so do Export and Share with another access than ReadOnly.
func (b *Buffer) ReadOnlySlice(off, n int64) (*Buffer, error) {
	return b.slice(func(p *memory.Buffer) (*memory.Buffer, error) { return p.ReadOnlySlice(off, n) })
}

func (b *Buffer) slice(cut func(*memory.Buffer) (*memory.Buffer, error)) (*Buffer, error) {
	s := &Buffer{fabric: b.fabric, refs: 1}
	for _, p := range b.parts {
		part, err := cut(p)
		if err != nil {
			if end := s.giveUp(); end != nil {
				return nil, errors.Join(err, end)
			}
			return nil, plain(err)
		}
		s.parts, s.size = append(s.parts, part), part.Size()
	}
	return b.fabric.addBuffer(s)
}

// ReadAt copies bytes out of the memory by CPU. It follows io.ReaderAt, and sees what peers have written.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.parts[0].ReadAt(p, off)
	return n, plain(err)
}

// WriteAt copies bytes into the memory by CPU; NICs and peers see them. If p does not fit, it returns ErrRange and
// writes nothing.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	n, err := b.parts[0].WriteAt(p, off)
	return n, plain(err)
}

// Move puts the Buffer and its slices on other memory of at least its size: on all NICs, or on none unless the error
// says that a key could not go back. The peers' keys stay valid. Move copies no bytes. Until it returns, an operation
// uses the old or the new memory. Move then releases the old source, or closes it if the Buffer owns it, and holds
// the new one. It needs a kernel with kernel/patches/rdma-rereg. If the keys cannot stay, Move returns
// errors.ErrUnsupported, and nothing has changed: register the other memory, and export that.
func (b *Buffer) Move(ctx context.Context, to Source) error {
	return plain(memory.Move(ctx, b.parts, to))
}

// Sync makes staged memory and its staging buffer equal. Operations and ReadAt do this for the bytes that they use.
// Call Sync before a peer reads what a GPU has written, and before the GPU reads what a peer has written. If the
// memory is not staged, Sync does nothing. Buffer has a table of calls of Sync and Flush.
func (b *Buffer) Sync() error {
	return plain(b.parts[0].Sync())
}

// Flush waits until a GPU's kernel that is running sees the writes that a notification or a completion has reported.
// A kernel that is launched later sees them without Flush, or after Sync if the memory is staged.
func (b *Buffer) Flush(ctx context.Context) error {
	for _, p := range b.parts {
		if err := p.Flush(ctx); err != nil {
			return plain(err)
		}
	}
	return nil
}

// SetReady makes this side's operations that read the bytes wait until ready returns: for memory that a GPU is still
// writing when the operation is posted. ready may wait for a stream or an event of the GPU's runtime. It is called
// once for each operation, in a goroutine of its own. When the connection ends or the operation is withdrawn, its
// context ends; ready must then return, because Conn.Close waits for it. If ready returns an error, the operation
// returns it. SetReady(nil) removes ready. Peers' reads do not wait.
func (b *Buffer) SetReady(ready func(context.Context) error) {
	for _, p := range b.parts {
		p.SetReady(ready)
	}
}

// Retain adds a reference. It returns ErrClosed if the Buffer is closed.
func (b *Buffer) Retain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 {
		return b.isClosed()
	}
	b.refs++
	return nil
}

// Release takes a reference away; the last Release closes the Buffer. On a closed Buffer it returns ErrClosed.
func (b *Buffer) Release() error {
	b.mu.Lock()
	if b.refs == 0 {
		b.mu.Unlock()
		return b.isClosed()
	}
	b.refs--
	last := b.refs == 0
	b.mu.Unlock()
	if last {
		return b.giveUp()
	}
	return nil
}

// Close closes the Buffer, even if it is retained. The memory is freed when no slice, no operation under way and no
// key of a peer uses it: keys end with their connections, or with Unexport. A second Close does nothing.
func (b *Buffer) Close() error {
	b.mu.Lock()
	open := b.refs > 0
	b.refs = 0
	b.mu.Unlock()
	if !open {
		return nil
	}
	return b.giveUp()
}

// Free is Close for programs that need to know that the memory is free. While there are other references, slices,
// operations under way or keys of peers, it returns ErrInUse, and the Buffer stays open.
func (b *Buffer) Free() error {
	b.mu.Lock()
	refuse := func(detail string) error {
		defer b.mu.Unlock()
		return &failure.Error{Op: "free", Device: b.name(), Detail: detail, Remedy: "end them first, or Close the buffer", Err: failure.ErrInUse}
	}
	switch {
	case b.refs == 0:
		b.mu.Unlock()
		return nil
	case b.refs > 1:
		return refuse(fmt.Sprintf("it is retained %d times", b.refs-1))
	}
	if detail := memory.Retire(b.parts); detail != "" {
		return refuse(detail)
	}
	b.refs = 0
	b.mu.Unlock()
	return b.giveUp()
}

// giveUp releases the memory.
func (b *Buffer) giveUp() error {
	b.fabric.mu.Lock()
	delete(b.fabric.buffers, b)
	b.fabric.mu.Unlock()
	return memory.ReleaseAll(b.parts)
}

// String names the Buffer for messages, and says how the NIC of Path reaches it: "buffer cuda:0 (64 KiB), registered
// with mlx5_0". It says "direct" and "staged" as Path.String does.
func (b *Buffer) String() string { return b.name() + ", " + b.Path().kind() }

// name returns the name without the path.
func (b *Buffer) name() string { return b.parts[0].String() }

// isClosed returns the error of a Buffer that is closed.
func (b *Buffer) isClosed() error { return errs.Closed(b.name()) }
