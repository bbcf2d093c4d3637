// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// core is the memory that a Buffer and its slices share.
type core struct {
	nic    *NIC
	id     uint64 // names the memory for peers; the same for all NICs
	name   string // for messages; may be empty
	size   int64
	policy Policy
	order  Ordering
	peer   bool // src may be registered by its device pointers

	local   lower.Space        // the whole memory under local keys
	bytes   []*rc.Registration // a byte of each dma-buf, for the NIC's readBack; nil until Flush
	reg     *rc.Registration   // of local; nil if the NIC does not reach the memory
	hostMem *hostmem.Buf       // the memory itself, or its staging buffer; nil if direct
	lent    bool               // hostMem belongs to another core or to the caller
	first   *core              // the core whose staging buffer this one uses; nil if none
	staging *stagingBuffer     // nil unless staged
	at      atomic.Pointer[backing]
	moved   atomic.Bool // a prover saw that DMA does not go straight to device memory

	moving  sync.RWMutex // held for reading while the source is used, and while keys are made or withdrawn
	mu      sync.Mutex
	release func()                    // of the source
	owned   io.Closer                 // the source, if the core is to close it
	shared  map[*rc.Registration]bool // of peers
	handles int                       // Buffers
	uses    int                       // operations under way, and keys given out
	ended   bool                      // the registration has ended: the memory must not be used any more
	path    Path
}

// backing is the memory of a core. Buffer.Move puts another in its place.
type backing struct {
	src    Source // nil if the core has allocated host memory itself
	gpu    bool
	inodes []uint64 // of the dma-bufs
}

// on returns what is known of a source.
func on(src Source) *backing {
	b := &backing{src: src}
	_, b.gpu = src.PCI()
	if k, ok := src.(interface{ Kind() gpualloc.Kind }); ok && k.Kind() == gpualloc.KindSystem {
		b.gpu = false // a GPU's driver has exported it, but it is the host's memory
	}
	for _, s := range src.Segments() {
		if s.Buf != nil {
			b.inodes = append(b.inodes, s.Buf.Inode())
		}
	}
	return b
}

// source returns the memory; nil if the core has allocated host memory itself.
func (c *core) source() Source {
	if b := c.at.Load(); b != nil {
		return b.src
	}
	return nil
}

// gpu reports whether it is a GPU's memory.
func (c *core) gpu() bool {
	b := c.at.Load()
	return b != nil && b.gpu
}

// open registers the source, or stages it.
func (c *core) open() (err error) {
	if err := c.hold(); err != nil {
		return err
	}
	if c.policy != StagedOnly {
		c.reg, err = c.nic.dev.Source(c.exported(), 0, c.size, ibvfd.AccessLocalWrite|c.order.access())
		if err == nil {
			c.local, c.path = lower.NewSpace(c.reg.Local), Path{Direct: Registered, Route: c.reg.Route, Why: c.reg.Why}
			return nil
		}
		// Stage only after a refusal: not if the NIC was closed.
		if refused := (*ibvfd.RegError)(nil); c.policy == DirectOnly || c.policy == orRefuse || !errors.As(err, &refused) {
			c.release()
			if refused != nil && c.policy == DirectOnly {
				err = refusal(err)
			}
			return err
		}
		c.path.Reason = err
	}
	if err := c.allocated("a staging buffer for memory that cannot be registered", hostmem.Alloc); err != nil {
		c.release()
		return errors.Join(err, c.path.Reason)
	}
	c.staging = &stagingBuffer{src: c.source(), mem: c.hostMem.Bytes(), moved: &c.nic.staged, seen: make([]byte, c.size)}
	return nil
}

// refusal returns the error of DirectOnly.
func refusal(why error) error {
	return &failure.Error{Op: "register a buffer", Detail: "DirectOnly", Remedy: "leave DirectOnly out, and the memory is staged", Err: why}
}

// hold keeps the source.
func (c *core) hold() (err error) {
	if c.size <= 0 {
		return &failure.Error{Op: "register a buffer", Detail: fmt.Sprintf("%d bytes", c.size), Err: failure.ErrRange}
	}
	c.release, err = c.source().Hold()
	return err
}

// exported returns the source in the form that the device registers.
func (c *core) exported() rc.Source { return c.export(c.source()) }

func (c *core) export(src Source) rc.Source {
	if c.peer {
		return rc.PeerDirect{Source: src}
	}
	return src
}

// openHost allocates and registers the memory.
func (c *core) openHost() error {
	if c.size <= 0 {
		return &failure.Error{Op: "allocate host memory", Detail: fmt.Sprintf("%d bytes", c.size), Err: failure.ErrRange}
	}
	alloc := hostmem.Alloc
	if own, ok := c.nic.dev.(interface {
		AllocHost(size int) (*hostmem.Buf, error)
	}); ok { // memory that no other NIC registers
		alloc = own.AllocHost
	}
	if err := c.allocated("a buffer of host memory", alloc); err != nil {
		return err
	}
	c.path = Path{Direct: Registered, Route: c.reg.Route}
	return nil
}

// allocated registers host memory of the core's size that it allocates.
func (c *core) allocated(what string, alloc func(size int) (*hostmem.Buf, error)) error {
	if err := c.nic.Pin(c.size, what); err != nil {
		return err
	}
	mem, err := alloc(int(c.size))
	if err != nil {
		c.nic.Unpin(c.size)
		return err
	}
	return c.register(mem)
}

// pinned registers host memory of the caller's.
func (c *core) pinned(what string, mem *hostmem.Buf) error {
	if err := c.nic.Pin(c.size, what); err != nil {
		return err
	}
	c.lent = true
	return c.register(mem)
}

// register registers host memory for which there is room.
func (c *core) register(mem *hostmem.Buf) error {
	reg, err := c.nic.dev.Host(mem, 0, c.size, ibvfd.AccessLocalWrite|c.order.access())
	if err != nil {
		c.nic.Unpin(c.size)
		if c.lent {
			return err
		}
		return errors.Join(err, mem.Close())
	}
	c.hostMem, c.reg, c.local = mem, reg, lower.NewSpace(reg.Local)
	return nil
}

// host reports whether the CPU can read the memory when it posts, for inline data.
func (c *core) host() bool { return c.hostMem != nil }

// share registers a part for a peer, under a key of its own. The memory stays until unuse.
func (c *core) share(off, length int64, access ibvfd.Access) (r *rc.Registration, err error) {
	c.moving.RLock()
	defer c.moving.RUnlock()
	if c.hostMem != nil {
		r, err = c.nic.dev.Host(c.hostMem, off, length, access)
	} else {
		r, err = c.nic.dev.Source(c.exported(), off, length, access)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, errors.Join(errs.Closed("buffer"), c.nic.End(r.Close))
	}
	c.uses++
	if c.shared == nil {
		c.shared = map[*rc.Registration]bool{}
	}
	c.shared[r] = true
	return r, nil
}

// withdraw ends the keys of share; unuse follows.
func (c *core) withdraw(r *rc.Registration) error {
	c.moving.RLock()
	defer c.moving.RUnlock()
	if err := r.Close(); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.shared, r)
	c.mu.Unlock()
	return nil
}

// sync is Buffer.Sync for a part.
func (c *core) sync(off, length int64) error {
	if c.staging == nil {
		return nil
	}
	_, err := c.staging.sync(off, length)
	return err
}

func (c *core) readAt(p []byte, off int64) (int, error) {
	c.moving.RLock()
	defer c.moving.RUnlock()
	src := c.source()
	if src == nil {
		return copy(p, c.hostMem.Bytes()[off:]), nil
	}
	if err := c.sync(off, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := src.ReadAt(p, off)
	if n == len(p) && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (c *core) writeAt(p []byte, off int64) (int, error) {
	c.moving.RLock()
	defer c.moving.RUnlock()
	src := c.source()
	if src == nil {
		return copy(c.hostMem.Bytes()[off:], p), nil
	}
	// Sync first, so that a peer's earlier write does not count as newer.
	if err := c.sync(off, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := src.WriteAt(p, off)
	return n, errors.Join(err, c.sync(off, int64(n)))
}

// busy returns what keeps the memory besides one Buffer; "" if nothing does.
func (c *core) busy() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keeps(0)
}

// keeps is busy for callers that hold the mutex. It leaves out known uses.
func (c *core) keeps(known int) string {
	switch {
	case c.uses > known:
		return fmt.Sprintf("operations under way, and keys of peers (Unexport), on its memory: %d", c.uses-known)
	case c.handles > 1:
		return fmt.Sprintf("slices and other buffers on its memory: %d", c.handles-1)
	}
	return ""
}

// free ends the last Buffer and frees the memory, or does neither.
func (c *core) free() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.freeLocked(); err != nil {
		return err
	}
	c.handles--
	return nil
}

// letGo ends a Buffer, and frees the memory after the last one. While operations are under way on
// it, or if it cannot be freed, the memory is freed later.
func (c *core) letGo() error { return c.decrement(&c.handles) }

// unuse ends a use.
func (c *core) unuse() { _ = c.decrement(&c.uses) }

// use keeps the memory until unuse; false if it is freed.
func (c *core) use() bool {
	c.mu.Lock()
	open := !c.ended
	if open {
		c.uses++
	}
	c.mu.Unlock()
	return open
}

// unuseLater is unuse for callers that hold a lock: if the memory is to be freed, a goroutine
// frees it, and the NIC's Close waits for the goroutine.
func (c *core) unuseLater() {
	if c.last(&c.uses) {
		c.nic.later(c.freeLast)
	}
}

// decrement decrements a count, and frees the memory after the last use.
func (c *core) decrement(count *int) error {
	if !c.last(count) {
		return nil
	}
	return c.nic.End(c.freeLast)
}

// last decrements a count, and reports whether the memory is to be freed.
func (c *core) last(count *int) bool {
	c.mu.Lock()
	*count--
	last := c.handles == 0 && c.uses == 0
	c.mu.Unlock()
	return last
}

func (c *core) freeLast() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.freeLocked()
}

// freeLocked frees the parts one after the other, and continues after a part that could not be
// freed before. It is not called again after success.
func (c *core) freeLocked() error {
	if err := closeRegistrations(&c.bytes); err != nil {
		return err
	}
	if !c.ended {
		if c.reg != nil {
			if err := c.reg.Close(); err != nil {
				return err
			}
		}
		c.ended = true
	}
	if c.hostMem != nil {
		if !c.lent {
			if err := c.hostMem.Close(); err != nil {
				return err
			}
		}
		c.nic.Unpin(c.size)
		c.hostMem = nil
	}
	if c.release != nil {
		c.release()
		c.release = nil
	}
	if c.owned != nil {
		if err := c.owned.Close(); err != nil {
			return err
		}
		c.owned = nil
	}
	c.nic.Leave()
	return nil
}
