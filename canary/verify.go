// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Options tune a verification. The zero value runs every case with a random
// seed.
type Options struct {
	// Seed determines bytes and ranges; 0 means a random one. The report has
	// it.
	Seed uint64
	// Cases are the names of the cases to run (CaseNames); all if it is empty.
	Cases []string
	// Guard is the number of bytes on each side of a transfer, inside of the
	// buffer, that must not change; 0 means 256 KiB.
	Guard int64
	// Chunk is the largest transfer in bytes; 0 means 1 MiB. Verify allocates
	// about twice as much host memory.
	Chunk int64
	// Stall is the longest time of the transfer of one chunk; 0 means 30 s.
	Stall time.Duration
	// Policy chooses the registration route.
	Policy ibvfd.RoutePolicy
	// Progress, if set, is called between chunks with the numbers of bytes that
	// were moved so far and that are to be moved in all.
	Progress func(done, total int64)
	// Registered, if set, is called once, after the first transfers through the
	// first registration, which still exists. The report describes the
	// registration.
	Registered func(*Report)
	// Witness, if set, is called once, after Registered, while the same
	// registration exists. The NIC has then written nonce, which is new random
	// bytes, into the middle of the buffer, and Witness may look for them by
	// another program, or by another view of the memory. If it returns an
	// error, the case fails. Verify does not call Witness if the first case is
	// one of refusals, or registers fewer bytes than a nonce has.
	Witness func(ctx context.Context, nonce []byte) error

	// Where in a page the buffer begins: memory that a caller owns need not
	// be aligned, and an MR's IOVA must agree with it.
	pageOffset uint64
}

func (o *Options) setDefaults() {
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	if o.Guard == 0 {
		o.Guard = 256 << 10
	}
	if o.Chunk == 0 {
		o.Chunk = 1 << 20
	}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
}

// Bounds of Options.Chunk: the refusal cases need a few hundred bytes, and
// every RC transport carries 1 GiB in one message.
const (
	minChunk = 1 << 10
	maxChunk = 1 << 30
)

// Verify registers buf with c in several ways and proves, byte by byte, that
// each registration names the right memory. The buffer's contents are lost.
//
// It makes a PD, a CQ, a loopback pair and MRs of its own on c, and closes all
// of them before it returns. It holds buf meanwhile.
//
// The report is never nil, and has the results up to the end of the run. The
// error is nil if each case has passed, or had nothing to check in a buffer of
// this size, as the report says. It is a [*Failure] if a case has failed,
// or, with [ErrNothingChecked], if no case had anything to check. If ctx ends,
// Verify returns ctx's error within the time of one chunk. If an option is out of range,
// or the PD or the queue pairs cannot be made, no case runs.
func Verify(ctx context.Context, c *ibvfd.Context, buf *gpualloc.Buffer, opt Options) (rep *Report, err error) {
	opt.setDefaults()
	rep = &Report{
		Spec: buf.Spec(), Exporter: buf.Exporter(), Driver: buf.Driver(), Device: buf.Device(),
		NIC: c.Name(), Size: buf.Size(), Seed: opt.Seed,
	}
	if opt.Chunk < minChunk || opt.Chunk > maxChunk || opt.Guard < 0 || opt.Stall < 0 {
		return rep, fmt.Errorf("canary: options out of range: chunk %d (%d to %d), guard %d, stall %v", opt.Chunk, minChunk, maxChunk, opt.Guard, opt.Stall)
	}
	if segments := buf.Segments(); len(segments) > 0 {
		opt.pageOffset = uint64(segments[0].Offset) % uint64(os.Getpagesize())
	}
	w, err := openRDMA(c, buf, opt)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	return rep, run(ctx, w, buf, opt, rep)
}

// run carries the plans out.
func run(ctx context.Context, w wire, v View, opt Options, rep *Report) error {
	size := v.Size()
	if size < minChunk {
		return fmt.Errorf("canary: a buffer of %d bytes is too small: at least %d", size, minChunk)
	}
	list, err := choose(plans(size, int64(os.Getpagesize()), opt.Seed), opt.Cases)
	if err != nil {
		return err
	}
	s := &session{wire: w, view: v, opt: opt, rep: rep}
	for i := range list {
		list[i].iova += opt.pageOffset
		if list[i].skipped == "" {
			s.total += list[i].volume()
		}
	}
	start := time.Now()
	defer func() { rep.Elapsed = time.Since(start) }()

	var first error
	for i := range list {
		p := &list[i]
		c, err, leftover := s.run(ctx, p)
		rep.Cases = append(rep.Cases, c)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), leftover)
		}
		if leftover != nil {
			return leftover
		}
		if err != nil && first == nil {
			first = err
		}
		// A broken link fails every later case as well, slowly; and what
		// does not register as a whole is not worth cutting up.
		var broken *TransferError
		if errors.As(err, &broken) || err != nil && p.name == CaseWhole && c.Mismatch == nil {
			s.notRun(list[i+1:])
			break
		}
	}
	if first == nil && !slices.ContainsFunc(rep.Cases, func(c Case) bool { return c.OK }) {
		first = ErrNothingChecked
	}
	if first != nil {
		return &Failure{Report: rep, Err: first}
	}
	rep.OK = true
	return nil
}

// session is one run's state.
type session struct {
	wire        wire
	view        View
	opt         Options
	rep         *Report
	done, total int64
	generation  int
	used        []pattern // of earlier passes, newest last
	scratch     []byte
}

func (s *session) notRun(rest []plan) {
	for _, p := range rest {
		s.rep.Cases = append(s.rep.Cases, Case{
			Name: p.name, Offset: p.mr.off, Length: p.mr.len, IOVA: p.iova, NotRun: true, Detail: "not run: the link or the registration is broken",
		})
	}
}

// run is one case: register, check, deregister. leftover is what went wrong in
// cleaning up.
func (s *session) run(ctx context.Context, p *plan) (c Case, err, leftover error) {
	c = Case{Name: p.name, Offset: p.mr.off, Length: p.mr.len, IOVA: p.iova}
	if p.skipped != "" {
		c.Skipped, c.Detail = true, p.skipped
		return c, nil, nil
	}
	r, err := s.wire.register(p.mr, p.iova, p.access)
	if err == nil {
		first := s.rep.MRs == 0
		if first {
			r.describe(s.rep)
		}
		err = s.check(ctx, p, r, &c)
		if first && s.opt.Registered != nil {
			s.opt.Registered(s.rep)
		}
		if first && err == nil && p.refuse == 0 && p.mr.len >= nonceSize && s.opt.Witness != nil {
			err = s.plant(ctx, p.mr, r)
		}
		// An MR must outlive the transfers that use it. If they cannot be
		// ended, the wire's own close tries once more.
		if leftover = s.wire.settle(); leftover == nil {
			leftover = r.close()
		}
	}
	if err != nil {
		c.Detail = err.Error()
		errors.As(err, &c.Mismatch)
	}
	c.OK = err == nil
	return c, err, leftover
}

// nonceSize is more than a pattern repeats by chance.
const nonceSize = 32

// plant makes the NIC write a nonce and calls the witness.
func (s *session) plant(ctx context.Context, mr span, r registered) error {
	nonce := make([]byte, nonceSize)
	_, _ = crand.Read(nonce) // never fails
	c := span{mr.off + mr.len/2&^(nonceSize-1), nonceSize}
	at := localAt(c.off)
	copy(s.wire.src()[at:], nonce)
	if _, err := s.wire.move(ctx, opWrite, r, c.off, at, nonceSize); err != nil {
		return err
	}
	return s.opt.Witness(ctx, nonce)
}

func (s *session) check(ctx context.Context, p *plan, r registered, c *Case) error {
	if p.refuse != 0 {
		return s.checkRefused(ctx, p, r, c)
	}
	before := s.rep.VerifiedBytes
	var wrote, read rate
	for _, x := range p.moves {
		if err := s.checkRange(ctx, x, r, &wrote, &read); err != nil {
			return err
		}
	}
	if p.name == CaseWhole {
		s.rep.WriteRate, s.rep.ReadRate = wrote.perSecond(), read.perSecond()
	}
	c.Detail = fmt.Sprintf("%d range(s), %d bytes verified", len(p.moves), s.rep.VerifiedBytes-before)
	return nil
}

// rate adds bytes and the time they took.
type rate struct {
	bytes int64
	time  time.Duration
}

func (r rate) perSecond() float64 {
	if r.time <= 0 {
		return 0
	}
	return float64(r.bytes) / r.time.Seconds()
}

// next is the pattern of a new pass.
func (s *session) next() pattern {
	s.generation++
	p := newPattern(s.opt.Seed, s.generation)
	s.used = append(s.used, p)
	return p
}

// older are the patterns of a few passes before the last.
func (s *session) older() []pattern {
	u := s.used[:max(0, len(s.used)-1)]
	return u[max(0, len(u)-8):]
}

// movesPerRange is how often checkRange transfers each range.
const movesPerRange = 3

// checkRange proves one range in both directions.
func (s *session) checkRange(ctx context.Context, x span, r registered, wrote, read *rate) error {
	p := s.next()
	window := x.widen(s.opt.Guard, s.view.Size())
	if err := s.fill(ctx, window, p.complement()); err != nil {
		return err
	}
	if err := s.write(ctx, x, r, p, wrote); err != nil {
		return err
	}
	if err := s.compare(ctx, "the buffer after an RDMA WRITE", x, p, p); err != nil {
		return err
	}
	if err := s.compareGuards(ctx, window, x, p); err != nil {
		return err
	}
	if err := s.read(ctx, "RDMA READ of what an RDMA WRITE wrote", x, r, p, read); err != nil {
		return err
	}
	// Bytes that never passed the NIC before.
	q := s.next()
	if err := s.fill(ctx, x, q); err != nil {
		return err
	}
	if err := s.read(ctx, "RDMA READ of what the CPU wrote", x, r, q, read); err != nil {
		return err
	}
	return s.compare(ctx, "the buffer after an RDMA READ", x, q, q)
}

// localAt is where in the host buffers a transfer of the bytes at off begins:
// behind a guard, at varying alignment.
func localAt(off int64) int { return hostGuard + int(off%hostGuard) }

const (
	hostGuard = 64
	// hostSlack is what the host buffers have beyond a chunk.
	hostSlack = 3 * hostGuard
)

// chunks calls f for x in pieces of at most a chunk, until ctx ends.
func (s *session) chunks(ctx context.Context, x span, f func(span) error) error {
	for off := x.off; off < x.end(); off += s.opt.Chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(span{off, min(s.opt.Chunk, x.end()-off)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) write(ctx context.Context, x span, r registered, p pattern, sum *rate) error {
	return s.chunks(ctx, x, func(c span) error {
		at := localAt(c.off)
		p.fill(s.wire.src()[at:at+int(c.len)], c.off)
		return s.move(ctx, opWrite, r, c, at, sum)
	})
}

// read fetches x, compares it with p, and checks that the host memory beside the
// READ's target has not changed.
func (s *session) read(ctx context.Context, what string, x span, r registered, p pattern, sum *rate) error {
	guard := p.complement()
	data := newComparer(what, p, p)
	around := newComparer("host memory beside the target of an "+what+" (offsets in that memory)", guard, guard)
	err := s.chunks(ctx, x, func(c span) error {
		dst := s.wire.dst()
		at := localAt(c.off)
		end := at + int(c.len)
		guard.fill(dst[at:end], c.off)
		guard.fill(dst[at-hostGuard:at], int64(at-hostGuard))
		guard.fill(dst[end:end+hostGuard], int64(end))
		if err := s.move(ctx, opRead, r, c, at, sum); err != nil {
			return err
		}
		data.check(dst[at:end], c.off)
		around.check(dst[at-hostGuard:at], int64(at-hostGuard))
		around.check(dst[end:end+hostGuard], int64(end))
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(s.judge(data), s.judge(around))
}

func (s *session) move(ctx context.Context, o op, r registered, c span, at int, sum *rate) error {
	took, err := s.wire.move(ctx, o, r, c.off, at, int(c.len))
	if err != nil {
		return err
	}
	sum.bytes += c.len
	sum.time += took
	s.done += c.len
	s.opt.Progress(s.done, s.total)
	return nil
}

// fill writes the pattern through the view.
func (s *session) fill(ctx context.Context, x span, p pattern) error {
	if s.scratch == nil {
		s.scratch = make([]byte, stride)
	}
	for off := x.off; off < x.end(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := s.scratch[:min(stride, x.end()-off)]
		p.fill(b, off)
		if _, err := s.view.WriteAt(b, off); err != nil {
			return fmt.Errorf("write the buffer at offset %#x: %w", off, err)
		}
		off += int64(len(b))
	}
	return nil
}

// compare checks x through the view: it must hold want, after a pass of moved.
func (s *session) compare(ctx context.Context, what string, x span, want, moved pattern) error {
	c := newComparer(what, want, moved)
	if err := c.view(ctx, s.view, x); err != nil {
		return err
	}
	return s.judge(c)
}

// compareGuards checks what surrounds x in window.
func (s *session) compareGuards(ctx context.Context, window, x span, moved pattern) error {
	return errors.Join(
		s.compare(ctx, "guard before the range", span{window.off, x.off - window.off}, moved.complement(), moved),
		s.compare(ctx, "guard behind the range", span{x.end(), window.end() - x.end()}, moved.complement(), moved))
}

// judge counts the bytes that a comparison verified, and returns its mismatch.
func (s *session) judge(c *comparer) error {
	s.rep.VerifiedBytes += c.verified
	m := c.mismatch(s.older())
	if m == nil {
		return nil
	}
	if m.Origin != OriginShifted {
		m.LandedAt = landed(s.view, m.Expected, m.Offset)
	}
	return m
}
