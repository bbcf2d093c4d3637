// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"cmp"
	"errors"
	"slices"
)

// queued is an entry as it was when the queue was made. Since then it may have
// been used, and is younger than all that the queue has, or taken out.
type queued struct {
	e        *entry
	released uint64
}

// oldest is the unused entry that was released first, nil if all are used. Hits
// and releases keep no order, for they are many: an eviction looks at all
// entries once and sorts them, and serves later ones from that. A queue is used
// up after as many evictions and uses as it is long.
func (c *Cache) oldest() *entry {
	for fresh := false; ; fresh = true {
		for n := len(c.queue) - 1; n >= 0; n-- {
			q := c.queue[n]
			if q.e.refs == 0 && q.e.indexed && q.e.released == q.released {
				c.queue = c.queue[:n+1]
				return q.e
			}
			c.queue[n] = queued{}
		}
		if c.queue = c.queue[:0]; fresh {
			return nil
		}
		c.views(func(v *view) {
			v.index.all(func(e *entry) {
				if e.refs == 0 {
					c.queue = append(c.queue, queued{e, e.released})
				}
			})
		})
		slices.SortFunc(c.queue, func(a, b queued) int { return cmp.Compare(b.released, a.released) })
	}
}

// makeRoom evicts unused entries, the oldest first, until one of that length
// fits, or waits for others' deregistrations. It reports false if nothing
// helps. c.mu is let go of meanwhile.
func (c *Cache) makeRoom(length uint64, retried *bool) bool {
	if length > c.cfg.MaxBytes {
		return false
	}
	var out []*entry
	entries, bytes := c.entries-c.leaving, c.bytes-c.leavingBytes
	for entries >= c.cfg.MaxEntries || bytes > c.cfg.MaxBytes-length {
		e := c.oldest()
		if e == nil {
			break
		}
		c.takeOut(e)
		out = append(out, e)
		entries--
		bytes -= e.end - e.start
	}
	switch {
	case out != nil:
		c.stats.Evictions += uint64(len(out))
		_ = c.deregister(out) // what is refused is in stuck
	case c.leaving > 0:
		c.changed.Wait()
	case len(c.stuck) > 0 && !*retried:
		*retried = true
		_ = c.deregister(c.takeStuck(everyEntry))
	default:
		return false
	}
	return true
}

// takeOut removes an unused entry from the index.
func (c *Cache) takeOut(e *entry) {
	e.view.index.remove(e)
	c.unindexed(e)
	c.tidy(e.view)
}

func everyEntry(*entry) bool { return true }

// takeStuck takes those that are wanted of what the kernel did not let go of.
func (c *Cache) takeStuck(wanted func(*entry) bool) (out []*entry) {
	c.stuck = slices.DeleteFunc(c.stuck, func(e *entry) bool {
		if !wanted(e) {
			return false
		}
		out = append(out, e)
		return true
	})
	return out
}

// flush deregisters the entries that are wanted: the unused ones, and those that
// the kernel did not let go of before.
func (c *Cache) flush(wanted func(*entry) bool) error {
	out := c.takeStuck(wanted)
	n := len(out)
	c.views(func(v *view) {
		v.index.all(func(e *entry) {
			if e.refs == 0 && wanted(e) {
				out = append(out, e)
			}
		})
	})
	for _, e := range out[n:] {
		c.takeOut(e)
	}
	return c.deregister(out)
}

// deregister closes entries that nothing refers to any more. c.mu is let go of
// meanwhile. What the kernel refuses is kept in stuck, still counted.
func (c *Cache) deregister(out []*entry) (err error) {
	if len(out) == 0 {
		return nil
	}
	var bytes uint64
	for _, e := range out {
		bytes += e.end - e.start
		c.count(e.view.pd, 0, 1)
	}
	n := len(out)
	c.leaving += n
	c.leavingBytes += bytes
	c.mu.Unlock()
	var refused []*entry
	closed := bytes
	for _, e := range out {
		if e1 := e.mr.Close(); e1 != nil {
			err = errors.Join(err, e1)
			refused = append(refused, e)
			closed -= e.end - e.start
		}
	}
	c.mu.Lock()
	for _, e := range out {
		c.count(e.view.pd, -1, -1)
	}
	for _, e := range refused {
		c.count(e.view.pd, 1, 0)
	}
	c.leaving -= n
	c.leavingBytes -= bytes
	c.entries -= n - len(refused)
	c.bytes -= closed
	c.stuck = append(c.stuck, refused...)
	c.changed.Broadcast()
	return err
}
