// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/region"
)

// rdma is the wire over a real device: a PD, a CQ, two pieces of host memory
// and loopback pairs that are made when needed and again after an error.
type rdma struct {
	ctx *ibvfd.Context
	buf *gpualloc.Buffer
	opt Options

	depth      int // work requests that are posted at once
	pd         *ibvfd.PD
	cq         *ibvfd.CQ
	out, in    *hostMR
	pairs      [opRead + 1]pair // by direction
	underWay   bool             // a transfer was posted whose completion was not seen
	id         uint64
	wc         []ibvfd.WC
	wr         []ibvfd.SendWR
	sge        []ibvfd.SGE
	registered []*rdmaRegion
}

// hostMR is registered host memory.
type hostMR struct {
	mem *hostmem.Buf
	mr  *ibvfd.MR
}

func openRDMA(c *ibvfd.Context, buf *gpualloc.Buffer, opt Options) (w *rdma, err error) {
	w = &rdma{ctx: c, buf: buf, opt: opt, depth: 1, wc: make([]ibvfd.WC, 4), wr: make([]ibvfd.SendWR, 1), sge: make([]ibvfd.SGE, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.pd, err = c.AllocPD(); err != nil {
		return w, err
	}
	if w.cq, err = c.CreateCQ(cqDepth); err != nil {
		return w, err
	}
	size := int(min(opt.Chunk, buf.Size())) + hostSlack
	if w.out, err = newHostMR(w.pd, size, ibvfd.AccessLocalWrite); err != nil {
		return w, err
	}
	w.in, err = newHostMR(w.pd, size, ibvfd.AccessLocalWrite)
	return w, err
}

// cqDepth holds the completions of both ends, flushed ones included.
const cqDepth = 16

func newHostMR(pd *ibvfd.PD, size int, access ibvfd.Access) (*hostMR, error) {
	mem, err := hostmem.Alloc(size)
	if err != nil {
		return nil, err
	}
	mr, err := pd.RegMR(ibvfd.MRAttr{
		Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: uint64(size), Access: access, Owner: mem,
	})
	if err != nil {
		if refused := (*ibvfd.RegError)(nil); errors.As(err, &refused) { // the user does not know of this memory
			refused.Detail = strings.TrimSuffix(fmt.Sprintf("of the test's own %d bytes at the other end, in host memory: %s", size, refused.Detail), ": ")
		}
		return nil, errors.Join(err, mem.Close())
	}
	return &hostMR{mem, mr}, nil
}

func (h *hostMR) close() error {
	if h == nil {
		return nil
	}
	if err := h.mr.Close(); err != nil {
		return err // the NIC may still know the memory
	}
	return h.mem.Close()
}

func (w *rdma) src() []byte { return w.out.mem.Bytes() }
func (w *rdma) dst() []byte { return w.in.mem.Bytes() }

// close is idempotent. If one resource does not close, it closes the others all the
// same.
func (w *rdma) close() error {
	err := w.dropPairs()
	for _, r := range slices.Backward(w.registered) {
		err = errors.Join(err, r.close())
	}
	w.registered = nil
	err = errors.Join(err, w.out.close(), w.in.close())
	w.out, w.in = nil, nil
	if w.cq != nil {
		err = errors.Join(err, w.cq.Close())
	}
	if w.pd != nil {
		err = errors.Join(err, w.pd.Close())
	}
	return err
}

// pair is a queue pair and its peer. Each direction has its own. On one pair
// for both, rxe of Linux 6.12 on a busy machine got stuck about once in a
// hundred runs, always in the first WRITE after a long READ: without an error
// completion, while the NIC's duplicate_request counter went up with every
// retry. Two pairs prove as much of a registration as one.
type pair struct{ qp, peer *ibvfd.QP }

// dropPairs destroys the queue pairs: after it the NIC touches none of their
// memory.
func (w *rdma) dropPairs() error {
	var err error
	for o, p := range w.pairs {
		var failed error
		for _, q := range []*ibvfd.QP{p.qp, p.peer} {
			if q != nil {
				failed = errors.Join(failed, q.Close())
			}
		}
		if failed == nil { // what stayed open is closed again by the next call
			w.pairs[o] = pair{}
		}
		err = errors.Join(err, failed)
	}
	w.underWay = w.underWay && err != nil
	return err
}

func (w *rdma) settle() error {
	if w.underWay {
		return w.dropPairs()
	}
	return nil
}

// connect makes and connects the direction's pair, unless it is there.
func (w *rdma) connect(o op) (_ *ibvfd.QP, err error) {
	p := &w.pairs[o]
	if p.qp != nil {
		return p.qp, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.dropPairs())
		}
	}()
	for _, q := range []**ibvfd.QP{&p.qp, &p.peer} {
		*q, err = w.pd.CreateQP(ibvfd.QPAttr{
			Type: ibvfd.RC, SendCQ: w.cq, RecvCQ: w.cq, SendDepth: w.depth, RecvDepth: 1, SendSGE: 1, RecvSGE: 1,
		})
		if err != nil {
			return nil, err
		}
	}
	if err = p.qp.Connect(p.peer.Local(), patient); err != nil {
		return nil, err
	}
	return p.qp, p.peer.Connect(p.qp.Local(), patient)
}

// patient waits two seconds for an answer, and about nine in all: a software NIC
// on a busy machine can be late, and after a retry that was not needed rxe of
// Linux 6.12 now and then answers nothing any more.
var patient = ibvfd.ConnectAttr{Timeout: 19, RetryCount: 3}

// rdmaRegion keeps what addressing needs, also after deregistration.
type rdmaRegion struct {
	w     *rdma
	reg   *region.Region
	parts []part
	time  time.Duration
	route ibvfd.Route
	inode uint64
}

// part is what one MR of a region covers.
type part struct {
	span // of the buffer
	iova uint64
	lkey uint32
	rkey uint32
	mrn  *uint32
}

func (w *rdma) register(s span, iova uint64, access ibvfd.Access) (registered, error) {
	var segments []region.Segment
	for _, seg := range w.buf.Segments() {
		segments = append(segments, region.Segment{Buf: seg.Buf, Offset: uint64(seg.Offset), Length: uint64(seg.Size), Addr: seg.Addr})
	}
	reg, err := region.Register(region.Attr{
		Segments: segments, Offset: uint64(s.off), Length: uint64(s.len), IOVA: iova,
		Access: access, Owner: w.buf, Policy: w.opt.Policy, Timed: true,
	}, w.pd)
	if err != nil {
		return nil, err
	}
	r := &rdmaRegion{w: w, reg: reg, inode: segments[0].Buf.Inode()}
	off := s.off
	for _, mr := range reg.MRs(w.pd) {
		id := mr.ID()
		p := part{span: span{off, int64(mr.Length())}, iova: mr.IOVA(), lkey: mr.LKey(), rkey: mr.RKey()}
		if id.NumberKnown {
			p.mrn = &id.Number
		}
		r.parts = append(r.parts, p)
		r.time += mr.RegTime()
		r.route = mr.Route()
		off = p.end()
	}
	w.registered = append(w.registered, r)
	if off != s.end() {
		return nil, errors.Join(fmt.Errorf("canary: the MRs of %v cover up to %#x only", s, off), r.close())
	}
	return r, nil
}

func (r *rdmaRegion) close() error { return r.reg.Close() }

func (r *rdmaRegion) describe(rep *Report) {
	first := r.parts[0]
	rep.Inode, rep.Route, rep.MRs = r.inode, r.route, len(r.parts)
	rep.LKey, rep.RKey, rep.MRN = first.lkey, first.rkey, first.mrn
	rep.RegTime = r.time
}

// covering is the part that begins last at or before off; the first one for an
// offset before all of them.
func (r *rdmaRegion) covering(off int64) part {
	for _, p := range slices.Backward(r.parts) {
		if p.off <= off {
			return p
		}
	}
	return r.parts[0]
}

func (w *rdma) move(ctx context.Context, o op, r registered, off int64, at, n int) (took time.Duration, _ error) {
	qp, err := w.connect(o)
	if err != nil {
		return 0, err
	}
	rr := r.(*rdmaRegion)
	for n > 0 {
		p := rr.covering(off)
		piece := n
		// Within the region a transfer is cut where one MR ends and the next
		// begins; what lies outside goes out whole, to be refused.
		if left := p.end() - off; left > 0 && left < int64(n) && p.end() < rr.parts[len(rr.parts)-1].end() {
			piece = int(left)
		}
		t, err := w.one(ctx, qp, o, p, off, at, piece)
		took += t
		if err != nil {
			return took, err
		}
		off, at, n = off+int64(piece), at+piece, n-piece
	}
	return took, nil
}

// one posts a single work request and waits for its completion.
func (w *rdma) one(ctx context.Context, qp *ibvfd.QP, o op, p part, off int64, at, n int) (time.Duration, error) {
	wr := &w.wr[0]
	w.id++
	local := w.out
	*wr = ibvfd.SendWR{ID: w.id, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: w.sge, RKey: p.rkey}
	if o == opRead {
		local, wr.Op = w.in, ibvfd.OpRead
	}
	w.sge[0] = ibvfd.SGE{Addr: local.mr.IOVA() + uint64(at), Length: uint32(n), LKey: local.mr.LKey()}
	wr.RemoteAddr = p.iova + uint64(off-p.off)
	return w.post(ctx, qp, w.wr, TransferError{Op: o.String(), NIC: w.ctx.Name(), Offset: off, Length: int64(n), RKey: p.rkey})
}

// post posts work requests, the last of which is signaled and has the number
// w.id, and waits for its completion.
func (w *rdma) post(ctx context.Context, qp *ibvfd.QP, wr []ibvfd.SendWR, what TransferError) (time.Duration, error) {
	fail := func(err error) error {
		what.Remedy, what.Err = remedy(err, w.opt.Stall), err
		return errors.Join(&what, w.dropPairs())
	}
	limited, cancel := context.WithTimeoutCause(ctx, w.opt.Stall, ErrStalled)
	defer cancel()
	start := time.Now()
	if _, err := qp.PostSend(wr); err != nil {
		return 0, fail(err)
	}
	w.underWay = true
	for {
		got, err := w.cq.PollUntil(limited, w.wc)
		took := time.Since(start)
		if err != nil {
			if ctx.Err() != nil {
				return took, errors.Join(ctx.Err(), w.dropPairs())
			}
			if limited.Err() != nil {
				err = ErrStalled
			}
			return took, fail(err)
		}
		for _, c := range w.wc[:got] {
			if c.ID != w.id {
				continue // flushed from a pair that failed before
			}
			w.underWay = false
			if c.Status != ibvfd.WCSuccess {
				return took, fail(&ibvfd.WCError{Status: c.Status, VendorErr: c.VendorErr})
			}
			return took, nil
		}
	}
}
