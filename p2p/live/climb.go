// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/placement"
)

// climb is one proof while it runs.
type climb struct {
	*Prover
	pair  p2p.Pair
	proof *p2p.Proof
	buf   *gpualloc.Buffer
	inode uint64

	watcher *p2p.Watcher

	without, before int64 // bytes of this process in the GPU's memory, without and with the buffer
	uncountable     error // why these two are not known
}

func (c *climb) step(r p2p.Rung, result p2p.Result, format string, args ...any) {
	c.proof.Steps[r] = p2p.Step{Result: result, Detail: fmt.Sprintf(format, args...)}
}

// open ends a proof with an unknown outcome.
func (c *climb) open(r p2p.Rung, result p2p.Result, err error) {
	c.step(r, result, "%v", err)
	c.proof.Why = err.Error()
}

func (c *climb) run(ctx context.Context) {
	if ctx.Err() != nil {
		c.proof.Why = context.Cause(ctx).Error()
		return
	}
	if !c.allocate(ctx) {
		return
	}
	nic, err := c.nic(c.pair.NIC.Name)
	switch {
	case err != nil:
		c.open(p2p.RungRegister, p2p.ResultUnknown, err)
	case c.still != nil:
		c.register(ctx, nic)
	default:
		c.transfer(ctx, nic)
	}
	c.release()
}

// allocate carries out the first two rungs: the allocator also exports the buffer. It returns false if
// there is no buffer.
func (c *climb) allocate(ctx context.Context) bool {
	alloc, err := c.allocator(c.pair.GPU)
	if err == nil {
		c.without, c.uncountable = c.count() // now: the allocator has opened the GPU
		c.buf, err = alloc.Alloc(ctx, c.opt.Size, gpualloc.Options{Name: "p2pcheck"})
	}
	if err != nil {
		c.refusedMemory(ctx, err)
		return false
	}
	first := c.buf.Segments()[0].Buf
	c.inode = first.Inode()
	exporter := c.buf.Exporter()
	if info, err := first.Info(); err == nil {
		exporter = info.Exporter
	}
	if c.uncountable == nil {
		c.before, c.uncountable = c.count()
	}
	c.proof.Memory, c.proof.Size = c.buf.Kind().String(), c.buf.Size()
	c.step(p2p.RungAllocate, p2p.ResultPass, "%d bytes by %s", c.buf.Size(), c.buf.Spec())
	c.step(p2p.RungExport, p2p.ResultPass, "a dma-buf of %s", exporter)
	return true
}

// refusedMemory records why there is no buffer.
func (c *climb) refusedMemory(ctx context.Context, err error) {
	result := p2p.ResultFail
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil || errors.Is(err, gpualloc.ErrUnavailable) || errors.Is(err, fs.ErrPermission) || errors.Is(err, failure.ErrLimit) {
		result = p2p.ResultUnknown
	}
	var op *failure.Error
	if errors.As(err, &op) && exports[op.Op] {
		c.step(p2p.RungAllocate, p2p.ResultPass, "the driver gave memory")
		c.open(p2p.RungExport, result, err)
		return
	}
	c.open(p2p.RungAllocate, result, err)
}

// exports are the calls that export allocated memory, by the Op of their errors.
var exports = map[string]bool{
	"DRM_IOCTL_PRIME_HANDLE_TO_FD": true, "cuMemGetHandleForAddressRange": true,
	"hsa_amd_portable_export_dmabuf": true, "zeMemGetAllocProperties": true,
}

// transfer registers the buffer, and moves and compares its bytes.
func (c *climb) transfer(ctx context.Context, nic *ibvfd.Context) {
	if c.tracer != nil {
		c.tracer.Pending() // drop earlier refusals
	}
	rep, err := canary.Verify(ctx, nic, c.buf, canary.Options{
		Cases: []string{canary.CaseWhole}, Stall: c.opt.Limit / 2,
		Registered: func(rep *canary.Report) {
			c.recount()
			c.place(ctx, placement.Key{Device: rep.NIC, LKey: rep.LKey, Inode: rep.Inode})
		},
	})
	c.proof.Verified, c.proof.WriteRate, c.proof.ReadRate = rep.VerifiedBytes, rep.WriteRate, rep.ReadRate
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if rep.MRs == 0 {
		c.unregistered(ctx, err)
		return
	}
	c.step(p2p.RungRegister, p2p.ResultPass, "by the %s", rep.Route)
	c.proof.Steps[p2p.RungWrite], c.proof.Steps[p2p.RungRead] = moved(err, rep.VerifiedBytes)
	switch {
	case c.opt.Brief:
		c.step(p2p.RungOrder, p2p.ResultSkip, "%v", errUnasked)
	case err == nil:
		c.order(ctx, nic)
		c.compare(ctx, nic)
	}
}

// compare measures the rates of the GPU's memory and of host memory, by turns.
func (c *climb) compare(ctx context.Context, nic *ibvfd.Context) {
	gpu, host, err := canary.Compare(ctx, nic, c.buf, canary.CompareOptions{Stall: c.opt.Limit / 2, Moved: c.watcher.Look})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.proof.Uncompared = err.Error()
		return
	}
	c.proof.WriteRate, c.proof.ReadRate = gpu.Write, gpu.Read
	c.proof.HostWriteRate, c.proof.HostReadRate = host.Write, host.Read
}

// order tests whether a flag arrives after its data. In the second test the flag has relaxed ordering,
// which applications must not use for flags. Only the first test decides the rung.
func (c *climb) order(ctx context.Context, nic *ibvfd.Context) {
	strict, err := canary.Order(ctx, nic, c.buf, canary.OrderOptions{Stall: c.opt.Limit / 2})
	if err == nil && strict.Early == 0 {
		var relaxed canary.Ordering
		relaxed, err = canary.Order(ctx, nic, c.buf, canary.OrderOptions{Stall: c.opt.Limit / 2, RelaxedFlag: true})
		if err == nil {
			c.step(p2p.RungOrder, p2p.ResultPass, "%v; with relaxed ordering on the flags: %v", strict, relaxed)
			return
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var wrong *canary.Mismatch
	var broken *canary.TransferError
	switch {
	case err == nil:
		c.step(p2p.RungOrder, p2p.ResultFail, "%v", strict)
	case ctx.Err() == nil && (errors.As(err, &wrong) || errors.As(err, &broken)):
		c.step(p2p.RungOrder, p2p.ResultFail, "%v", err)
	default:
		c.step(p2p.RungOrder, p2p.ResultUnknown, "%v", err)
	}
}

// testimony is the longest time to wait until the trace shows a registration.
const testimony = 20 * time.Second

// place finds the memory in which a live registration has its bytes.
func (c *climb) place(ctx context.Context, key placement.Key) {
	if c.tracer == nil {
		why := fmt.Errorf("no trace shows where the bytes are: %w", c.blind)
		c.open(p2p.RungPlace, p2p.ResultUnknown, why)
		c.step(p2p.RungRoute, p2p.ResultUnknown, "it was not traced")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, testimony)
	defer cancel()
	pl, err := c.tracer.Prove(ctx, key)
	if err != nil {
		c.open(p2p.RungPlace, p2p.ResultUnknown, err)
		return
	}
	c.proof.Placement = &pl
	outcome, why := outcomeOf(pl, c.pair.GPU)
	c.proof.Outcome, c.proof.Why = outcome, why
	result := map[chain.Outcome]p2p.Result{chain.Direct: p2p.ResultPass, chain.Staged: p2p.ResultFail}[outcome]
	c.step(p2p.RungPlace, result, "%s", why)
	switch {
	case outcome != chain.Direct:
		c.step(p2p.RungRoute, p2p.ResultSkip, "the bytes are not in the GPU")
	case pl.Route == placement.RouteUnknown:
		c.step(p2p.RungRoute, p2p.ResultUnknown, "%s", pl.RouteReason)
	default:
		c.step(p2p.RungRoute, p2p.ResultPass, "%v", pl.Route)
	}
}

// unregistered records why there is no MR: the kernel refused the registration, or the request did
// not reach the kernel.
func (c *climb) unregistered(ctx context.Context, err error) {
	var reg *ibvfd.RegError
	if ctx.Err() != nil || !errors.As(err, &reg) || !asked(reg) {
		c.open(p2p.RungRegister, p2p.ResultUnknown, err)
		return
	}
	c.proof.Outcome, c.proof.Errno = chain.Refused, reg.Errno
	if reg.Earliest == reg.Latest {
		c.proof.Stage = reg.Earliest.String()
	}
	c.open(p2p.RungRegister, p2p.ResultFail, reg)
	if c.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, testimony)
	defer cancel()
	if f := c.tracer.Refusal(ctx); f != nil && f.Errno == reg.Errno {
		c.proof.Stage, c.proof.Why = string(f.Stage), f.String()
		c.step(p2p.RungRegister, p2p.ResultFail, "%v", f)
	}
}

// release closes the buffer, and looks in the trace for registrations that remain. transfer and
// register have closed their own objects before.
func (c *climb) release() {
	if err := c.buf.Close(); err != nil {
		c.step(p2p.RungRelease, p2p.ResultFail, "%v", err)
		return
	}
	if c.tracer == nil {
		c.step(p2p.RungRelease, p2p.ResultPass, "all objects were closed without an error")
		return
	}
	// Not the proof's context: this check also runs after an interruption.
	ctx, cancel := context.WithTimeout(context.Background(), testimony)
	defer cancel()
	if err := c.tracer.Flush(ctx); err != nil {
		c.step(p2p.RungRelease, p2p.ResultUnknown, "%v", err)
		return
	}
	loss := c.tracer.Loss()
	for _, r := range c.tracer.Records() {
		switch {
		case r.Buffer == nil || r.Buffer.Inode != c.inode || r.Ended != "":
			continue
		case loss.Any(): // a lost event may have been the end of this registration
			c.step(p2p.RungRelease, p2p.ResultUnknown, "%v; the trace: %v", &r, loss)
		default:
			c.step(p2p.RungRelease, p2p.ResultFail, "%v", &r)
		}
		return
	}
	if loss.Any() {
		c.step(p2p.RungRelease, p2p.ResultPass, "all objects were closed without an error; the trace: %v", loss)
		return
	}
	c.step(p2p.RungRelease, p2p.ResultPass, "all objects were closed, and the trace shows that the kernel released the buffer")
}
