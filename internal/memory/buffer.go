// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Source is the memory behind a Buffer; *[gpualloc.Buffer] is one. ReadAt and WriteAt give the
// CPU access to it.
type Source interface {
	io.ReaderAt
	io.WriterAt
	dmabuf.Holder
	Size() int64 // bytes
	// Segments returns its dma-bufs, in order. Memory that cannot be exported returns none, and
	// is staged; or, for BufferOptions.PeerDirect, segments with Addr and without Buf.
	Segments() []gpualloc.Segment
	PCI() (pciaddr.Addr, bool) // the function that the memory lies on, or whose driver exports it

	// A Source may also have Kind() gpualloc.Kind: [gpualloc.KindSystem] is the host's memory,
	// whatever PCI returns.
}

// Policy says whether a Buffer may be staged.
type Policy int

// The policies.
const (
	// PreferDirect registers the memory if that is possible, and stages it otherwise.
	PreferDirect Policy = iota
	// DirectOnly never stages: if registration is refused, Register returns an error, and no
	// operation moves the bytes by CPU. A message or a receive with more pieces than a work
	// request may have completes with EOPNOTSUPP; with another policy its bytes are packed.
	// ReadAt, WriteAt and FlagInject still use the CPU.
	DirectOnly
	// StagedOnly always stages, for comparison.
	StagedOnly
)

// orRefuse is DirectOnly, with the refusal alone as the error.
const orRefuse Policy = -1

// BufferOptions say how a Buffer is made. The zero value is usable.
type BufferOptions struct {
	Policy   Policy
	Ordering Ordering // of NICs' writes, under the Buffer's keys and under those that peers are given

	// PeerDirect allows the memory to be registered by the device pointers of its segments
	// (gpualloc.Segment.Addr) if neither the NIC's provider nor the kernel registers dma-bufs:
	// with RDMA drivers of MLNX_OFED or DOCA and the GPU driver's peer-memory client, such as
	// nvidia-peermem. Path.Route is then [ibvfd.RoutePeerDirect]. The dma-buf is not used: only
	// the client holds the memory, and a prover may have no events of it.
	PeerDirect bool

	// Name names the memory in messages: "cuda:0". Without it messages have the Buffer's ID.
	Name string

	// Owned, if not nil, is closed when the memory is free. Register does not close it if it
	// fails.
	Owned io.Closer
}

// Buffer is memory that operations move bytes from and to: a whole source, or a slice of it.
// Its methods may be called from several goroutines at once.
//
// A Buffer is made with one reference. Retain adds one; Release takes one away, and the last
// Release closes the Buffer. Slices keep the memory: it is freed when the last of them is
// closed and the last operation on it has ended.
type Buffer struct {
	core     *core
	id       uint64
	off      int64
	size     int64
	readOnly bool
	order    Ordering      // of what peers write
	whole    bool          // made by Register or AllocHost
	layout   layout.Layout // of all its bytes
	mem      []lower.Space // its one source
	self     [1]*Buffer
	ready    atomic.Pointer[func(context.Context) error]

	mu      sync.Mutex
	refs    int  // 0 once closed
	retired bool // it is about to be closed, and takes no new uses
}

// Register makes a Buffer of a source, and holds the source: its Close returns ErrInUse until
// all Buffers of it are closed.
//
// If the memory cannot be registered as a dma-buf, nor by its device pointer with PeerDirect,
// and the policy allows it, the Buffer is staged: [Buffer.Path] reports the reason, with the
// *[ibvfd.RegError] of each.
func (n *NIC) Register(src Source, opt BufferOptions) (*Buffer, error) {
	if src == nil {
		return nil, &failure.Error{Op: "register a buffer", Device: n.Name(), Detail: "no source", Remedy: "give memory of package gpualloc, or of your own", Err: unix.EINVAL}
	}
	c, err := n.register(src, opt)
	if err != nil {
		return nil, err
	}
	c.owned, c.name = opt.Owned, opt.Name
	return c.all(c.size), nil
}

func (n *NIC) register(src Source, opt BufferOptions) (*core, error) {
	if err := n.Enter(); err != nil {
		return nil, err
	}
	c := &core{nic: n, id: NewID(), size: src.Size(), policy: opt.Policy, order: opt.Ordering, peer: opt.PeerDirect}
	c.at.Store(on(src))
	err := c.open()
	if err != nil {
		n.Leave()
		return nil, err
	}
	return c, nil
}

// Allocate makes a Buffer of size bytes that an allocator provides. The Buffer owns the memory
// and frees it.
func (n *NIC) Allocate(ctx context.Context, a gpualloc.Allocator, size int64, opt BufferOptions) (*Buffer, error) {
	if a == nil {
		return nil, &failure.Error{Op: "register a buffer", Device: n.Name(), Detail: "no allocator", Remedy: "use one of package gpualloc", Err: unix.EINVAL}
	}
	mem, err := a.Alloc(ctx, size, gpualloc.Options{})
	if err != nil {
		return nil, err
	}
	c, err := n.register(mem, opt)
	if err != nil {
		return nil, errs.Close(err, mem)
	}
	c.owned = mem
	return c.all(size), nil // without the bytes that rounding has added
}

// AllocHost makes a Buffer of size bytes of pinned host memory, in RelaxedOrdering; use
// StrictSlice for flags in it.
func (n *NIC) AllocHost(size int64) (*Buffer, error) {
	if err := n.Enter(); err != nil {
		return nil, err
	}
	c := &core{nic: n, id: NewID(), size: size, name: "host"}
	if err := c.openHost(); err != nil {
		n.Leave()
		return nil, err
	}
	return c.all(c.size), nil
}

// RegisterHost makes a Buffer of host memory of the caller's, which it holds: for memory that
// several NICs register. owned, if not nil, is closed when the registration has ended.
func (n *NIC) RegisterHost(mem *hostmem.Buf, order Ordering, owned io.Closer) (*Buffer, error) {
	release, err := mem.Hold()
	if err != nil {
		return nil, err
	}
	if err := n.Enter(); err != nil {
		release()
		return nil, err
	}
	c := &core{nic: n, id: NewID(), size: int64(len(mem.Bytes())), order: order, name: "host"}
	if err := c.pinned("a buffer of host memory", mem); err != nil {
		n.Leave()
		release()
		return nil, err
	}
	c.release, c.owned, c.path = release, owned, Path{Direct: Registered, Route: c.reg.Route}
	return c.all(c.size), nil
}

// RegisterStaged makes a Buffer that uses the staging buffer of another NIC's Buffer: both stage
// the same memory, and each sees the bytes that arrive through the other. owned, if not nil, is
// closed when the registration has ended.
func (n *NIC) RegisterStaged(of *Buffer, owned io.Closer) (*Buffer, error) {
	first := of.core
	if first.staging == nil {
		return nil, &failure.Error{Op: "register a staging buffer", Device: n.Name(), Detail: "the buffer is not staged", Err: unix.EINVAL}
	}
	if err := of.Use(); err != nil {
		return nil, err
	}
	if err := n.Enter(); err != nil {
		first.unuse()
		return nil, err
	}
	c := &core{nic: n, id: NewID(), name: first.name, size: first.size, policy: first.policy, order: first.order, staging: first.staging}
	c.at.Store(first.at.Load())
	c.path.Reason = first.path.Reason
	if err := c.pinned("a staging buffer of another NIC, too", first.hostMem); err != nil {
		n.Leave()
		first.unuse()
		return nil, err
	}
	c.release, c.owned, c.first = first.unuse, owned, first
	return c.buffer(of.off, of.size, of.readOnly, of.order), nil
}

// all returns the first Buffer of the memory.
func (c *core) all(size int64) *Buffer {
	b := c.buffer(0, size, false, c.order)
	b.whole = true
	return b
}

// directOnly reports whether the CPU must not move the Buffer's bytes for an operation.
func (b *Buffer) directOnly() bool { return b.core.policy == DirectOnly }

func (c *core) buffer(off, size int64, readOnly bool, order Ordering) *Buffer {
	c.handles++
	b := &Buffer{core: c, id: NewID(), off: off, size: size, readOnly: readOnly, order: order, refs: 1}
	b.layout, _ = layout.Contiguous(0, size) // a size that is valid for a buffer is valid for a layout
	b.mem, b.self[0] = []lower.Space{b.space()}, b
	return b
}

// space returns the Buffer's memory under local keys: a part of the core's.
func (b *Buffer) space() lower.Space {
	return b.core.part(b.off, b.size)
}

// part returns n bytes of the memory from off on, under local keys.
func (c *core) part(off, n int64) lower.Space {
	if off == 0 && n == c.size {
		return c.local
	}
	var m lower.Memory
	start := int64(0)
	for _, p := range c.local.Memory {
		low, high := max(start, off), min(start+p.Length, off+n)
		if low < high {
			m = append(m, lower.Piece{Addr: p.Addr + uint64(low-start), Length: high - low, Key: p.Key})
		}
		start += p.Length
	}
	return lower.NewSpace(m)
}

// NewID returns a number that is unique, on this host and on others.
func NewID() uint64 {
	for {
		if id := rand.Uint64(); id != 0 {
			return id
		}
	}
}

// ID returns a number that names the Buffer for the other host. It gives no access:
// [NIC.Grant] does.
func (b *Buffer) ID() uint64 { return b.id }

// Inodes returns the inodes of the dma-bufs of the memory, in order.
func (b *Buffer) Inodes() []uint64 {
	if at := b.core.at.Load(); at != nil {
		return at.inodes
	}
	return nil
}

// Size returns the Buffer's size in bytes.
func (b *Buffer) Size() int64 { return b.size }

// ReadOnly reports whether the Buffer is a read-only slice.
func (b *Buffer) ReadOnly() bool { return b.readOnly }

// GPU returns the PCI function whose memory the Buffer is; false for host memory, even if a
// GPU's driver has exported it.
func (b *Buffer) GPU() (pciaddr.Addr, bool) {
	at := b.core.at.Load()
	if at == nil || !at.gpu {
		return pciaddr.Addr{}, false
	}
	return at.src.PCI()
}

// Nearest returns the RDMA device nearest to the memory, and the reason. All devices are
// equally near to host memory, even if a GPU's driver has exported it.
func (b *Buffer) Nearest() (ibdev.Near, error) {
	devices, err := ibdev.ListWithoutGIDs("")
	if err != nil {
		return ibdev.Near{}, err
	}
	if addr, ok := b.GPU(); ok {
		return ibdev.Nearest("", &addr, devices)
	}
	return ibdev.Nearest("", nil, devices)
}

// Slice returns a Buffer of size bytes of this one, from offset on: for parts of one piece of
// memory that different peers use. It keeps the memory. A range outside the Buffer is
// [failure.ErrRange]. A slice of a read-only Buffer is read-only.
func (b *Buffer) Slice(offset, size int64) (*Buffer, error) {
	return b.slice(offset, size, b.readOnly, b.order)
}

// ReadOnlySlice is Slice for a Buffer whose bytes do not change: it refuses WriteAt, and
// receives and READs into it, and a peer is given no key to write with.
func (b *Buffer) ReadOnlySlice(offset, size int64) (*Buffer, error) {
	return b.slice(offset, size, true, b.order)
}

// StrictSlice is Slice for flags: a peer that gets a share of it writes to it in
// StrictOrdering, whatever the rest of the memory has. Receives and READs of the local side
// keep the memory's ordering: programs wait for their completion.
func (b *Buffer) StrictSlice(offset, size int64) (*Buffer, error) {
	return b.slice(offset, size, b.readOnly, StrictOrdering)
}

func (b *Buffer) slice(offset, size int64, readOnly bool, order Ordering) (*Buffer, error) {
	if !within(offset, size, b.size) || size == 0 {
		return nil, b.outOfRange("take a slice", offset, size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 || b.retired {
		return nil, b.isClosed()
	}
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	if b.core.ended {
		return nil, b.isClosed()
	}
	return b.core.buffer(b.off+offset, size, readOnly, order), nil
}

// within reports whether length bytes from off on lie in size bytes.
func within(off, length, size int64) bool {
	return off >= 0 && length >= 0 && off <= size && length <= size-off
}

// ReadAt copies bytes out of the memory by CPU. It follows io.ReaderAt, and sees what peers
// have written.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, b.outOfRange("read", off, int64(len(p)))
	}
	var end error
	if off = min(off, b.size); int64(len(p)) > b.size-off {
		p, end = p[:b.size-off], io.EOF
	}
	if err := b.Use(); err != nil {
		return 0, err
	}
	defer b.core.unuse()
	n, err := b.core.readAt(p, b.off+off)
	if err == nil {
		err = end
	}
	return n, err
}

// WriteAt copies bytes into the memory by CPU, for the NIC and peers to see. If p does not
// fit, it returns [failure.ErrRange] and writes nothing; for a read-only Buffer it returns
// EACCES.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	if !within(off, int64(len(p)), b.size) {
		return 0, b.outOfRange("write", off, int64(len(p)))
	}
	if err := b.useToWrite(); err != nil {
		return 0, err
	}
	defer b.core.unuse()
	return b.core.writeAt(p, b.off+off)
}

// useToWrite is use of a Buffer that may be written.
func (b *Buffer) useToWrite() error {
	if b.readOnly {
		return b.denied("write")
	}
	return b.Use()
}

// Sync makes a staged Buffer's source and its staging buffer equal: it copies the peers'
// writes to the source, and writes to the source, by a GPU or otherwise, to the staging
// buffer. ReadAt, WriteAt and local operations do this for the bytes that they touch. Call
// Sync before a peer reads bytes that the GPU wrote, before the GPU reads bytes that a peer
// wrote, and between a GPU's write and a peer's to the same bytes. On a direct Buffer Sync
// does nothing; a kernel that runs already may need [Buffer.Flush].
//
// Sync compares both with their bytes at the last Sync. If both have changed a byte since, the
// peer's write wins. But if a peer wrote the value of the last Sync again, Sync cannot see the
// write, and the GPU's bytes stay. So a flag that a peer sets and a GPU clears needs a Sync
// after the GPU's write, before the peer may write again; without it the second setting is
// lost, which does not happen on a direct Buffer.
func (b *Buffer) Sync() error {
	if err := b.Use(); err != nil {
		return err
	}
	defer b.core.unuse()
	return b.core.sync(b.off, b.size)
}

// Retain adds a reference to an open Buffer.
func (b *Buffer) Retain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 {
		return b.isClosed()
	}
	b.refs++
	return nil
}

// Release takes a reference away. The last Release closes the Buffer; the memory stays until
// its slices are closed and its operations have ended. [NIC.Close] tries again to free memory
// that could not be freed. Without a reference left, Release returns os.ErrClosed.
func (b *Buffer) Release() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 {
		return b.isClosed()
	}
	b.refs--
	if b.refs > 0 {
		return nil
	}
	return b.core.letGo()
}

// Close closes the Buffer and frees its memory. If the Buffer is retained, it returns
// [failure.ErrInUse] and frees nothing; for a Buffer that Register or AllocHost made it does so,
// too, while there are slices, operations under way or keys of peers on the memory. Close of a
// slice closes only the slice, which has no memory of its own. If the memory cannot be freed,
// Close returns the reason, and another Close continues; once the registration has ended, the
// Buffer cannot be used otherwise. After success Close does nothing.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 {
		return nil
	}
	if b.refs > 1 {
		return b.inUse(fmt.Sprintf("it is retained %d times", b.refs-1), "release it as often")
	}
	if detail := b.core.busy(); b.whole && detail != "" {
		return b.inUse(detail, "close them first, or Release the buffer")
	}
	if !b.whole {
		b.refs = 0
		return b.core.letGo()
	}
	if err := b.core.free(); err != nil {
		return err
	}
	b.refs = 0
	return nil
}

func (b *Buffer) inUse(detail, remedy string) error {
	return &failure.Error{Op: "close", Device: b.String(), Detail: detail, Remedy: remedy, Err: failure.ErrInUse}
}

// SetReady makes operations that read the Buffer's bytes wait until the function returns nil: for
// memory that a GPU is still writing when the operation is posted. Its context ends with the
// connection, and when the operation is withdrawn; its error is the operation's. The function is
// called in a goroutine of its own, once for each operation. nil removes it.
//
// Reads by peers do not wait for it.
func (b *Buffer) SetReady(ready func(context.Context) error) {
	if ready == nil {
		b.ready.Store(nil)
		return
	}
	b.ready.Store(&ready)
}
