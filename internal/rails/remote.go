// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Spans returns local memory as a NIC has it.
type Spans func(n *NIC) (memory.Span, error)

// shared is the memory that is exported over all rails.
type shared struct {
	mu    sync.Mutex
	names map[string]*exported
}

// exported is memory that a peer was given.
type exported struct {
	conn   *Conn
	name   string // "" if it has none
	id     uint64
	span   Spans
	access ibvfd.Access
	tasks  sync.WaitGroup  // exports over later rails; none is added when the name is withdrawn
	life   context.Context // of memory with a name
	stop   context.CancelFunc
}

// newExported returns memory that is to be exported under a name, or shared without one. If that fails
// later, and when the name is withdrawn, it must leave Set.homes. Some NIC must reach it.
func (c *Conn) newExported(ctx context.Context, name string, span Spans, access ibvfd.Access) (*exported, error) {
	x := &exported{conn: c, name: name, id: memory.NewID(), span: span, access: access}
	s, err := span(c.FirstRail.NIC)
	if err != nil {
		return nil, err
	}
	if away := s.Missing(); away != nil && c.sched == nil {
		return nil, away.NotReached("export")
	}
	if access&ibvfd.AccessRemoteAtomic == 0 || c.sched == nil && len(c.set.NICs) == 1 {
		return x, nil
	}
	var order []int
	for i := range c.count {
		order = append(order, c.nicOf(i).Index)
	}
	return x, c.set.homes.Join(ctx, x, s.Memories(), order, c.sched == nil || name == "")
}

// on returns the memory as a rail's NIC has it, the access that the rail's keys allow, and a function
// that turns a descriptor of this side into the one for the peer.
//
// The access is 0 if the NIC does not reach the memory. The first rail is an exception, because its
// descriptor names the memory. Over several rails the keys here allow no atomics: memory with a name
// has keys for atomics apart, and other memory allows them on the rail of its home only.
func (e *exported) on(r *Rail) (s memory.Span, access ibvfd.Access, as func(rb *memory.RemoteBuffer) *memory.RemoteBuffer, err error) {
	as = func(rb *memory.RemoteBuffer) *memory.RemoteBuffer { return rb.WithID(e.id) }
	s, err = e.span(r.NIC)
	const atomics = ibvfd.AccessRemoteAtomic
	switch {
	case err != nil || r.Number > 0 && s.Missing() != nil:
		return s, 0, as, err
	case e.access&atomics == 0 || e.conn.sched == nil || e.name == "" && e.conn.set.homes.NIC(e) == r.NIC.Index:
		return s, e.access, as, nil
	case r.Number > 0:
		return s, e.access &^ atomics, as, nil
	}
	if access = e.access &^ atomics; access == 0 {
		access = e.access // there must be some key, and the peer does not use it
	}
	return s, access, func(rb *memory.RemoteBuffer) *memory.RemoteBuffer { return rb.WithID(e.id).Apart(e.access) }, nil
}

// Reaches reports whether the peer's atomics may go over a NIC.
func (e *exported) Reaches(nic int) bool {
	n := e.conn.set.NICs[nic]
	if !n.Device().Atomics() {
		return false
	}
	for i := range e.conn.count {
		if e.conn.nicOf(i) == n {
			s, err := e.span(n)
			return err == nil && s.Missing() == nil
		}
	}
	return false
}

// Moved reports whether a NIC was seen to reach a copy of the memory.
func (e *exported) Moved(nic int) bool {
	s, err := e.span(e.conn.set.NICs[nic])
	return err == nil && s.Moved()
}

// over returns the rails of a NIC that have links.
func (e *exported) over(nic int) []*Rail {
	return slices.DeleteFunc(e.conn.Rails(), func(r *Rail) bool { return r.NIC.Index != nic || !r.up() })
}

// Linked reports whether a rail of a NIC has a link.
func (e *exported) Linked(nic int) bool { return len(e.over(nic)) > 0 }

// Times for keys for atomics.
const (
	homePause   = 300 * time.Millisecond // a lost link may be back until then
	homeTimeout = 2 * time.Second        // for a peer to take keys

	pushTimeout = 500 * time.Millisecond
)

// Offer gives the peer keys for atomics over the rails of a NIC. A rail whose link is lost meanwhile is
// left out: it gets them with the next link.
func (e *exported) Offer(nic int) error {
	if e.conn.sched == nil || e.name == "" {
		return nil // its only keys are for all operations
	}
	ctx, cancel := context.WithTimeout(e.conn.life, homeTimeout)
	defer cancel()
	rails := e.over(nic)
	failed := make([]error, len(rails))
	var all sync.WaitGroup
	for i, r := range rails {
		all.Go(func() {
			s, err := e.span(r.NIC)
			if err == nil {
				err = r.Conn.Offers.ExportAtomics(ctx, e.name, e.id, s)
			}
			if !r.Conn.Offers.GivesAtomics(e.name, e.id) && r.up() && e.conn.life.Err() == nil {
				failed[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// Recall withdraws the keys that Offer gave, and makes what was written with them visible to other NICs.
func (e *exported) Recall(nic int, limit time.Duration) error {
	if e.conn.sched == nil || e.name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(e.conn.life, limit)
	defer cancel()
	var rails []*Rail
	for _, r := range e.conn.Rails() {
		if r.NIC.Index == nic {
			rails = append(rails, r)
		}
	}
	failed := make([]error, len(rails))
	var all sync.WaitGroup
	for i, r := range rails {
		all.Go(func() { failed[i] = r.Conn.Offers.Recall(ctx, e.name, e.id, func() { r.lose(limit) }) })
	}
	all.Wait()
	e.push(e.conn.set.NICs[nic])
	return errors.Join(failed...)
}

// Patience is how long an atomic waits for keys.
func (e *exported) Patience() time.Duration { return e.conn.First.PeerTimeout() }

// push brings what peers have written over a NIC to the memory, if the NIC is there.
func (e *exported) push(n *NIC) {
	ctx, cancel := context.WithTimeout(context.Background(), pushTimeout) // what other NICs do waits for it
	defer cancel()
	s, err := e.span(n)
	if err != nil {
		return // nothing has come over it
	}
	g, err := s.Given(n.NIC)
	if err != nil {
		return
	}
	defer g.Drop()
	if err := g.Push(ctx); err != nil && !n.Device().Removed() {
		slog.Warn("gpurdma: bytes that have come over a NIC may not be in the memory yet", "nic", n.Name(), "error", err)
	}
}

// Export gives the peer access to local memory under a name, over all rails whose NICs have it. It
// returns the error of the first rail.
func (c *Conn) Export(ctx context.Context, name string, span Spans, access ibvfd.Access) error {
	x, err := c.newExported(ctx, name, span, access)
	if err != nil {
		return err
	}
	x.life, x.stop = context.WithCancel(c.First.Works.Life())
	c.lent.add(x) // before the peer knows it
	if err := c.exportOver(ctx, c.rail(0), x); err != nil {
		x.stop()
		c.lent.remove(x.id)
		c.set.homes.Leave(x) // another rail may have got keys
		return err
	}
	var all sync.WaitGroup
	c.shared.mu.Lock()
	c.shared.names[name] = x
	for _, r := range c.Rails()[1:] {
		if r.up() { // otherwise linked exports it
			all.Add(1)
			x.tasks.Go(func() {
				defer all.Done()
				c.exportAlso(ctx, r, x)
			})
		}
	}
	c.shared.mu.Unlock()
	err = c.set.homes.Offer(ctx, x)
	all.Wait()
	if err != nil {
		return errs.Join(err, c.Unexport(ctx, name))
	}
	return nil
}

func (c *Conn) exportOver(ctx context.Context, r *Rail, x *exported) error {
	s, access, as, err := x.on(r)
	if err != nil || access == 0 {
		return err
	}
	return r.Conn.Offers.Export(ctx, x.name, s, access, as)
}

// exportAlso exports memory over a rail that may have it already. Without the keys the rail is left out.
func (c *Conn) exportAlso(ctx context.Context, r *Rail, x *exported) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.life, cancel)()
	if err := c.exportOver(ctx, r, x); err != nil && !errors.Is(err, unix.EEXIST) && r.up() && x.life.Err() == nil {
		slog.Warn("gpurdma: the peer gets no keys for exported memory over a NIC", "nic", r.NIC.Name(), "name", x.name, "error", err)
	}
}

// shareOver exports what has a name over a rail that has a link.
func (c *Conn) shareOver(r *Rail) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	for _, x := range c.shared.names {
		if r.Number > 0 {
			x.tasks.Go(func() {
				ctx, cancel := context.WithTimeout(c.life, c.First.PeerTimeout())
				defer cancel()
				c.exportAlso(ctx, r, x)
			})
		}
		go c.set.homes.OfferAgain(x)
	}
}

// Unexport withdraws the access that Export gave, over all rails.
func (c *Conn) Unexport(ctx context.Context, name string) error {
	c.shared.mu.Lock()
	x := c.shared.names[name]
	delete(c.shared.names, name)
	c.shared.mu.Unlock()
	if x != nil {
		x.stop()
		c.lent.remove(x.id)
	}
	if c.sched == nil {
		if x != nil {
			defer c.set.homes.Leave(x)
		}
		return c.First.Offers.Unexport(ctx, name)
	}
	if x != nil {
		x.tasks.Wait()
		c.set.homes.Leave(x)
		var all sync.WaitGroup
		for _, r := range c.Rails()[1:] {
			all.Go(func() {
				if !r.up() || r.Conn.Offers.Unexport(ctx, name) != nil {
					_ = r.Conn.Offers.Drop(name)
				}
			})
		}
		all.Wait()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.First.PeerTimeout()) // the others may have taken long
	defer cancel()
	return c.First.Offers.Unexport(ctx, name) // the last one, so that the name stays taken until then
}

// Import waits until the peer has exported memory under a name, and returns its descriptor for the
// first rail, and those for the others.
func (c *Conn) Import(ctx context.Context, name string) (*memory.RemoteBuffer, *Others, error) {
	rb, err := c.First.Offers.Import(ctx, name)
	if err != nil || c.sched == nil {
		return rb, nil, err
	}
	o := &Others{conn: c, name: name, id: rb.ID(), by: make([]atomic.Pointer[memory.RemoteBuffer], c.count), keys: make([]atomic.Pointer[viewed], c.count)}
	for i := 1; i < c.count; i++ { // the name of a rail that loses its link is offered anew, later
		o.On(i)
	}
	return rb, o, nil
}

// Others are the descriptors of a peer's memory for the rails after the first.
type Others struct {
	conn *Conn // whose peer has exported the memory under a name; nil for a descriptor that was decoded
	name string
	id   uint64

	given []*memory.RemoteBuffer // by rail, of a descriptor that was decoded
	view  *memory.RemoteBuffer   // the first rail's, with the layout that all have; nil for the peer's
	by    []atomic.Pointer[memory.RemoteBuffer]
	keys  []atomic.Pointer[viewed] // for atomics, with the layout of view
}

// viewed is a view of a descriptor.
type viewed struct{ of, rb *memory.RemoteBuffer }

// View returns the memory through the layout of a view of the first rail's.
func (o *Others) View(first *memory.RemoteBuffer) *Others {
	if o == nil {
		return nil
	}
	return &Others{conn: o.conn, name: o.name, id: o.id, given: o.given, view: first, by: make([]atomic.Pointer[memory.RemoteBuffer], len(o.by)), keys: make([]atomic.Pointer[viewed], len(o.by))}
}

// On returns the descriptor for a rail; nil if there is none.
func (o *Others) On(rail int) *memory.RemoteBuffer {
	if o == nil || rail >= len(o.by) {
		return nil
	}
	if rb := o.by[rail].Load(); rb != nil {
		return rb
	}
	var rb *memory.RemoteBuffer
	if o.conn == nil {
		rb = o.given[rail]
	} else if r := o.conn.rail(rail); r != nil {
		rb = r.Conn.Offers.Find(o.name, o.id)
	}
	if rb == nil {
		return nil
	}
	if o.view != nil {
		v, err := rb.View(o.view.Layout())
		if err != nil {
			return nil
		}
		rb = v
	}
	o.by[rail].Store(rb)
	return rb
}

// atomics returns the keys for atomics on memory with a name, as a rail has them.
func (o *Others) atomics(rail int) *memory.RemoteBuffer {
	r := o.conn.rail(rail)
	if r == nil {
		return nil
	}
	rb := r.Conn.Offers.FindAtomics(o.name, o.id)
	if rb == nil || o.view == nil {
		return rb
	}
	if v := o.keys[rail].Load(); v != nil && v.of == rb {
		return v.rb
	}
	v, err := rb.View(o.view.Layout())
	if err != nil {
		return nil
	}
	o.keys[rail].Store(&viewed{rb, v})
	return v
}

// Share gives the peer access to local memory over all rails whose NICs have it.
func (c *Conn) Share(span Spans, access ibvfd.Access) (*memory.RemoteBuffer, *Others, error) {
	x, err := c.newExported(c.First.Works.Life(), "", span, access)
	if err != nil {
		return nil, nil, err
	}
	first, o, err := c.shareAll(x)
	if err != nil {
		c.set.homes.Gone(x)
		return nil, nil, err
	}
	if !c.lent.add(x) { // the connection has ended
		c.set.homes.Gone(x)
	}
	return first, o, nil
}

// shareAll makes the keys for all rails.
func (c *Conn) shareAll(x *exported) (*memory.RemoteBuffer, *Others, error) {
	s, access, as, err := x.on(c.rail(0))
	if err != nil {
		return nil, nil, err
	}
	first, err := c.First.Share(s, access)
	if err != nil {
		return nil, nil, err
	}
	if first = as(first); c.sched == nil {
		return first, nil, nil
	}
	o := &Others{given: make([]*memory.RemoteBuffer, c.count), by: make([]atomic.Pointer[memory.RemoteBuffer], c.count)}
	var last error
	for _, r := range c.Rails()[1:] {
		s, access, as, err := x.on(r)
		if err == nil && access != 0 {
			var rb *memory.RemoteBuffer
			if rb, err = r.Conn.Share(s, access); err == nil { // a rail without the keys is left out
				o.given[r.Number] = as(rb)
			}
		}
		if err != nil {
			last = err
		}
	}
	if m := (&Remote{First: first, More: o}); x.access&ibvfd.AccessRemoteAtomic != 0 && m.hasNoAtomics() {
		nic := c.set.NICs[c.set.homes.NIC(x)].Name()
		why := &failure.Error{
			Op: "share for atomics", Device: nic, Detail: "all peers' atomics on this memory go over this NIC, and the connection has no rail to it now", Err: unix.EOPNOTSUPP,
			Remedy: "share it when Conn.Rails has that rail, or export it under a name",
		}
		err := errors.Join(why, last, c.First.Unshare(first))
		for i, rb := range o.given {
			if rb != nil {
				err = errors.Join(err, c.rail(i).Conn.Unshare(rb))
			}
		}
		return nil, nil, err
	}
	return first, o, nil
}

// rail returns a rail; nil if it was not made.
func (c *Conn) rail(number int) *Rail {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rails[number]
}
