// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/verify"
	"github.com/gpurdma/gpurdma/internal/wire"
	"github.com/gpurdma/gpurdma/internal/workqueue"
	"github.com/gpurdma/gpurdma/layout"
)

// lent is the memory that the peer of a connection was given, by its IDs. Memory with a name stays until
// Unexport, other memory until the connection is forgotten.
type lent struct {
	mu    sync.Mutex
	list  map[uint64]*exported
	ended bool
}

// add returns false if the connection has ended.
func (l *lent) add(x *exported) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.list == nil {
		l.list = map[uint64]*exported{}
	}
	l.list[x.id] = x
	return true
}

func (l *lent) remove(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, id)
}

// end is called when the connection has ended, and all keys with it.
func (l *lent) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, x := range l.list {
		x.conn.set.homes.Gone(x)
	}
}

// push brings what has come over a NIC to the memory that the peer was given: a read through the NIC
// pushes its writes, also those to a GPU, which the end of a queue pair does not.
func (l *lent) push(n *NIC) {
	l.mu.Lock()
	list := slices.Collect(maps.Values(l.list))
	l.mu.Unlock()
	var all sync.WaitGroup
	for _, x := range list {
		all.Go(func() { x.push(n) })
	}
	all.Wait()
}

func (l *lent) find(id uint64) (*exported, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x, ok := l.list[id]
	return x, ok
}

// check compares the bytes of a write with the peer's sums. It returns a *verify.Corrupt if the
// sums differ, and verify.ErrUnverified if the bytes could not be compared. A malformed trailer ends the
// connection.
func (l *lent) check(ctx context.Context, c *Conn, t *verify.Trailer) error {
	ctx, cancel := after(ctx, c.First.PeerTimeout())
	defer cancel()
	if slices.ContainsFunc(t.Pieces, func(p verify.Piece) bool { return p.Own }) { // the peer has made the layout
		ctx, cancel = context.WithTimeout(ctx, c.First.PeerTimeout())
		defer cancel()
	}
	x := &checked{c: c, by: map[uint64]*given{}}
	defer x.drop()
	src, err := x.take(ctx, l, t)
	if err != nil {
		return err
	}
	bad, err := t.Compare(src, func() error { return x.flush(ctx) })
	if err != nil {
		return unverified(err)
	}
	c.First.CountBlocks(workqueue.Blocks{Checked: uint64(len(t.Sums)), Corrupt: uint64(len(bad))})
	if len(bad) == 0 {
		return nil
	}
	first := bad[0]
	p, at := t.Piece(first.Off)
	return &verify.Corrupt{
		Memory: x.by[p.Memory].name, Off: first.Off, At: at, Len: first.Len, Sent: first.Value, Found: first.Found,
		Blocks: len(bad), Checked: len(t.Sums),
	}
}

// after returns a context that ends a time after ctx. So a notification that has arrived is still
// compared if ctx ends.
func after(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(d):
			cancel()
		case <-out.Done():
		}
	})
	return out, func() {
		stop()
		cancel()
	}
}

func unverified(why error) error { return fmt.Errorf("%w: %w", verify.ErrUnverified, why) }

// checked is the memory of a trailer while it is compared.
type checked struct {
	c  *Conn
	by map[uint64]*given
}

// given is memory of a trailer, as this side's first NIC has it.
type given struct {
	*exported
	*memory.Given
}

// mostBlocks bounds the blocks of a peer's layout: to go through more of them would take seconds.
const mostBlocks = 1 << 26

// take takes the memory into use.
func (x *checked) take(ctx context.Context, l *lent, t *verify.Trailer) (src verify.Joined, err error) {
	for i := range t.Pieces {
		id := t.Pieces[i].Memory
		if x.by[id] != nil {
			continue
		}
		lo, ok := l.find(id)
		if !ok {
			return nil, unverified(&failure.Error{
				Op: "compare the bytes of a write", Detail: "its memory is not exported any more", Err: failure.ErrRange,
				Remedy: "take the notifications of all writes to memory before Unexport",
			})
		}
		if lo.access&ibvfd.AccessRemoteWrite == 0 {
			return nil, x.malformed("sums of memory that the peer may not write")
		}
		s, err := lo.span(x.c.FirstRail.NIC)
		if err != nil {
			return nil, unverified(err)
		}
		g, err := s.Given(x.c.FirstRail.NIC.NIC)
		if err != nil { // its buffer is closed
			return nil, unverified(err)
		}
		x.by[id] = &given{lo, g}
	}
	if t.Repeats(func(id uint64) int64 { return x.by[id].Size() }) {
		return nil, x.malformed("sums of bytes that are written twice")
	}
	for i := range t.Pieces {
		p := &t.Pieces[i]
		shape := (*layout.Layout)(nil)
		if p.Own {
			shape = &p.Layout
		}
		r, err := x.by[p.Memory].Reading(ctx, shape, p.Off, p.Len)
		if err != nil {
			return nil, x.malformed(err.Error())
		}
		if n := min(p.Layout.Blocks(), p.Len); p.Own && n > mostBlocks { // each has a byte at least
			return nil, unverified(&failure.Error{
				Op: "compare the bytes of a write", Detail: fmt.Sprintf("the peer's layout has %d blocks, of at most %d", n, mostBlocks), Err: failure.ErrLimit,
			})
		}
		src = append(src, verify.Part{Source: r, Len: p.Len})
	}
	return src, nil
}

// malformed ends the connection.
func (x *checked) malformed(detail string) error {
	err := &failure.Error{Op: "receive", Detail: detail, Err: wire.ErrMalformed}
	if x.c.sched == nil {
		x.c.First.Works.Abort(err)
	} else {
		x.c.abort(err)
	}
	return err
}

// flush makes the bytes that have come over any rail visible.
func (x *checked) flush(ctx context.Context) error {
	for _, g := range x.by {
		if x.c.sched == nil || x.c.rail(0).up() {
			if err := g.Flush(ctx); err != nil {
				return err
			}
		}
		for _, r := range x.c.Rails() {
			if r.NIC == x.c.FirstRail.NIC || !r.up() { // the bytes that have come over a lost link are in the memory
				continue
			}
			s, err := g.span(r.NIC)
			if err != nil {
				return err
			}
			other, err := s.Given(r.NIC.NIC)
			if err != nil {
				return err
			}
			err = other.Flush(ctx)
			other.Drop()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *checked) drop() {
	for _, g := range x.by {
		g.Drop()
	}
}
