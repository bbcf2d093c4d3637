// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// trial carries out the rows of `connect`.
type trial struct {
	*client
	seed uint64
	runs uint64
}

// behind is how many bytes after a target are watched as well.
const behind = 512

// row does one operation in one direction. broken says that the connection is
// of no more use.
func (t *trial) row(ctx context.Context, p planned, count int) (row connectRow, broken bool, err error) {
	row = connectRow{Op: p.op.String(), Direction: p.direction, Size: p.size, Count: count, Errors: []cli.Error{}}
	w := talk.Work{Size: p.size, Count: count, Slots: 1}
	if p.op != talk.Atomic {
		w.Slots = int(min(int64(count), min(t.buf.Size(), t.server.Size)/p.size))
	}
	if p.op == talk.Send {
		row.Count = min(count, t.atOnce)
		w.Count, w.Slots = row.Count, min(w.Slots, row.Count)
	}
	t.runs++
	what := fmt.Sprintf("%v %s, %d bytes", p.op, p.direction, p.size)
	err = t.within(ctx, what, func(ctx context.Context) (err error) {
		if p.op == talk.Atomic {
			row.Elapsed, row.Verified, err = t.atomic(ctx, p.direction, w)
		} else {
			row.Elapsed, row.Verified, err = t.move(ctx, p.op, p.direction, w)
		}
		return err
	})
	if row.Elapsed > 0 {
		row.Rate = float64(row.Size) * float64(row.Count) / row.Elapsed.Seconds()
	}
	if row.OK = err == nil; !row.OK {
		err = &cli.On{Subject: what, Err: err}
		row.Errors = cli.Explain(err)
	}
	// Wrong bytes are no reason to stop; anything else may have cut a request
	// from its answer.
	var wrong *canary.Mismatch
	return row, err != nil && !errors.As(err, &wrong) && !errors.Is(err, errServer) && !errors.Is(err, errWrong), err
}

// errWrong is what is wrong and no run of bytes.
var errWrong = errors.New("not as it should be")

// move carries out writes, reads or messages.
func (t *trial) move(ctx context.Context, op talk.Op, direction string, w talk.Work) (took time.Duration, verified int64, err error) {
	fresh := talk.Pattern{Seed: t.seed + t.runs}
	stale := talk.Pattern{Seed: fresh.Seed, Flip: true}
	lands := direction == in // here
	if op == talk.Read {
		lands = !lands
	}
	// The target first: the bytes behind it must stay.
	if err := t.fill(ctx, lands, stale, min(w.Bytes()+behind, t.room(lands))); err != nil {
		return 0, 0, err
	}
	if err := t.fill(ctx, !lands, fresh, w.Bytes()); err != nil {
		return 0, 0, err
	}
	if took, err = t.carryOut(ctx, op, direction, w); err != nil {
		return 0, 0, err
	}
	if err := t.check(ctx, lands, fmt.Sprintf("after %v", op), fresh, 0, w.Bytes()); err != nil {
		return took, 0, err
	}
	verified = w.Bytes()
	if rest := min(behind, t.room(lands)-verified); rest > 0 {
		if err := t.check(ctx, lands, fmt.Sprintf("behind the target of %v", op), stale, verified, rest); err != nil {
			return took, verified, err
		}
		verified += rest
	}
	return took, verified, nil
}

// room is the size of the buffer here or at the server.
func (t *trial) room(here bool) int64 {
	if here {
		return t.buf.Size()
	}
	return t.server.Size
}

func (t *trial) fill(ctx context.Context, here bool, p talk.Pattern, length int64) error {
	if here {
		return p.FillAt(t.buf, 0, length)
	}
	_, err := t.ask(ctx, talk.Request{Kind: talk.Fill, Seed: p.Seed, Flip: p.Flip, Work: talk.Work{Size: length}})
	return err
}

func (t *trial) check(ctx context.Context, here bool, what string, p talk.Pattern, off, length int64) error {
	if here {
		if text := t.misfits(); text != "" {
			return fmt.Errorf("%w: %s", errWrong, text)
		}
		f, err := p.CheckAt(t.buf, off, length)
		if err == nil && f.Wrong > 0 {
			err = mismatch("the buffer here, "+what, f)
		}
		return err
	}
	a, err := t.ask(ctx, talk.Request{Kind: talk.Check, Seed: p.Seed, Flip: p.Flip, Work: talk.Work{Offset: off, Size: length}})
	if err == nil && a.Wrong > 0 {
		err = mismatch("the server's buffer, "+what, a.Finding)
	}
	return err
}

func (t *trial) carryOut(ctx context.Context, op talk.Op, direction string, w talk.Work) (time.Duration, error) {
	if direction == out {
		if op == talk.Send {
			if _, err := t.ask(ctx, talk.Request{Kind: talk.Receive, Work: w}); err != nil {
				return 0, err
			}
		}
		return t.run(ctx, op, w)
	}
	if op == talk.Send {
		// Before the receive for the answer, which comes after the messages.
		if err := t.receive(w); err != nil {
			return 0, err
		}
	}
	a, err := t.ask(ctx, talk.Request{Kind: talk.Run, Op: op, Work: w})
	return time.Duration(a.Value), err
}

// atomic carries out atomics on a word at the side that does not.
func (t *trial) atomic(ctx context.Context, direction string, w talk.Work) (took time.Duration, verified int64, err error) {
	before, wrong := t.seed+t.runs, uint64(0)
	var after uint64
	if direction == out {
		word := talk.Request{Kind: talk.Word, Set: true, Work: talk.Work{Size: 8}, Value: before}
		if _, err := t.ask(ctx, word); err != nil {
			return 0, 0, err
		}
		if took, wrong, err = t.atomics(ctx, w, before); err != nil {
			return 0, 0, err
		}
		word.Set = false
		a, err := t.ask(ctx, word)
		if err != nil {
			return took, 0, err
		}
		after = a.Extra
	} else {
		if err := writeWord(t.buf, 0, before); err != nil {
			return 0, 0, err
		}
		a, err := t.ask(ctx, talk.Request{Kind: talk.Run, Op: talk.Atomic, Work: w, Value: before})
		if err != nil {
			return 0, 0, err
		}
		took, wrong = time.Duration(a.Value), a.Extra
		if after, err = readWord(t.buf, 0); err != nil {
			return took, 0, err
		}
	}
	switch {
	case wrong > 0:
		return took, 0, fmt.Errorf("%w: %d of %d atomics returned another number than was there", errWrong, wrong, w.Count+2)
	case after != ^before:
		return took, 0, fmt.Errorf("%w: the word is %#x after the atomics, not %#x", errWrong, after, ^before)
	}
	return took, 8 * int64(w.Count+3), nil // each result, and the word
}
