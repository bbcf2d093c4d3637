// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// Line is a connection as either side has it: requests and answers, and
// operations between the two buffers.
type Line struct {
	*station.Station
	Link   link.Link
	Remote rails.Remote                                            // the peer's buffer
	Depth  int                                                     // operations of a run that are under way
	Pull   func(ctx context.Context) (operation.Completion, error) // takes the next completion
	Want   int64                                                   // length of the messages that dataIn is of

	// ctl is for a message that goes out, one that comes in, and what atomics
	// return; ctls are what each NIC has of it.
	ctl   *memory.Buffer
	ctls  []*memory.Buffer
	marks [marks]mark
	odd   int   // messages of another length
	heard int64 // length of the request or answer that came last
}

// mark is the context of operations, and counts those that have ended.
type mark struct {
	line *Line
	kind int
	done int
}

// LineOf returns the line whose operation has ended, nil if it is no line's.
func LineOf(c operation.Completion) *Line {
	if m, ok := c.Context.(*mark); ok {
		return m.line
	}
	return nil
}

const (
	ctlIn   = iota // a request or an answer
	ctlOut         // the same
	dataIn         // a message into the buffer
	dataOut        // an operation on the peer's buffer, or a message
	marks
)

const (
	atOut    = 0
	atIn     = talk.MaxMessage
	atResult = 2 * talk.MaxMessage
	ctlSize  = atResult + 8
)

// NewLine makes a line of a link. The caller sets Pull, and hangs up.
func NewLine(s *station.Station, over link.Link) (*Line, error) {
	ctls, err := s.AllocHost(ctlSize)
	if err != nil {
		return nil, err
	}
	l := &Line{Station: s, Link: over, ctl: ctls[0], ctls: ctls, Depth: atOnce}
	for i := range l.marks {
		l.marks[i] = mark{line: l, kind: i}
	}
	return l, nil
}

// HangUp ends the connection. Keys that the peer was given end with it.
func (l *Line) HangUp() error {
	return errors.Join(l.Link.Close(), memory.ReleaseAll(l.ctls))
}

// took notes what has ended.
func (l *Line) took(c operation.Completion) error {
	m, ok := c.Context.(*mark)
	if !ok || m.line != l {
		return nil
	}
	if c.Err != nil {
		return c.Err
	}
	// A write with data ends a receive, too, and puts nothing into it: the peer may
	// make it as long as the buffer that it was given.
	if in := m.kind == ctlIn || m.kind == dataIn; in && c.Op != operation.Recv || m.kind == ctlIn && c.Len > talk.MaxMessage {
		return fmt.Errorf("%w: %v of %d bytes", talk.ErrMalformed, c.Op, c.Len)
	}
	switch m.done++; m.kind {
	case ctlIn:
		l.heard = c.Len
	case dataIn:
		if c.Len != l.Want {
			l.odd++
		}
	}
	return nil
}

// await waits until n operations of a kind have ended.
func (l *Line) await(ctx context.Context, kind, n int) error {
	for l.marks[kind].done < n {
		c, err := l.Pull(ctx)
		if err == nil {
			err = l.took(c)
		}
		if err != nil {
			return err
		}
	}
	l.marks[kind].done -= n
	return nil
}

// Listen is ready for a request or an answer.
func (l *Line) Listen() error {
	return l.Link.Receive(link.Part(l.ctls, atIn, talk.MaxMessage), &l.marks[ctlIn])
}

// Hear waits for one.
func (l *Line) Hear(ctx context.Context) ([]byte, error) {
	if err := l.await(ctx, ctlIn, 1); err != nil {
		return nil, err
	}
	b := make([]byte, l.heard)
	_, err := l.ctl.ReadAt(b, atIn)
	return b, err
}

// Say sends one.
func (l *Line) Say(ctx context.Context, b []byte) error {
	if _, err := l.ctl.WriteAt(b, atOut); err != nil {
		return err
	}
	if err := l.Link.Begin(operation.Send, link.Part(l.ctls, atOut, int64(len(b))), rails.Remote{}, 0, &l.marks[ctlOut]); err != nil {
		return err
	}
	return l.await(ctx, ctlOut, 1)
}

// Share gives the peer access to the buffer.
func (l *Line) Share(ctx context.Context) error {
	const access = ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite
	err := l.Link.Offer(ctx, link.All(l.Bufs), access|ibvfd.AccessRemoteAtomic)
	if errors.Is(err, syscall.EOPNOTSUPP) { // the NIC may have no atomics
		err = l.Link.Offer(ctx, link.All(l.Bufs), access)
	}
	return err
}

// Receive is ready for the messages of some work.
func (l *Line) Receive(w talk.Work) error {
	l.Want, l.odd, l.marks[dataIn].done = w.Size, 0, 0
	for i := range w.Count {
		if err := l.Link.Receive(link.Part(l.Bufs, w.At(i), w.Size), &l.marks[dataIn]); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many operations of a run are under way.
const atOnce = 16

// Run carries out some work towards the peer's buffer, and says how long it
// took from the first posting to the last completion.
func (l *Line) Run(ctx context.Context, op talk.Op, w talk.Work) (time.Duration, error) {
	start := time.Now()
	for posted, done := 0, 0; done < w.Count; done++ {
		for ; posted < w.Count && posted-done < l.Depth; posted++ {
			if err := l.Post(op, l.Bufs, w, posted, 0); err != nil {
				return 0, err
			}
		}
		if err := l.await(ctx, dataOut, 1); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// kinds are the operations, but for atomics.
var kinds = map[talk.Op]operation.Kind{talk.Write: operation.Write, talk.Read: operation.Read, talk.Send: operation.Send}

// Post begins operation i of some work, from or into memory of this side.
func (l *Line) Post(op talk.Op, bufs []*memory.Buffer, w talk.Work, i int, flags operation.Flags) error {
	at, kind := w.At(i), kinds[op]
	there := rails.Remote{}
	if kind != operation.Send {
		there = l.there(at, w.Size)
	}
	return l.Link.Begin(kind, link.Part(bufs, at, w.Size), there, flags, &l.marks[dataOut])
}

// there returns some bytes of the peer's buffer.
func (l *Line) there(off, n int64) rails.Remote {
	m := l.Remote
	m.Off, m.Len = off, n
	return m
}

// Atomics adds 1 as often as the work says to a word of the peer that is
// before, then swaps it for its complement, and tries to swap it again, in
// vain. It says how many of these returned another number than they should.
func (l *Line) Atomics(ctx context.Context, w talk.Work, before uint64) (took time.Duration, wrong uint64, err error) {
	result, to, done := link.Part(l.ctls, atResult, 8), l.there(w.Offset, 8), &l.marks[dataOut]
	one := func(want uint64, posted error) error {
		if posted != nil {
			return posted
		}
		if err := l.await(ctx, dataOut, 1); err != nil {
			return err
		}
		switch got, err := ReadWord(l.ctl, atResult); {
		case err != nil:
			return err
		case got != want:
			wrong++
		}
		return nil
	}
	start := time.Now()
	for i := range uint64(w.Count) {
		if err := one(before+i, l.Link.Atomic(operation.FetchAdd, result, to, 1, 0, done)); err != nil {
			return 0, wrong, err
		}
	}
	took = time.Since(start)
	after := before + uint64(w.Count)
	if err := one(after, l.Link.Atomic(operation.CompareSwap, result, to, after, ^before, done)); err != nil {
		return 0, wrong, err
	}
	return took, wrong, one(^before, l.Link.Atomic(operation.CompareSwap, result, to, after, 0, done))
}

// ReadWord reads 8 bytes as atomics see them.
func ReadWord(b *memory.Buffer, at int64) (uint64, error) {
	var p [8]byte
	_, err := b.ReadAt(p[:], at)
	return binary.NativeEndian.Uint64(p[:]), err
}

// WriteWord writes 8 bytes as atomics see them.
func WriteWord(b *memory.Buffer, at int64, v uint64) error {
	var p [8]byte
	binary.NativeEndian.PutUint64(p[:], v)
	_, err := b.WriteAt(p[:], at)
	return err
}

// Misfits says how many messages had another length than was wanted, "" if none had.
func (l *Line) Misfits() string {
	if l.odd == 0 {
		return ""
	}
	return fmt.Sprintf("%d messages had another length than %d bytes", l.odd, l.Want)
}
