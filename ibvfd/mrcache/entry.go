// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"slices"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// entry is a registered region: what a hit and its Release read and write, in a line of
// memory (TestEntryIsALine). All but dead is guarded by the cache's lock, or never
// changes.
type entry struct {
	start, end uint64
	pd         *ibvfd.PD // view's
	access     ibvfd.Access
	refs       int32
	released   uint64 // when it was last, in Cache.tick
	view       *view
	indexed    bool
	dead       atomic.Bool
	*registered
}

// registered is what users of a region ask for.
type registered struct {
	mr         region
	iova       uint64
	lkey, rkey uint32
}

// Ref is the use of a region. It is a value, so that a hit allocates nothing;
// of its copies exactly one is to be released. The zero Ref has none.
type Ref struct {
	c      *Cache
	e      *entry
	offset uint64
}

// MR is the region, which may be larger than what was asked for. It must not be
// closed nor re-registered; after Release it is another's.
func (r Ref) MR() *ibvfd.MR {
	mr, _ := r.e.mr.(*ibvfd.MR)
	return mr
}

// Addr is the address, in work requests, of the first byte asked for.
func (r Ref) Addr() uint64 { return r.e.iova + r.offset - r.e.start }

// LKey is the region's local key.
func (r Ref) LKey() uint32 { return r.e.lkey }

// RKey is the region's remote key.
func (r Ref) RKey() uint32 { return r.e.rkey }

// Dead reports whether the region's buffer was invalidated.
func (r Ref) Dead() bool { return r.e.dead.Load() }

// Release ends the use. Releasing the same variable again does nothing.
func (r *Ref) Release() {
	c, e := r.c, r.e
	if e == nil {
		return
	}
	*r = Ref{}
	c.mu.Lock()
	if e.refs--; e.refs == 0 {
		c.used--
		c.tick++
		if e.released = c.tick; !e.indexed {
			c.uncover(e)
			_ = c.deregister([]*entry{e}) // what is refused is in stuck
		}
	}
	c.mu.Unlock()
}

// uncover forgets an entry that was used after a larger one came. A dead one is
// forgotten already.
func (c *Cache) uncover(e *entry) {
	if e.dead.Load() {
		return
	}
	v := e.view
	v.covered = slices.DeleteFunc(v.covered, func(other *entry) bool { return other == e })
	c.tidy(v)
}
