// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// line is a connection as either side has it: requests and answers, and
// operations between the two buffers.
type line struct {
	*station
	link   link
	remote rails.Remote // the peer's buffer
	// ctl is for a message that goes out, one that comes in, and what atomics
	// return; ctls are what each NIC has of it.
	ctl   *memory.Buffer
	ctls  []*memory.Buffer
	depth int // operations of a run that are under way
	pull  func(ctx context.Context) (operation.Completion, error)
	marks [marks]mark
	want  int64 // length of the messages that dataIn is of
	odd   int   // messages of another length
	heard int64 // length of the request or answer that came last
}

// mark is the context of operations, and counts those that have ended.
type mark struct {
	line *line
	kind int
	done int
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

func newLine(s *station, over link) (*line, error) {
	ctls, err := s.allocHost(ctlSize)
	if err != nil {
		return nil, err
	}
	l := &line{station: s, link: over, ctl: ctls[0], ctls: ctls, depth: atOnce}
	for i := range l.marks {
		l.marks[i] = mark{line: l, kind: i}
	}
	return l, nil
}

// hangUp ends the connection. Keys that the peer was given end with it.
func (l *line) hangUp() error {
	return errors.Join(l.link.close(), memory.ReleaseAll(l.ctls))
}

// took notes what has ended.
func (l *line) took(c operation.Completion) error {
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
		if c.Len != l.want {
			l.odd++
		}
	}
	return nil
}

// await waits until n operations of a kind have ended.
func (l *line) await(ctx context.Context, kind, n int) error {
	for l.marks[kind].done < n {
		c, err := l.pull(ctx)
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

// listen is ready for a request or an answer.
func (l *line) listen() error {
	return l.link.receive(part(l.ctls, atIn, talk.MaxMessage), &l.marks[ctlIn])
}

// hear waits for one.
func (l *line) hear(ctx context.Context) ([]byte, error) {
	if err := l.await(ctx, ctlIn, 1); err != nil {
		return nil, err
	}
	b := make([]byte, l.heard)
	_, err := l.ctl.ReadAt(b, atIn)
	return b, err
}

// say sends one.
func (l *line) say(ctx context.Context, b []byte) error {
	if _, err := l.ctl.WriteAt(b, atOut); err != nil {
		return err
	}
	if err := l.link.begin(operation.Send, part(l.ctls, atOut, int64(len(b))), rails.Remote{}, 0, &l.marks[ctlOut]); err != nil {
		return err
	}
	return l.await(ctx, ctlOut, 1)
}

// share gives the peer access to the buffer.
func (l *line) share(ctx context.Context) error {
	const access = ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite
	err := l.link.offer(ctx, all(l.bufs), access|ibvfd.AccessRemoteAtomic)
	if errors.Is(err, syscall.EOPNOTSUPP) { // the NIC may have no atomics
		err = l.link.offer(ctx, all(l.bufs), access)
	}
	return err
}

// receive is ready for the messages of some work.
func (l *line) receive(w talk.Work) error {
	l.want, l.odd, l.marks[dataIn].done = w.Size, 0, 0
	for i := range w.Count {
		if err := l.link.receive(part(l.bufs, w.At(i), w.Size), &l.marks[dataIn]); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many operations of a run are under way.
const atOnce = 16

// run carries out some work towards the peer's buffer, and says how long it
// took from the first posting to the last completion.
func (l *line) run(ctx context.Context, op talk.Op, w talk.Work) (time.Duration, error) {
	start := time.Now()
	for posted, done := 0, 0; done < w.Count; done++ {
		for ; posted < w.Count && posted-done < l.depth; posted++ {
			if err := l.post(op, l.bufs, w, posted, 0); err != nil {
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

// post begins operation i of some work, from or into memory of this side.
func (l *line) post(op talk.Op, bufs []*memory.Buffer, w talk.Work, i int, flags operation.Flags) error {
	at, kind := w.At(i), kinds[op]
	there := rails.Remote{}
	if kind != operation.Send {
		there = l.there(at, w.Size)
	}
	return l.link.begin(kind, part(bufs, at, w.Size), there, flags, &l.marks[dataOut])
}

// there returns some bytes of the peer's buffer.
func (l *line) there(off, n int64) rails.Remote {
	m := l.remote
	m.Off, m.Len = off, n
	return m
}

// atomics adds 1 as often as the work says to a word of the peer that is
// before, then swaps it for its complement, and tries to swap it again, in
// vain. It says how many of these returned another number than they should.
func (l *line) atomics(ctx context.Context, w talk.Work, before uint64) (took time.Duration, wrong uint64, err error) {
	result, to, done := part(l.ctls, atResult, 8), l.there(w.Offset, 8), &l.marks[dataOut]
	one := func(want uint64, posted error) error {
		if posted != nil {
			return posted
		}
		if err := l.await(ctx, dataOut, 1); err != nil {
			return err
		}
		switch got, err := readWord(l.ctl, atResult); {
		case err != nil:
			return err
		case got != want:
			wrong++
		}
		return nil
	}
	start := time.Now()
	for i := range uint64(w.Count) {
		if err := one(before+i, l.link.atomic(operation.FetchAdd, result, to, 1, 0, done)); err != nil {
			return 0, wrong, err
		}
	}
	took = time.Since(start)
	after := before + uint64(w.Count)
	if err := one(after, l.link.atomic(operation.CompareSwap, result, to, after, ^before, done)); err != nil {
		return 0, wrong, err
	}
	return took, wrong, one(^before, l.link.atomic(operation.CompareSwap, result, to, after, 0, done))
}

// readWord reads 8 bytes as atomics see them.
func readWord(b *memory.Buffer, at int64) (uint64, error) {
	var p [8]byte
	_, err := b.ReadAt(p[:], at)
	return binary.NativeEndian.Uint64(p[:]), err
}

func writeWord(b *memory.Buffer, at int64, v uint64) error {
	var p [8]byte
	binary.NativeEndian.PutUint64(p[:], v)
	_, err := b.WriteAt(p[:], at)
	return err
}

// misfits says how many messages had another length than was wanted, "" if none had.
func (l *line) misfits() string {
	if l.odd == 0 {
		return ""
	}
	return fmt.Sprintf("%d messages had another length than %d bytes", l.odd, l.want)
}
