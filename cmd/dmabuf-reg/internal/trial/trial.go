// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// Trial carries out the rows of `connect`.
type Trial struct {
	*peer.Client
	Seed uint64
	runs uint64
}

// Behind is how many bytes after a target are watched as well.
const Behind = 512

// Row does one operation in one direction. broken says that the connection is
// of no more use.
func (t *Trial) Row(ctx context.Context, p Planned, count int) (row Row, broken bool, err error) {
	row = Row{Op: p.Op.String(), Direction: p.Direction, Size: p.Size, Count: count, Errors: []cli.Error{}}
	w := talk.Work{Size: p.Size, Count: count, Slots: 1}
	if p.Op != talk.Atomic {
		w.Slots = int(min(int64(count), min(t.Buf.Size(), t.Server.Size)/p.Size))
	}
	if p.Op == talk.Send {
		row.Count = min(count, t.AtOnce)
		w.Count, w.Slots = row.Count, min(w.Slots, row.Count)
	}
	t.runs++
	what := fmt.Sprintf("%v %s, %d bytes", p.Op, p.Direction, p.Size)
	err = t.Within(ctx, what, func(ctx context.Context) (err error) {
		if p.Op == talk.Atomic {
			row.Elapsed, row.Verified, err = t.atomic(ctx, p.Direction, w)
		} else {
			row.Elapsed, row.Verified, err = t.move(ctx, p.Op, p.Direction, w)
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
	return row, err != nil && !errors.As(err, &wrong) && !errors.Is(err, peer.ErrServer) && !errors.Is(err, ErrWrong), err
}

// ErrWrong is what is wrong and no run of bytes.
var ErrWrong = errors.New("not as it should be")

// move carries out writes, reads or messages.
func (t *Trial) move(ctx context.Context, op talk.Op, direction string, w talk.Work) (took time.Duration, verified int64, err error) {
	fresh := talk.Pattern{Seed: t.Seed + t.runs}
	stale := talk.Pattern{Seed: fresh.Seed, Flip: true}
	lands := direction == In // here
	if op == talk.Read {
		lands = !lands
	}
	// The target first: the bytes behind it must stay.
	if err := t.fill(ctx, lands, stale, min(w.Bytes()+Behind, t.room(lands))); err != nil {
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
	if rest := min(Behind, t.room(lands)-verified); rest > 0 {
		if err := t.check(ctx, lands, fmt.Sprintf("behind the target of %v", op), stale, verified, rest); err != nil {
			return took, verified, err
		}
		verified += rest
	}
	return took, verified, nil
}

// room is the size of the buffer here or at the server.
func (t *Trial) room(here bool) int64 {
	if here {
		return t.Buf.Size()
	}
	return t.Server.Size
}

func (t *Trial) fill(ctx context.Context, here bool, p talk.Pattern, length int64) error {
	if here {
		return p.FillAt(t.Buf, 0, length)
	}
	_, err := t.Ask(ctx, talk.Request{Kind: talk.Fill, Seed: p.Seed, Flip: p.Flip, Work: talk.Work{Size: length}})
	return err
}

func (t *Trial) check(ctx context.Context, here bool, what string, p talk.Pattern, off, length int64) error {
	if here {
		if text := t.Misfits(); text != "" {
			return fmt.Errorf("%w: %s", ErrWrong, text)
		}
		f, err := p.CheckAt(t.Buf, off, length)
		if err == nil && f.Wrong > 0 {
			err = mismatch("the buffer here, "+what, f)
		}
		return err
	}
	a, err := t.Ask(ctx, talk.Request{Kind: talk.Check, Seed: p.Seed, Flip: p.Flip, Work: talk.Work{Offset: off, Size: length}})
	if err == nil && a.Wrong > 0 {
		err = mismatch("the server's buffer, "+what, a.Finding)
	}
	return err
}

func (t *Trial) carryOut(ctx context.Context, op talk.Op, direction string, w talk.Work) (time.Duration, error) {
	if direction == Out {
		if op == talk.Send {
			if _, err := t.Ask(ctx, talk.Request{Kind: talk.Receive, Work: w}); err != nil {
				return 0, err
			}
		}
		return t.Run(ctx, op, w)
	}
	if op == talk.Send {
		// Before the receive for the answer, which comes after the messages.
		if err := t.Receive(w); err != nil {
			return 0, err
		}
	}
	a, err := t.Ask(ctx, talk.Request{Kind: talk.Run, Op: op, Work: w})
	return time.Duration(a.Value), err
}

// atomic carries out atomics on a word at the side that does not.
func (t *Trial) atomic(ctx context.Context, direction string, w talk.Work) (took time.Duration, verified int64, err error) {
	before, wrong := t.Seed+t.runs, uint64(0)
	var after uint64
	if direction == Out {
		word := talk.Request{Kind: talk.Word, Set: true, Work: talk.Work{Size: 8}, Value: before}
		if _, err := t.Ask(ctx, word); err != nil {
			return 0, 0, err
		}
		if took, wrong, err = t.Atomics(ctx, w, before); err != nil {
			return 0, 0, err
		}
		word.Set = false
		a, err := t.Ask(ctx, word)
		if err != nil {
			return took, 0, err
		}
		after = a.Extra
	} else {
		if err := peer.WriteWord(t.Buf, 0, before); err != nil {
			return 0, 0, err
		}
		a, err := t.Ask(ctx, talk.Request{Kind: talk.Run, Op: talk.Atomic, Work: w, Value: before})
		if err != nil {
			return 0, 0, err
		}
		took, wrong = time.Duration(a.Value), a.Extra
		if after, err = peer.ReadWord(t.Buf, 0); err != nil {
			return took, 0, err
		}
	}
	switch {
	case wrong > 0:
		return took, 0, fmt.Errorf("%w: %d of %d atomics returned another number than was there", ErrWrong, wrong, w.Count+2)
	case after != ^before:
		return took, 0, fmt.Errorf("%w: the word is %#x after the atomics, not %#x", ErrWrong, after, ^before)
	}
	return took, 8 * int64(w.Count+3), nil // each result, and the word
}
