// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/workqueue"
	"golang.org/x/sys/unix"
)

// maxInline is the longest Inline of a write, in bytes.
const maxInline = 256

// OpKind is the kind of an operation.
type OpKind int

// The kinds of operations.
const (
	OpWrite       OpKind = 1 + iota // local memory, or Inline, to the peer's memory
	OpRead                          // the peer's memory to local memory
	OpSend                          // Inline, as a message
	OpFetchAdd                      // adds Add to 8 bytes of the peer
	OpCompareSwap                   // writes Swap to 8 bytes of the peer if they equal Compare
)

var opKinds = [...]operation.Kind{OpWrite: operation.Write, OpRead: operation.Read, OpSend: operation.Send, OpFetchAdd: operation.FetchAdd, OpCompareSwap: operation.CompareSwap}

// String returns the operation's name: "fetch-and-add".
func (k OpKind) String() string {
	if x, ok := k.engine(); ok {
		return x.String()
	}
	return fmt.Sprintf("OpKind(%d)", int(k))
}

// Op is an operation. The program must not change the memory that it names, nor the slices in it, until the operation
// has completed.
type Op struct {
	Kind   OpKind
	Local  Span // of an atomic: 8 bytes for the old value, which may be left out
	Remote Remote
	// Locals and Remotes continue Local and Remote: bytes are taken in this order. Both sides must have the same
	// number of bytes.
	Locals  []Span
	Remotes []Remote
	// Inline has bytes in place of local memory: those of a write, at most 256, or a message. The program may change
	// the bytes of a write as soon as the call that takes the Op has returned.
	Inline []byte

	Notify    bool   // the peer gets a notification after the bytes of a write
	Note      []byte // the note of the notification, with Notify
	Delivered bool   // a write completes when its bytes are in the peer's memory
	Fence     bool   // the operation starts when all operations posted before it have completed
	Add       uint64 // for OpFetchAdd
	Compare   uint64 // for OpCompareSwap
	Swap      uint64 // for OpCompareSwap
	Tag       uint64 // a Queue returns it in the Completion
}

// Option changes an operation of Conn.Write, Conn.Read or Batch.
type Option func(*Op)

// Notify sends the peer a notification after the bytes of a write. The peer's program gets the note, of at most
// Config.MessageSize bytes (512 less with Config.Verify), from Conn.ReceiveNotification.
func Notify(note []byte) Option {
	return func(o *Op) { o.Notify, o.Note = true, note }
}

// Delivered makes a write complete when its bytes are in the peer's memory, not when the peer's NIC has acknowledged
// them: the NIC reads one byte back. So the peer must allow reads (otherwise EACCES). Reads and atomics complete in
// this way without Delivered.
func Delivered() Option { return func(o *Op) { o.Delivered = true } }

// Fence makes an operation start when all operations of its connection posted before it have completed.
func Fence() Option { return func(o *Op) { o.Fence = true } }

func (k OpKind) engine() (operation.Kind, bool) {
	if k < OpWrite || int(k) >= len(opKinds) {
		return 0, false
	}
	return opKinds[k], true
}

func (o *Op) flags(more bool) (f operation.Flags) {
	if o.Fence {
		f |= operation.FlagFence
	}
	if o.Delivered {
		f |= operation.FlagDeliveryComplete
	}
	if more {
		f |= operation.FlagMore
	}
	return f
}

// post posts an operation; more says that another one follows at once. The sink gets the completion, with tag. The
// operation is not begun after the deadline of ctx.
func (c *Conn) post(ctx context.Context, o *Op, more bool, tag any, sink operation.Sink) (rails.Ticket, error) {
	kind, ok := o.Kind.engine()
	if !ok {
		return rails.Ticket{}, &failure.Error{Op: o.Kind.String(), Detail: "no such operation", Remedy: "set Op.Kind", Err: unix.EINVAL}
	}
	one := c.c.First
	w, err := one.NewWork(kind, o.flags(more), tag, sink)
	if err != nil {
		return rails.Ticket{}, err
	}
	w.SetDeadline(ctx)
	several := c.c.One() == nil
	if err = c.fill(w, o, c.c.FirstRail, !several); err == nil {
		err = w.Prepare()
	}
	if err == nil && several {
		return c.postSeveral(ctx, w, o, tag, sink)
	}
	if err != nil {
		one.Drop(w)
		return rails.Ticket{}, err
	}
	t, err := one.Works.Post(w)
	return rails.Ticket{Work: t}, err
}

// postSeveral posts an operation over several rails. w is its work for the first one, and has no fault. postSeveral
// drops it.
func (c *Conn) postSeveral(ctx context.Context, w *workqueue.Work, o *Op, tag any, sink operation.Sink) (rails.Ticket, error) {
	op := *o // the caller may change its own when this call returns
	op.Inline, op.Note = bytes.Clone(o.Inline), bytes.Clone(o.Note)
	m := rails.Memory{Bytes: op.Inline, Note: op.Note, Sums: rails.Sums{Mode: c.verify}, Size: w.Length, All: func(w *workqueue.Work, r *rails.Rail) error { return c.fill(w, &op, r, false) }}
	for _, s := range append([]Span{o.Local}, o.Locals...) {
		m.Locals = append(m.Locals, s.at)
	}
	for _, r := range append([]Remote{o.Remote}, o.Remotes...) {
		m.Remotes = append(m.Remotes, r.at)
	}
	return c.c.Post(w, rails.Posting{Memory: m, Flags: o.flags(false), Note: o.Notify || o.Kind == OpSend, Limit: ctx, Context: tag, Sink: sink})
}

// fill gives a work of a rail the parts of an operation. only means that there is no other rail.
func (c *Conn) fill(w *workqueue.Work, o *Op, r *rails.Rail, only bool) error {
	refuse := func(detail string) error {
		return &failure.Error{Op: o.Kind.String(), Detail: detail, Err: unix.EINVAL}
	}
	atomic := false
	switch o.Kind {
	case OpSend:
		if !o.Local.none() || len(o.Locals) > 0 || o.Remote.at.First != nil || len(o.Remotes) > 0 || o.Remote.err != nil || o.Notify || len(o.Note) > 0 || o.Delivered || o.Add|o.Compare|o.Swap != 0 {
			return refuse("a message has Inline, and nothing else")
		}
		return w.SetMessage(r.Conn.Works, o.Inline)
	case OpFetchAdd:
		w.SetAtomic(o.Add, 0)
		atomic = true
	case OpCompareSwap:
		w.SetAtomic(o.Compare, o.Swap)
		atomic = true
	}
	switch {
	case o.Notify && o.Kind != OpWrite:
		return refuse("only a write notifies")
	case !o.Notify && len(o.Note) > 0:
		return refuse("Note without Notify")
	case len(o.Inline) > maxInline:
		return &failure.Error{
			Op: o.Kind.String(), Detail: fmt.Sprintf("Inline of %d bytes", len(o.Inline)), Err: memory.ErrTooLong,
			Remedy: fmt.Sprintf("it has %d at most: write from a Buffer", maxInline),
		}
	}
	if err := o.zero(); err != nil {
		return err
	}
	if o.Inline != nil {
		if o.Kind != OpWrite || !o.Local.none() || len(o.Locals) > 0 {
			return refuse("Inline is for a write without local memory")
		}
		if err := w.AddBytes(o.Inline); err != nil {
			return err
		}
	} else if err := c.addLocal(w, &o.Local, r, only); err != nil {
		return err
	}
	for i := range o.Locals {
		if err := c.addLocal(w, &o.Locals[i], r, only); err != nil {
			return err
		}
	}
	if err := addRemote(w, &o.Remote, r); err != nil {
		return err
	}
	for i := range o.Remotes {
		if err := addRemote(w, &o.Remotes[i], r); err != nil {
			return err
		}
	}
	switch {
	case atomic:
		return w.NeedResult()
	case o.Notify:
		return w.SetNote(r.Conn.Works, o.Note, c.verify)
	}
	return nil
}

// zero refuses an operation whose memory is left out. A write that only notifies needs none, and an atomic needs no
// local memory.
func (o *Op) zero() error {
	noLocal := o.Local.none() && len(o.Locals) == 0 && o.Inline == nil
	noRemote := o.Remote.at.First == nil && o.Remote.err == nil && len(o.Remotes) == 0
	atomic := o.Kind == OpFetchAdd || o.Kind == OpCompareSwap
	switch {
	case !noLocal && !noRemote, noLocal && noRemote && o.Notify:
	case noRemote && (atomic || noLocal || len(o.Inline) > 0 || total(o.Local.at.Len, o.Locals) > 0):
		return errZeroRemote(o.Kind.String())
	case noLocal && !atomic && total(o.Remote.at.Len, o.Remotes) > 0:
		return errZeroSpan(o.Kind.String())
	}
	return nil
}

// total returns a number that is 0 if all sizes are 0.
func total[M interface{ Size() int64 }](first int64, more []M) int64 {
	for i := range more {
		first |= more[i].Size()
	}
	return first
}

func (c *Conn) addLocal(w *workqueue.Work, s *Span, r *rails.Rail, only bool) error {
	x, err := s.on(c.fabric, r.NIC)
	if err != nil {
		return err
	}
	if away := x.Missing(); away != nil && only {
		return away.NotReached(w.Kind.String())
	}
	return w.AddLocal(&x)
}

func addRemote(w *workqueue.Work, m *Remote, r *rails.Rail) error {
	if m.err != nil {
		return m.err
	}
	x := m.at.For(w.Kind, r.Number)
	return w.AddRemote(&x)
}
