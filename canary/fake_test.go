// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// memory is a buffer in ordinary memory.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > m.Size() {
		return 0, fmt.Errorf("offset %d out of range", off)
	}
	if n := copy(p, m[off:]); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

func (m memory) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > m.Size() {
		return 0, fmt.Errorf("range %d+%d out of range", off, len(p))
	}
	return copy(m[off:], p), nil
}

// fakeWire moves bytes by copy, and has the faults that its fields say: the
// checks' own tests, not a stand-in for a NIC.
type fakeWire struct {
	mem       memory
	out, in   []byte
	open      int
	moves     int
	beforeErr func(o op, off int64, n int) error // an error completion instead

	// fault replaces the copying of an allowed transfer.
	fault func(w *fakeWire, o op, off int64, at, n int)
	// lax replaces the refusal of a forbidden one.
	lax func(w *fakeWire, o op, off int64, at, n int) error
}

type fakeRegion struct {
	w      *fakeWire
	s      span
	access ibvfd.Access
	closed bool
}

func newFakeWire(size int64, opt Options) *fakeWire {
	n := opt.Chunk + hostSlack
	return &fakeWire{mem: make(memory, size), out: make([]byte, n), in: make([]byte, n)}
}

func (w *fakeWire) src() []byte   { return w.out }
func (w *fakeWire) dst() []byte   { return w.in }
func (w *fakeWire) settle() error { return nil }

func (w *fakeWire) register(s span, _ uint64, access ibvfd.Access) (registered, error) {
	w.open++
	return &fakeRegion{w: w, s: s, access: access}, nil
}

func (r *fakeRegion) describe(rep *Report) { rep.MRs = 1 }

func (r *fakeRegion) close() error {
	if !r.closed {
		r.closed = true
		r.w.open--
	}
	return nil
}

func (w *fakeWire) copy(o op, off int64, at, n int) {
	off = min(max(off, 0), w.mem.Size())
	if o == opWrite {
		copy(w.mem[off:], w.out[at:at+n])
	} else {
		copy(w.in[at:at+n], w.mem[off:])
	}
}

func (w *fakeWire) move(ctx context.Context, o op, r registered, off int64, at, n int) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w.moves++
	f := r.(*fakeRegion)
	if w.beforeErr != nil {
		if err := w.beforeErr(o, off, n); err != nil {
			return 0, &TransferError{Op: o.String(), NIC: "fake0", Offset: off, Length: int64(n), Remedy: remedy(err, time.Second), Err: err}
		}
	}
	allowed := !f.closed && off >= f.s.off && off+int64(n) <= f.s.end() && (o == opRead || f.access&ibvfd.AccessRemoteWrite != 0)
	switch {
	case !allowed && w.lax != nil:
		return time.Microsecond, w.lax(w, o, off, at, n)
	case !allowed:
		return 0, &TransferError{Op: o.String(), Err: &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}}
	case w.fault != nil:
		w.fault(w, o, off, at, n)
	default:
		w.copy(o, off, at, n)
	}
	return time.Microsecond, nil
}

var errFake = errors.New("fake")
