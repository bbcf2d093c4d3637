// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// OverRails is a connection with a rail for each NIC. Its messages are those of the connection. This
// program puts a number before each, and sends a long one as several.
type OverRails struct {
	c      *rails.Conn
	wake   chan struct{} // gets a value when there is a completion
	end    context.CancelFunc
	tasks  sync.WaitGroup
	posts  []*posting // that had no room yet, in order
	number uint64     // of the last message that was sent

	mu   sync.Mutex
	done []operation.Completion
	in   inbound
	flow flow
}

// flow counts what has moved, for `bench --flap`.
type flow struct {
	under   int       // operations under way
	last    time.Time // when one of them ended, or the first of them began
	longest time.Duration
	failed  int
	sent    uint64 // messages
}

// posting is an operation, and how much of it was posted.
type posting struct {
	kind   operation.Kind
	here   rails.Local
	there  rails.Remote
	flags  operation.Flags
	x, y   uint64
	done   any
	posted int64 // bytes, of a message
	left   int   // parts of a message that have not completed
	err    error // of one of them
}

// Over makes a link of a connection. It calls changed for rails that lose their link, and for those
// that have another one.
func Over(c *rails.Conn, changed func(rails.State)) *OverRails {
	ctx, cancel := context.WithCancel(context.Background())
	r := &OverRails{c: c, wake: make(chan struct{}, 1), end: cancel}
	r.in.some = make(chan struct{}, 1)
	r.tasks.Go(func() { r.receiveAll(ctx) })
	stop := c.Events.Read()
	r.tasks.Go(func() {
		defer stop()
		for {
			s, err := c.Events.Next(ctx)
			if err != nil {
				return
			}
			changed(s)
		}
	})
	return r
}

// Begin implements Link.
func (r *OverRails) Begin(kind operation.Kind, here rails.Local, there rails.Remote, flags operation.Flags, done any) error {
	// Each operation is posted by itself.
	return r.add(&posting{kind: kind, here: here, there: there, flags: flags &^ operation.FlagMore, done: done, left: pieces(kind, here.Len)})
}

// Atomic implements Link.
func (r *OverRails) Atomic(kind operation.Kind, result rails.Local, there rails.Remote, x, y uint64, done any) error {
	return r.add(&posting{kind: kind, here: result, there: there, x: x, y: y, done: done, left: 1})
}

// pieces returns how many messages carry one of n bytes.
func pieces(kind operation.Kind, n int64) int {
	if kind != operation.Send {
		return 1
	}
	return int(max(1, (n+MaxPiece-1)/MaxPiece))
}

func (r *OverRails) add(p *posting) error {
	r.posts = append(r.posts, p)
	return r.post()
}

// post posts what there is room for.
func (r *OverRails) post() error {
	for len(r.posts) > 0 {
		p := r.posts[0]
		done, err := r.postOne(p)
		if errors.Is(err, operation.ErrQueueFull) {
			return nil
		}
		if done || err != nil {
			r.posts[0] = nil
			r.posts = r.posts[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// postOne posts an operation, or the next part of a message, and reports whether that was the last.
func (r *OverRails) postOne(p *posting) (last bool, err error) {
	var message []byte
	size := int64(0)
	if p.kind == operation.Send {
		size = min(p.here.Len-p.posted, MaxPiece)
		if message, err = r.letter(p.here, p.posted, size); err != nil {
			return true, err
		}
	}
	fill := func(w *workqueue.Work, over *rails.Rail) error { return r.fill(w, p, message, over) }
	w, err := r.c.First.NewWork(p.kind, p.flags, p, r)
	if err != nil {
		return true, err
	}
	if err = fill(w, r.c.FirstRail); err == nil {
		err = w.Prepare()
	}
	if err != nil {
		r.c.First.Drop(w)
		return true, err
	}
	m := rails.Memory{Bytes: message, Size: w.Length, All: fill}
	if p.kind != operation.Send {
		m.Locals, m.Remotes = []rails.Local{p.here}, []rails.Remote{p.there}
	}
	r.began()
	if _, err := r.c.Post(w, rails.Posting{Memory: m, Flags: p.flags, Note: p.kind == operation.Send, Context: p, Sink: r}); err != nil {
		r.ended(err)
		return true, err
	}
	if p.kind == operation.Send {
		r.number++
	}
	p.posted += size
	return p.kind != operation.Send || p.posted == p.here.Len, nil
}

// fill gives a work of a rail all of an operation.
func (r *OverRails) fill(w *workqueue.Work, p *posting, message []byte, over *rails.Rail) error {
	if p.kind == operation.Send {
		return w.SetMessage(over.Conn.Works, message)
	}
	atomic := p.kind == operation.FetchAdd || p.kind == operation.CompareSwap
	if atomic {
		w.SetAtomic(p.x, p.y)
	}
	here, there := p.here.On(over.NIC), p.there.For(p.kind, over.Number)
	err := w.AddLocal(&here)
	if err == nil {
		err = w.AddRemote(&there)
	}
	if err == nil && atomic {
		err = w.NeedResult()
	}
	return err
}

// began counts an operation.
func (r *OverRails) began() {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.flow
	if f.under == 0 {
		f.last = time.Now()
	}
	f.under++
}

// ended counts the end of one, and how long nothing had ended before. An operation that had no room
// has not begun.
func (r *OverRails) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flow.ended(err)
}

func (f *flow) ended(err error) {
	f.under--
	if errors.Is(err, operation.ErrQueueFull) {
		return
	}
	now := time.Now()
	f.longest = max(f.longest, now.Sub(f.last))
	f.last = now
	if err != nil {
		f.failed++
	}
}

// Complete implements operation.Sink.
func (r *OverRails) Complete(c operation.Completion) {
	p := c.Context.(*posting)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flow.ended(c.Err)
	if p.kind == operation.Send && c.Err == nil {
		r.flow.sent++
	}
	if p.err == nil {
		p.err = c.Err
	}
	if p.left--; p.left > 0 {
		return
	}
	c.Context, c.Op, c.Len, c.Err = p.done, p.kind, p.here.Len, p.err
	r.push(c)
}

// push adds a completion. The mutex is held.
func (r *OverRails) push(c operation.Completion) {
	r.done = append(r.done, c)
	r.awake()
}

// Take implements Link.
func (r *OverRails) Take(ctx context.Context, list []operation.Completion) (int, error) {
	for {
		if err := r.post(); err != nil {
			return 0, err
		}
		over := false
		select {
		case <-r.c.Done(): // before the look below: no completion comes after it
			over = true
		default:
		}
		r.mu.Lock()
		n := copy(list, r.done)
		r.done = r.done[:copy(r.done, r.done[n:])]
		err := r.in.err
		r.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		case over:
			return 0, r.c.First.Works.End.Gone()
		}
		if err := r.await(ctx); err != nil {
			return 0, r.c.Explain(err)
		}
	}
}

// exported is the name of a side's buffer.
const exported = "buffer"

// Offer implements Link.
func (r *OverRails) Offer(ctx context.Context, here rails.Local, access ibvfd.Access) error {
	return r.c.Export(ctx, exported, spans(here), access)
}

// Offered implements Link.
func (r *OverRails) Offered(ctx context.Context) (rails.Remote, error) {
	first, more, err := r.c.Import(ctx, exported)
	if err != nil {
		return rails.Remote{}, err
	}
	return rails.Remote{First: first, More: more, Len: first.Size()}, nil
}

// Gone implements Link.
func (r *OverRails) Gone(ctx context.Context) error {
	select {
	case <-r.c.Done():
		return r.c.First.Works.End.Gone()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Now implements Link.
func (r *OverRails) Now() ([]RailState, error) {
	states := r.c.States()
	list := make([]RailState, len(states))
	for i, s := range states {
		list[i].State = s
	}
	for _, rail := range r.c.Rails() {
		var sum workqueue.Counts
		rail.Conn.Works.AddCounts(&sum)
		list[rail.Number].Counts = sum.Total()
	}
	return list, nil
}

// Close implements Link.
func (r *OverRails) Close() error {
	err := r.c.Close()
	r.end()
	r.tasks.Wait()
	return err
}

// Up reports whether all rails have a link, and names one that has none, with the reason.
func (r *OverRails) Up() (all bool, why error) {
	for _, s := range r.c.States() {
		if s.Up {
			continue
		}
		if s.Err == nil {
			s.Err = errors.New("it was not made yet")
		}
		return false, fmt.Errorf("%s: %w", s.Path.NIC, s.Err)
	}
	return true, nil
}

// Counted is the counters of a connection.
type Counted struct {
	Failed, Lost, Twice, Sent int64
	Longest                   time.Duration
}

// Counted returns the counters since the last Restart; those of messages that came are since the beginning.
func (r *OverRails) Counted() Counted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Counted{int64(r.flow.failed), int64(r.in.lost), int64(r.in.twice), int64(r.flow.sent), r.flow.longest}
}

// Restart sets the counters to 0.
func (r *OverRails) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flow.failed, r.flow.sent, r.flow.longest, r.flow.last = 0, 0, 0, time.Now()
}

// AllUp waits until all rails have a link. It returns why one has none when the context ends.
func (r *OverRails) AllUp(ctx context.Context) error {
	for {
		up, why := r.Up()
		if up {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.c.Done():
			return r.c.First.Works.End.Gone()
		case <-ctx.Done():
			return why
		}
	}
}

// PeerAddr is the address of the other side, as the exchange goes to it.
func (r *OverRails) PeerAddr() net.Addr { return r.c.First.Peer().Addr }
