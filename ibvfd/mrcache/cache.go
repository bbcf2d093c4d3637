// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Config bounds a cache.
type Config struct {
	MaxEntries int    // regions, used and unused; 0 is 1024
	MaxBytes   uint64 // of all regions together; 0 is no bound but the memory's
	Policy     ibvfd.RoutePolicy
}

const defaultEntries = 1024

// Range is what a request asks for.
type Range struct {
	Offset, Length uint64 // bytes of the dma-buf
	Access         ibvfd.Access
}

// Cache keeps memory regions registered. Its methods may be called from several
// goroutines at once.
type Cache struct {
	cfg      Config
	register func(pd *ibvfd.PD, buf buffer, r Range) (region, error)

	mu           sync.Mutex
	changed      sync.Cond // a region was deregistered
	known        known
	buffers      map[uint64]*view // the first one of each inode number
	tick         uint64           // counts Releases
	queue        []queued         // for eviction, the oldest last
	stuck        []*entry         // the kernel did not let go of them
	entries      int              // all there are, being registered and deregistered included
	bytes        uint64           // of those
	used         int              // entries with a Ref
	flights      int              // registrations under way
	leaving      int              // entries being deregistered
	leavingBytes uint64
	pds          map[*ibvfd.PD]share // of entries and leaving
	closed       bool
	stats        Stats
}

// buffer is what the cache needs of a *dmabuf.Buf, and region of an *ibvfd.MR.
// Tests bring others.
type buffer interface {
	Inode() uint64
	Size() int64
	Closed() bool
}

type region interface {
	State() ibvfd.MRState
	Close() error
}

// view are the regions of one buffer, PD and access. What a hit reads comes
// first, to lie together.
type view struct {
	index   index
	pd      *ibvfd.PD
	access  ibvfd.Access
	next    *view // of the same buffer: there are few
	inode   uint64
	flights []*flight
	covered []*entry // used, and no longer in the index: a larger one is
}

// flight is a registration under way. done is closed when it has ended.
type flight struct {
	start, end uint64
	invalid    bool // the buffer was invalidated meanwhile
	done       chan struct{}
	err        error // after done
}

// share is how many of a cache's entries, and of those that are being
// deregistered, are one PD's.
type share struct{ entries, leaving int }

// count adds to a PD's share.
func (c *Cache) count(pd *ibvfd.PD, entries, leaving int) {
	s := c.pds[pd]
	s.entries, s.leaving = s.entries+entries, s.leaving+leaving
	if c.pds[pd] = s; s == (share{}) {
		delete(c.pds, pd)
	}
}

// Stats counts what a cache did and has.
type Stats struct {
	Hits, Misses  uint64
	Waits         uint64 // for another's registration of the same memory
	Evictions     uint64
	Invalidations uint64 // regions that Invalidate made unusable
	Entries       int    // regions, with those that are being registered
	Used          int    // of these, with a Ref
	Bytes         uint64 // of all
}

// New returns an empty cache.
func New(cfg Config) *Cache {
	return newCache(cfg, func(pd *ibvfd.PD, buf buffer, r Range) (region, error) {
		// The IOVA is the offset: they agree within a page, as they must.
		mr, err := pd.RegMR(ibvfd.MRAttr{
			Kind: ibvfd.DMABufFD, Buf: buf.(*dmabuf.Buf), Offset: r.Offset, Length: r.Length, IOVA: r.Offset,
			Access: r.Access, Policy: cfg.Policy,
		})
		if err != nil {
			return nil, err
		}
		return mr, nil
	})
}

func newCache(cfg Config, register func(*ibvfd.PD, buffer, Range) (region, error)) *Cache {
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = defaultEntries
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = ^uint64(0)
	}
	c := &Cache{cfg: cfg, register: register, buffers: map[uint64]*view{}, pds: map[*ibvfd.PD]share{}}
	c.changed.L = &c.mu
	return c
}

// Get returns a region of pd on buf with that access that contains the range,
// registered before or now: one registration for all who ask for the same at
// the same time. The Ref must be released. Errors are those of [ibvfd.PD.RegMR],
// dmabuf.ErrRange, dmabuf.ErrLimit where everything registered is in use, and
// os.ErrClosed.
func (c *Cache) Get(pd *ibvfd.PD, buf *dmabuf.Buf, r Range) (Ref, error) { return c.get(pd, buf, r) }

func (c *Cache) get(pd *ibvfd.PD, buf buffer, r Range) (Ref, error) {
	if size := uint64(buf.Size()); r.Length == 0 || r.Length > size || r.Offset > size-r.Length {
		return Ref{}, outOfRange(buf, r)
	}
	if buf.Closed() {
		return Ref{}, os.ErrClosed
	}
	c.mu.Lock()
	if e := c.find(buf.Inode(), pd, r); e != nil {
		ref := c.hit(e, r.Offset)
		c.mu.Unlock()
		return ref, nil
	}
	defer c.mu.Unlock()
	return c.miss(pd, buf, r)
}

// find returns the region that contains the range, or nil.
func (c *Cache) find(inode uint64, pd *ibvfd.PD, r Range) *entry {
	end := r.Offset + r.Length
	if e := c.known.find(inode, pd, r.Access, r.Offset, end); e != nil {
		return e
	}
	v := c.view(inode, pd, r.Access)
	if v == nil {
		return nil
	}
	e := v.index.find(r.Offset, end)
	if e != nil && v.index.count == 1 { // it was overwritten, or is the only one again
		c.known.add(e)
	}
	return e
}

// view returns the view, or nil if nothing of it is registered.
func (c *Cache) view(inode uint64, pd *ibvfd.PD, access ibvfd.Access) *view {
	v := c.buffers[inode]
	for v != nil && (v.pd != pd || v.access != access) {
		v = v.next
	}
	return v
}

// hit takes a reference to e.
func (c *Cache) hit(e *entry, offset uint64) Ref {
	c.stats.Hits++
	if e.refs == 0 {
		c.used++
	}
	e.refs++
	return Ref{c, e, offset}
}

// miss registers, or waits for whoever does. c.mu is held, and let go of during
// that.
func (c *Cache) miss(pd *ibvfd.PD, buf buffer, r Range) (Ref, error) {
	end, retried := r.Offset+r.Length, false
	for {
		if c.closed {
			return Ref{}, os.ErrClosed
		}
		if v := c.view(buf.Inode(), pd, r.Access); v != nil {
			if e := v.index.find(r.Offset, end); e != nil {
				return c.hit(e, r.Offset), nil
			}
			if f := v.flight(r.Offset, end); f != nil {
				c.stats.Waits++
				c.mu.Unlock()
				<-f.done
				c.mu.Lock()
				// What was closed may be the other's Buf alone.
				if f.err != nil && f.start == r.Offset && f.end == end && !errors.Is(f.err, os.ErrClosed) {
					return Ref{}, f.err
				}
				continue
			}
		}
		if r.Length > c.cfg.MaxBytes || c.entries >= c.cfg.MaxEntries || c.bytes > c.cfg.MaxBytes-r.Length {
			if !c.makeRoom(r.Length, &retried) {
				return Ref{}, c.full(buf, r)
			}
			continue
		}
		ref, err := c.fly(pd, buf, r)
		if !errors.Is(err, errInvalidated) {
			return ref, err
		}
	}
}

// errInvalidated: Invalidate came during a registration, which cannot tell
// whether it was before or after.
var errInvalidated = errors.New("invalidated during the registration")

// fly registers, with c.mu held before and after.
func (c *Cache) fly(pd *ibvfd.PD, buf buffer, r Range) (Ref, error) {
	v := c.makeView(buf.Inode(), pd, r.Access)
	f := &flight{start: r.Offset, end: r.Offset + r.Length, done: make(chan struct{})}
	v.flights = append(v.flights, f)
	c.stats.Misses++
	c.entries++
	c.count(pd, 1, 0)
	c.bytes += r.Length
	c.flights++
	c.mu.Unlock()
	mr, err := c.register(pd, buf, r)
	c.mu.Lock()
	c.flights--
	v.flights = slices.DeleteFunc(v.flights, func(other *flight) bool { return other == f })
	f.err = err
	close(f.done)
	if err != nil {
		c.entries--
		c.count(pd, -1, 0)
		c.bytes -= r.Length
		c.tidy(v)
		c.changed.Broadcast()
		return Ref{}, err
	}
	s := mr.State()
	e := &entry{
		start: f.start, end: f.end, pd: pd, access: r.Access, view: v,
		registered: &registered{mr: mr, iova: s.IOVA, lkey: s.LKey, rkey: s.RKey},
	}
	if f.invalid {
		e.dead.Store(true)
		c.tidy(v)
		_ = c.deregister([]*entry{e})
		return Ref{}, errInvalidated
	}
	e.refs = 1
	c.used++
	only := v.index.only
	covered, ok := v.index.add(e)
	if e.indexed = ok; !ok {
		v.covered = append(v.covered, e)
	}
	switch {
	case v.index.count > 1 && only != nil:
		c.known.drop(only)
	case ok && v.index.count == 1:
		c.known.add(e)
	}
	var unused []*entry
	for _, old := range covered {
		if c.unindexed(old); old.refs > 0 {
			v.covered = append(v.covered, old)
			continue
		}
		unused = append(unused, old)
	}
	_ = c.deregister(unused) // what is refused is in stuck
	return Ref{c, e, r.Offset}, nil
}

// unindexed notes that e is no longer in its view's index.
func (c *Cache) unindexed(e *entry) {
	e.indexed = false
	c.known.drop(e)
}

// flight is a registration under way that contains the range, or nil.
func (v *view) flight(start, end uint64) *flight {
	for _, f := range v.flights {
		if f.start <= start && end <= f.end && !f.invalid {
			return f
		}
	}
	return nil
}

func (c *Cache) makeView(inode uint64, pd *ibvfd.PD, access ibvfd.Access) *view {
	v := c.view(inode, pd, access)
	if v == nil {
		v = &view{inode: inode, pd: pd, access: access, next: c.buffers[inode]}
		c.buffers[inode] = v
	}
	return v
}

// tidy forgets a view in which nothing is left.
func (c *Cache) tidy(v *view) {
	if v.index.count > 0 || len(v.flights) > 0 || len(v.covered) > 0 {
		return
	}
	first := c.buffers[v.inode]
	for at := &first; *at != nil; at = &(*at).next {
		if *at == v {
			*at = v.next
			break
		}
	}
	if first == nil {
		delete(c.buffers, v.inode)
	} else {
		c.buffers[v.inode] = first
	}
}

// views calls each for every view. each must not tidy.
func (c *Cache) views(each func(*view)) {
	for _, v := range c.buffers {
		for ; v != nil; v = v.next {
			each(v)
		}
	}
}

func outOfRange(buf buffer, r Range) error {
	return &dmabuf.Error{
		Op: "get MR", Device: fmt.Sprintf("dma-buf inode %d", buf.Inode()), Err: dmabuf.ErrRange,
		Detail: fmt.Sprintf("offset %#x + length %#x, size %#x", r.Offset, r.Length, buf.Size()),
		Remedy: "choose a range of 1 byte or more inside the buffer",
	}
}

// full is the error of a Get for which nothing more can be evicted.
func (c *Cache) full(buf buffer, r Range) error {
	e := &dmabuf.Error{
		Op: "get MR", Device: fmt.Sprintf("dma-buf inode %d", buf.Inode()), Err: dmabuf.ErrLimit,
		Detail: fmt.Sprintf("%#x bytes more; %d of %d regions, %d of them in use, with %#x of %#x bytes", r.Length, c.entries, c.cfg.MaxEntries, c.used, c.bytes, c.cfg.MaxBytes),
		Remedy: "release what is not needed, or configure a larger cache",
	}
	if len(c.stuck) > 0 {
		e.Detail += fmt.Sprintf("; the kernel does not let go of %d", len(c.stuck))
	}
	return e
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries, s.Used, s.Bytes = c.entries, c.used, c.bytes
	return s
}

// Close deregisters everything. While anything is in use or being registered,
// it answers dmabuf.ErrInUse and closes nothing. What the kernel does not let go
// of stays, and Close may be called again. Closing again does nothing.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used > 0 || c.flights > 0 {
		return inUse("close MR cache", c.used+c.flights)
	}
	c.closed, c.queue = true, nil
	err := c.flush(everyEntry)
	for c.leaving > 0 { // by others
		c.changed.Wait()
	}
	return err
}

func inUse(op string, n int) error {
	return &dmabuf.Error{Op: op, Detail: fmt.Sprintf("%d region(s) in use", n), Remedy: "release them first", Err: dmabuf.ErrInUse}
}

// Flush deregisters all that nobody uses, and returns what the kernel said of
// those that it does not let go of.
func (c *Cache) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flush(everyEntry)
}

// Drop deregisters pd's regions, so that pd can be closed. Those in use stay,
// and the answer is dmabuf.ErrInUse.
func (c *Cache) Drop(pd *ibvfd.PD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.flush(func(e *entry) bool { return e.view.pd == pd })
		stuck := 0
		for _, e := range c.stuck {
			if e.view.pd == pd {
				stuck++
			}
		}
		switch s := c.pds[pd]; {
		case s.leaving > 0: // others deregister them
			c.changed.Wait()
		case stuck > 0 && err == nil: // others tried meanwhile: try again
		case s.entries > stuck:
			return errors.Join(err, inUse("drop a PD's MRs", s.entries-stuck))
		default:
			return err
		}
	}
}

// Invalidate makes a buffer's regions unusable, in all PDs: it was revoked, or
// is about to be freed. No Get that begins afterwards returns one of them. Those
// that nobody uses are deregistered at once, the others with their last
// Release; [Ref.Dead] tells their users. It returns how many of these there
// are.
func (c *Cache) Invalidate(inode uint64) (stillUsed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unused []*entry
	kill := func(e *entry) {
		e.dead.Store(true)
		c.stats.Invalidations++
		if c.unindexed(e); e.refs > 0 {
			stillUsed++
			return
		}
		unused = append(unused, e)
	}
	for v, next := c.buffers[inode], (*view)(nil); v != nil; v = next {
		next = v.next
		v.index.all(kill)
		for _, e := range v.covered {
			kill(e)
		}
		v.index, v.covered = index{}, nil
		for _, f := range v.flights {
			f.invalid = true
		}
		c.tidy(v)
	}
	_ = c.deregister(unused) // what is refused is in stuck
	return stillUsed
}
