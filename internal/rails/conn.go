// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/progress"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Conn is a connection over one rail or several.
type Conn struct {
	First     *engine.Conn // of the first rail
	FirstRail *Rail        // the first rail as newConn made it

	set    *Set
	opt    engine.EndpointOptions
	how    Options
	addr   string // the address that this side has called; "" if the peer has called
	name   uint64 // names the connection to both sides; 0 if it has one rail and ends with its link
	count  int    // the most rails that the connection can have
	polls  []*progress.Progress
	sched  *scheduler // nil if count is 1
	shared shared     // memory that is exported over all rails
	lent   lent       // all memory that the peer was given keys for
	Events Events

	life context.Context // ends when the connection begins to end
	end  context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	rails []*Rail // by their numbers; nil for one that was not made
	cause error   // why the connection ends
	onEnd func()
	over  bool                // the connection has ended: OnEnd calls its function itself
	why   []error             // by the number of a rail that was not made: the error of the last attempt
	tries [Most]atomic.Uint32 // by the number of a rail: attempts to make another link
	tasks sync.WaitGroup
}

// Rail is a rail of a connection.
type Rail struct {
	Conn   *engine.Conn
	NIC    *NIC
	Number int

	load load

	// The Conn's mutex guards the last reports of both sides that the rail's link is lost.
	ours, theirs *engine.RailReport
	evicted      *uint32 // number of the link whose operations other rails have got
}

// key names one side of a connection: a Set may have both sides of it.
type key struct {
	name   uint64
	dialed bool
}

// newConn makes a Conn of its first rail. addr is the address that this side has called.
func (s *Set) newConn(n *NIC, ec *engine.Conn, opt engine.EndpointOptions, how Options, addr string) *Conn {
	first := &Rail{Conn: ec, NIC: n}
	c := &Conn{addr: addr, set: s, First: ec, FirstRail: first, opt: opt, how: how, count: 1, done: make(chan struct{}), rails: []*Rail{first}, polls: []*progress.Progress{n.Endpoint.Progress}}
	c.Events.c, c.Events.signal = c, make(chan struct{}, 1)
	c.shared.names = map[string]*exported{}
	if theirs, name := ec.PeerNICs(); theirs > 0 && opt.Rails.NICs > 0 {
		c.count, c.name = max(theirs, opt.Rails.NICs), name
	}
	if c.count == 1 {
		if c.name != 0 { // it outlives its link
			s.mu.Lock()
			s.conns[c.key()] = c
			s.mu.Unlock()
			ec.OnEnd(func() { s.forget(c) }) // until OnEnd sets another function
		}
		return c
	}
	c.rails, c.why = append(c.rails, make([]*Rail, c.count-1)...), make([]error, c.count)
	c.polls = nil
	for _, n := range s.NICs {
		c.polls = append(c.polls, n.Endpoint.Progress)
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.sched = newScheduler(c)
	s.mu.Lock()
	s.conns[c.key()] = c
	s.mu.Unlock()
	c.watch(c.rails[0])
	if addr != "" {
		c.dialRails()
	}
	go c.finish()
	return c
}

func (c *Conn) key() key { return key{c.name, c.addr != ""} }

// nicOf returns the NIC of a rail of a connection whose first rail has a NIC.
func (s *Set) nicOf(first *NIC, rail int) *NIC { return s.NICs[(first.Index+rail)%len(s.NICs)] }

// nicOf returns this side's NIC of a rail.
func (c *Conn) nicOf(rail int) *NIC {
	return c.set.nicOf(c.FirstRail.NIC, rail)
}

// One returns the connection of the only rail; nil if there may be several.
func (c *Conn) One() *engine.Conn {
	if c.sched == nil {
		return c.First
	}
	return nil
}

// Polls returns the progress of all NICs on which completions of the connection may come.
func (c *Conn) Polls() []*progress.Progress { return c.polls }

// Look takes completions, and posts the operations that wait for them.
func (c *Conn) Look() {
	for _, p := range c.polls {
		p.Look()
	}
}

// Rails returns the rails that were made.
func (c *Conn) Rails() (list []*Rail) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rails {
		if r != nil {
			list = append(list, r)
		}
	}
	return list
}

// add adds a rail.
func (c *Conn) add(number int, ec *engine.Conn) error {
	r := &Rail{Conn: ec, NIC: c.nicOf(number), Number: number}
	c.mu.Lock()
	if c.cause != nil {
		defer c.mu.Unlock()
		return c.cause
	}
	old := c.rails[number]
	c.rails[number] = r
	c.watch(r)
	c.mu.Unlock()
	if old != nil { // the peer, which calls, has given it up
		old.Conn.Works.Abort(workqueue.ErrRemoved)
		<-old.Conn.Done()
	}
	c.sched.joined(r, old)
	go c.linked(number, 0)
	return nil
}

// watch ends the connection when a rail's has ended, unless another one has taken its place.
func (c *Conn) watch(r *Rail) {
	c.tasks.Go(func() {
		select {
		case <-r.Conn.Works.Life().Done():
			if c.rail(r.Number) == r {
				c.abort(r.Conn.Works.End.Gone())
			}
		case <-c.life.Done():
			r.Conn.Works.Abort(c.gone())
		}
		<-r.Conn.Done()
	})
}

// abort begins the end of all rails.
func (c *Conn) abort(cause error) {
	c.mu.Lock()
	first := c.cause == nil
	if first {
		c.cause = cause
	}
	rails := c.rails
	c.mu.Unlock()
	if !first {
		return
	}
	c.end()
	for _, r := range rails {
		if r != nil {
			r.Conn.Works.Abort(cause)
		}
	}
}

// finish completes the operations when all rails have ended.
func (c *Conn) finish() {
	<-c.life.Done()
	c.tasks.Wait()
	c.set.forget(c)
	c.sched.finish(c.First.Works.End.Gone())
	c.mu.Lock()
	f := c.onEnd
	c.over = true
	c.mu.Unlock()
	if f != nil {
		f()
	}
	close(c.done)
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} {
	if c.sched == nil {
		return c.First.Done()
	}
	return c.done
}

// OnEnd makes the connection call f when it has ended: before Done's channel is closed, or now if
// it has ended. f must not block.
func (c *Conn) OnEnd(f func()) {
	if c.sched == nil {
		c.First.OnEnd(func() {
			c.set.forget(c)
			f()
		})
		return
	}
	c.mu.Lock()
	over := c.over
	if !over {
		c.onEnd = f
	}
	c.mu.Unlock()
	if over {
		f()
	}
}

// Unknown reports whether the peer may have received operations that were under way at the end.
func (c *Conn) Unknown() bool {
	for _, r := range c.Rails() {
		if _, unknown := r.Conn.Works.End.Cause(); unknown {
			return true
		}
	}
	return false
}

// Close ends the connection, as engine.Conn's Close does.
func (c *Conn) Close() error {
	if c.sched == nil {
		return c.First.Close()
	}
	why := errs.Closed("connection", engine.ErrNotConnected)
	if !c.sched.shut(why, c.First.PeerTimeout()) { // the rails do not wait again
		c.abort(why)
	}
	ends := make(chan error)
	rails := c.Rails()
	for _, r := range rails {
		go func() { ends <- r.Conn.Close() }()
	}
	var err error
	for range rails {
		if e := <-ends; err == nil {
			err = e
		}
	}
	<-c.done
	return err
}

// Counts returns what the connection has done, and the same for each NIC.
func (c *Conn) Counts() (all workqueue.Sum, each map[string]*workqueue.Sum) {
	each = map[string]*workqueue.Sum{}
	for _, r := range c.Rails() {
		var sum workqueue.Sum
		r.Conn.Works.AddCounts(&sum.Counts)
		sum.Blocks = r.Conn.Blocks.Blocks()
		all.Add(&sum)
		if same := each[r.NIC.Name()]; same != nil {
			sum.Add(same)
		}
		each[r.NIC.Name()] = &sum
	}
	return all, each
}

// Receive waits for a message of the kind, as engine.Conn's Receive does. A notification whose write
// has sums is returned with an error if the bytes are wrong, or could not be compared.
func (c *Conn) Receive(ctx context.Context, kind mailbox.Kind) ([]byte, error) {
	if c.sched == nil {
		m, err := c.First.Receive(ctx, kind)
		if err == nil && m.Sums != nil {
			err = c.lent.check(ctx, c, m.Sums)
		}
		return m.Body, err
	}
	works := c.First.Works
	for {
		over := false
		select {
		case <-c.done:
			over = true
		default:
		}
		if m, ok := works.TakeMessage(kind, over); ok {
			if m.Sums != nil {
				return m.Body, c.lent.check(ctx, c, m.Sums)
			}
			return m.Body, nil
		}
		if over {
			return nil, works.End.Gone()
		}
		if err := progress.Await(ctx, c.polls, works.MessageSignal(kind), c.done); err != nil {
			return nil, &failure.Error{Op: "receive", Detail: fmt.Sprintf("the peer has sent no %v", kind), Err: err}
		}
	}
}

// Explain adds to the error of an operation that has waited for too long that links are lost.
func (c *Conn) Explain(err error) error {
	if c.sched == nil || !errors.Is(err, context.DeadlineExceeded) {
		return c.First.Explain(err)
	}
	lost, all := 0, c.Rails()
	var last error
	for _, r := range all {
		if why := r.Conn.Works.Link.LostFor(); why != nil {
			lost, last = lost+1, fmt.Errorf("that over %s: %w", r.NIC.Name(), why)
		}
	}
	if lost == 0 {
		return err
	}
	return fmt.Errorf("%w; %d of %d links are lost, %w", err, lost, len(all), last)
}

// Times between two attempts to make a rail.
const (
	firstPause = 5 * time.Millisecond
	mostPause  = 2 * time.Second
)

// dialRails makes the other rails, in the background.
func (c *Conn) dialRails() {
	for number := 1; number < c.count; number++ {
		c.tasks.Go(func() { c.dialRail(number) })
	}
}

// way returns the addresses for a later rail's exchange: that of this side's NIC and that of the peer's
// NIC, so that the exchange fails with these NICs only. It returns the zero Way if the peer is on
// this host, or has told no address. At every second attempt it does so too, because the peer may
// not listen at its NIC's address.
func (c *Conn) way(number int) (w engine.Way) {
	if c.tries[number].Add(1)%2 == 0 {
		return w
	}
	addrs := c.First.PeerAddrs()
	at, ok := c.First.Peer().Addr.(*net.TCPAddr)
	if !ok || at.IP.IsLoopback() || number >= len(addrs) || !addrs[number].IsValid() {
		return w
	}
	w.To = netip.AddrPortFrom(addrs[number], uint16(at.Port))
	if from := c.nicOf(number).Addr(c.opt.Port, c.opt.GID); from.Is4() == w.To.Addr().Is4() {
		w.From = from
	}
	return w
}

// dialRail makes one rail.
func (c *Conn) dialRail(number int) {
	n, opt := c.nicOf(number), c.opt
	opt.Rails.Group, opt.Rails.Rail, opt.Rails.Find, opt.Rails.Joined = c.name, number, nil, nil
	opt.Outlive, opt.Rails.Messages = true, c.First.Messages()
	opt.Rails.Way = func() engine.Way { return c.way(number) }
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		ec, err := n.Endpoint.ConnectWith(c.life, c.addr, opt)
		if err == nil {
			if c.add(number, ec) != nil {
				_ = ec.Close()
			}
			return
		}
		c.mu.Lock()
		c.why[number] = err
		c.mu.Unlock()
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-c.life.Done():
			return
		}
	}
}
