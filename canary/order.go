// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// OrderOptions tune [Order].
type OrderOptions struct {
	// RelaxedFlag gives the flag relaxed ordering, too. Then it may overtake
	// the data, and applications that wait for it are wrong.
	RelaxedFlag bool
	// Rounds is how many flags are written; 0 means 64.
	Rounds int
	// Stall is how long one round may take; 0 means 30 s.
	Stall time.Duration
}

// Ordering counts the flags that arrived, and those that arrived before their data.
type Ordering struct {
	Rounds int   // flags that were seen, and the data looked at
	Early  int   // of them, flags that were there before all of their data
	Offset int64 // of the first byte that was missing, in the buffer
}

// String says how many flags arrived before their data.
func (o Ordering) String() string {
	if o.Early == 0 {
		return fmt.Sprintf("%d flags, none before its data", o.Rounds)
	}
	return fmt.Sprintf("%d of %d flags were there before their data, first at offset %#x", o.Early, o.Rounds, o.Offset)
}

// orderData is how much data a flag is about: a few packets of any MTU.
const orderData = 16 << 10

// Order writes data with relaxed ordering, and behind it in the same queue pair a
// flag, and looks at the data through the buffer's own view as soon as the flag is
// seen there. That is how applications wait for RDMA WRITEs without a completion at
// the target; PCI Express promises it as long as the flag is not relaxed. The
// buffer's contents are lost.
//
// It makes and closes its own PD, CQ, loopback pair and MRs on c. The error is
// ctx's if that ended, a *TransferError, a *Mismatch if data never arrived, or what
// kept the buffer from being registered.
func Order(ctx context.Context, c *ibvfd.Context, buf *gpualloc.Buffer, opt OrderOptions) (o Ordering, err error) {
	page := int64(os.Getpagesize())
	flag := (buf.Size() - 8) / page * page
	if opt.Rounds < 0 || opt.Stall < 0 {
		return o, fmt.Errorf("canary: options out of range: %d rounds, stall %v", opt.Rounds, opt.Stall)
	}
	if flag < orderData {
		return o, fmt.Errorf("canary: a buffer of %d bytes is too small for %d of data and a flag on a page of its own", buf.Size(), orderData)
	}
	wire := Options{Chunk: orderData + 8, Stall: opt.Stall}
	wire.setDefaults()
	if segments := buf.Segments(); len(segments) > 0 {
		wire.pageOffset = uint64(segments[0].Offset) % uint64(page)
	}
	w, err := openRDMA(c, buf, wire)
	if err != nil {
		return o, err
	}
	w.depth = 2
	defer func() { err = errors.Join(err, w.close()) }()
	const bulk = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite | ibvfd.AccessRelaxedOrdering
	strict := bulk
	if !opt.RelaxedFlag {
		strict &^= ibvfd.AccessRelaxedOrdering
	}
	data, err := w.onePart(span{0, orderData}, wire.pageOffset, bulk)
	if err != nil {
		return o, err
	}
	mark, err := w.onePart(span{flag, 8}, wire.pageOffset, strict)
	if err != nil {
		return o, err
	}
	return order(ctx, buf, flag, opt, w.src(), func(ctx context.Context) error { return w.writeTwo(ctx, data, mark) })
}

// onePart registers what must not be in pieces: each would be a WRITE of its own.
func (w *rdma) onePart(s span, iova uint64, access ibvfd.Access) (part, error) {
	r, err := w.register(s, iova, access)
	if err != nil {
		return part{}, err
	}
	parts := r.(*rdmaRegion).parts
	if len(parts) > 1 {
		return part{}, fmt.Errorf("canary: %v lies in %d pieces of the buffer", s, len(parts))
	}
	return parts[0], nil
}

// order fills src with a round's data and flag, has send write both, and watches
// the view meanwhile.
func order(ctx context.Context, v View, flag int64, opt OrderOptions, src []byte, send func(context.Context) error) (o Ordering, err error) {
	rounds := opt.Rounds
	if rounds == 0 {
		rounds = 64
	}
	if _, err := v.WriteAt(make([]byte, 8), flag); err != nil {
		return o, err
	}
	got := make([]byte, orderData)
	for round := range uint64(rounds) {
		pattern := newPattern(round+1, 0)
		pattern.fill(src[:orderData], 0)
		binary.LittleEndian.PutUint64(src[orderData:], round+1)
		sent := make(chan error, 1)
		go func() { sent <- send(ctx) }()
		seen, missing, err := await(v, flag, round+1, sent)
		if seen {
			// The flag was there: so must be the data.
			_, err = v.ReadAt(got, 0)
		}
		if err := errors.Join(<-sent, err); err != nil {
			return o, err
		}
		if !seen {
			return o, missing
		}
		o.Rounds++
		if m := differ("data of which the flag was seen", pattern, got); m != nil {
			if o.Early == 0 {
				o.Offset = m.Offset
			}
			o.Early++
		}
		// Completed: it is there now, whatever came first.
		if _, err := v.ReadAt(got, 0); err != nil {
			return o, err
		}
		if m := differ("what RDMA WRITE wrote", pattern, got); m != nil {
			return o, m
		}
	}
	return o, nil
}

// await looks at the flag until it has the value. If sending has ended and the flag
// does not have it, await returns the bytes that are there. The result of sending stays
// in sent.
func await(v View, flag int64, value uint64, sent chan error) (seen bool, missing *Mismatch, _ error) {
	want, got := make([]byte, 8), make([]byte, 8)
	binary.LittleEndian.PutUint64(want, value)
	for ended := false; ; {
		if _, err := v.ReadAt(got, flag); err != nil {
			return false, nil, err
		}
		if bytes.Equal(got, want) {
			return true, nil, nil
		}
		if ended {
			return false, &Mismatch{
				What: "a flag that RDMA WRITE wrote", Offset: flag, Last: flag + 7, Count: 8,
				Expected: want, Got: got, Origin: OriginUnknown, LandedAt: -1,
			}, nil
		}
		select {
		case err := <-sent:
			sent <- err
			ended = true
		default:
		}
	}
}

// differ compares bytes from the start of the buffer with a pattern.
func differ(what string, want pattern, got []byte) *Mismatch {
	c := newComparer(what, want, want)
	c.check(got, 0)
	return c.mismatch(nil)
}

// writeTwo posts two WRITEs at once, the flag behind the data, and waits for the
// completion of the flag.
func (w *rdma) writeTwo(ctx context.Context, data, flag part) error {
	qp, err := w.connect(opWrite)
	if err != nil {
		return err
	}
	w.id++
	local := w.out.mr
	wr := []ibvfd.SendWR{
		{ID: w.id, Op: ibvfd.OpWrite, RemoteAddr: data.iova, RKey: data.rkey,
			SGE: []ibvfd.SGE{{Addr: local.IOVA(), Length: orderData, LKey: local.LKey()}}},
		{ID: w.id, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, RemoteAddr: flag.iova, RKey: flag.rkey,
			SGE: []ibvfd.SGE{{Addr: local.IOVA() + orderData, Length: 8, LKey: local.LKey()}}},
	}
	_, err = w.post(ctx, qp, wr, TransferError{Op: opWrite.String(), NIC: w.ctx.Name(), Offset: flag.off, Length: 8, RKey: flag.rkey})
	return err
}
