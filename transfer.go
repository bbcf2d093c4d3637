// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"fmt"
	"sync"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/progress"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// Transfer is an operation that Conn.Start has started. Its methods may be called from several goroutines at once.
type Transfer struct {
	conn   *Conn
	kind   OpKind
	ticket rails.Ticket
	done   chan struct{}
	gone   chan struct{} // closed when the NIC does not use its memory any more

	mu    sync.Mutex
	ended bool
	value uint64
	err   error
	stop  func() bool // ends the watch of the context
}

// Start starts an operation. It waits until the connection has room for it (Config.Depth). The context bounds the
// whole transfer: when it ends, the transfer is withdrawn as by Cancel.
func (c *Conn) Start(ctx context.Context, op Op) (*Transfer, error) {
	t := &Transfer{conn: c, kind: op.Kind, done: make(chan struct{}), gone: make(chan struct{})}
	ticket, err := c.postWait(ctx, &op, false, t, transfers{})
	if err != nil {
		return nil, c.failed(op.Kind, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ticket = ticket
	if !t.ended {
		t.stop = context.AfterFunc(ctx, func() { t.cancel(errs.Ended(ctx)) })
	}
	return t, nil
}

// Done returns a channel that is closed when the transfer has ended, and Err and Value are final.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Released returns a channel that is closed when the NIC does not use the transfer's memory any more: with Done, or
// later if Cancel or the context has ended the transfer while the NIC had a part of it.
func (t *Transfer) Released() <-chan struct{} { return t.gone }

// Err returns the transfer's error, an *OpError; nil if the transfer has succeeded, or is not done.
func (t *Transfer) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Value returns the old value of an atomic without Op.Local, once the transfer is done.
func (t *Transfer) Value() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}

// Cancel withdraws the work requests of the transfer that the NIC does not have. It returns true if the NIC had none:
// no byte reaches the peer's memory, and the peer gets no notification. Otherwise the bytes and the notification that
// the NIC has may reach the peer, and the others do not. In both cases the transfer is done, with context.Canceled if
// it was not done before. Released says when the memory is free.
func (t *Transfer) Cancel() (withdrawn bool) { return t.cancel(context.Canceled) }

func (t *Transfer) cancel(why error) bool {
	t.mu.Lock()
	ticket := t.ticket
	t.mu.Unlock()
	withdrawn := ticket.Cancel(why)
	t.end(0, why)
	return withdrawn
}

// end sets the result, once.
func (t *Transfer) end(value uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended, t.value, t.err = true, value, t.conn.failed(t.kind, err)
	if t.stop != nil {
		t.stop()
	}
	close(t.done)
}

// transfers is the sink of transfers.
type transfers struct{}

// Complete ends a transfer.
func (transfers) Complete(c operation.Completion) {
	t := c.Context.(*Transfer)
	t.end(c.Value, c.Err)
	if !c.Held {
		close(t.gone)
	}
}

// Released reports that the NIC does not use the memory of a transfer with Held any more.
func (transfers) Released(t any) { close(t.(*Transfer).gone) }

// Batch posts several operations, and waits for all of them. One goroutine at a time may use it.
type Batch struct {
	conn *Conn
	ops  []Op
}

// Batch returns an empty batch.
func (c *Conn) Batch() *Batch { return &Batch{conn: c} }

// Write adds a write.
func (b *Batch) Write(to Remote, from Span, opts ...Option) {
	b.add(Op{Kind: OpWrite, Local: from, Remote: to}, opts)
}

// Read adds a read.
func (b *Batch) Read(into Span, from Remote, opts ...Option) {
	b.add(Op{Kind: OpRead, Local: into, Remote: from}, opts)
}

// Add adds any operation.
func (b *Batch) Add(op Op) { b.add(op, nil) }

func (b *Batch) add(op Op, opts []Option) {
	for _, o := range opts {
		if o != nil {
			o(&op)
		}
	}
	b.ops = append(b.ops, op)
}

// Do posts the operations in order, waits for all of them, and empties the batch. It returns the first error, with
// the operation's index from 0 on. If an operation cannot be posted, the operations after it are not posted. When the
// context ends, Do returns at once, and withdraws the work requests that the NIC does not have.
func (b *Batch) Do(ctx context.Context) error {
	ops := b.ops
	b.ops = nil
	if err := errs.Ended(ctx); err != nil || len(ops) == 0 {
		return err
	}
	g, tickets := progress.NewGroup(len(ops)), make([]rails.Ticket, 0, len(ops))
	for i := range ops {
		tag, sink := g.Begin(i)
		t, err := b.conn.postWait(ctx, &ops[i], i+1 < len(ops), tag, sink)
		if err != nil {
			g.End(i, err)
			break
		}
		tickets = append(tickets, t)
	}
	b.conn.c.Look()
	ended, i, err := g.Wait(ctx, b.conn.c.Polls())
	if ended != nil {
		rails.CancelAll(tickets, ended)
		return b.conn.failed(ops[0].Kind, ended)
	}
	if err != nil {
		return fmt.Errorf("operation %d: %w", i, b.conn.failed(ops[i].Kind, err))
	}
	return nil
}
