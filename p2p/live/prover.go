// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/trace"
)

// Options tune proofs. The zero value is what p2pcheck uses.
type Options struct {
	// Size is the number of bytes to allocate and move, rounded up to a size that the
	// exporter supports; 0 means 256 KiB.
	Size int64
	// Limit is the longest time for one pair; 0 means a minute. If a system call does not return,
	// the proof waits for it longer than that.
	Limit time.Duration
	// Untraced leaves the trace out.
	Untraced bool
	// Brief leaves out the order of flags and the comparison with host memory. They take most of
	// the time, and do not show where the bytes are.
	Brief bool
}

func (o *Options) setDefaults() {
	if o.Size == 0 {
		o.Size = 256 << 10
	}
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
}

// Prover proves pairs of this machine, one after the other. Only one goroutine may use it at a time.
type Prover struct {
	m      *machine.Machine
	opt    Options
	tracer *trace.Tracer // nil without a trace
	blind  error         // why there is no trace; nil if there is one
	still  error         // why no bytes are moved; nil if bytes are moved

	memory []gpualloc.Description
	open   map[string]gpualloc.Allocator // by spec
	nics   map[string]*ibvfd.Context
}

// errUnasked is the reason for a trace or a rung that the options leave out.
var errUnasked = errors.New("it was not asked for")

// Open prepares proofs on m, which must be this machine. It succeeds even if it cannot
// trace: [Prover.Blind] then says why not. It also succeeds without libibverbs
// ([ibvfd.ErrNotBuilt], [ibvfd.ErrNoLibrary], [ibvfd.ErrBrokenLibrary]): proofs then
// register buffers by the kernel's own ioctl, and move no bytes, and [Prover.Still] says
// why. The caller closes the Prover.
func Open(m *machine.Machine, opt Options) (*Prover, error) {
	opt.setDefaults()
	c, err := ibvfd.Open("") // no device has this name: the error shows whether libibverbs works
	var still error
	if errors.Is(err, ibvfd.ErrNotBuilt) || errors.Is(err, ibvfd.ErrNoLibrary) || errors.Is(err, ibvfd.ErrBrokenLibrary) {
		still = err
	}
	if err == nil {
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	p := &Prover{
		m: m, opt: opt, blind: errUnasked, still: still, memory: gpualloc.Discover(gpualloc.Env{}),
		open: map[string]gpualloc.Allocator{}, nics: map[string]*ibvfd.Context{},
	}
	if !opt.Untraced {
		p.tracer, p.blind = trace.Open(trace.Config{Self: true, RDMAOnly: true, NoInventory: true})
	}
	return p, nil
}

// Blind returns why there is no trace; nil if there is one.
func (p *Prover) Blind() error { return p.blind }

// Still returns why proofs move no bytes; nil if they do.
func (p *Prover) Still() error { return p.still }

// Release closes the NICs and the allocators that proofs have opened. A later proof opens them again.
func (p *Prover) Release() error {
	var errs []error
	for name, c := range p.nics {
		errs = append(errs, c.Close())
		delete(p.nics, name)
	}
	for spec, a := range p.open {
		errs = append(errs, a.Close())
		delete(p.open, spec)
	}
	return errors.Join(errs...)
}

// Close closes what Release closes, and the tracer. The caller must not use the Prover after that.
func (p *Prover) Close() error {
	err := p.Release()
	if p.tracer != nil {
		err = errors.Join(err, p.tracer.Close())
	}
	return err
}

// allocator opens the allocator of a GPU's own memory.
func (p *Prover) allocator(g drivers.GPU) (gpualloc.Allocator, error) {
	d, err := memoryOf(g, p.memory)
	if err != nil {
		return nil, err
	}
	if a := p.open[d.Spec]; a != nil {
		return a, nil
	}
	a, err := gpualloc.Open(d.Spec, gpualloc.Env{})
	if err == nil {
		p.open[d.Spec] = a
	}
	return a, err
}

// memoryOf picks the allocator of a GPU: one of VRAM, if there is one. In all the best comes
// first.
func memoryOf(g drivers.GPU, all []gpualloc.Description) (gpualloc.Description, error) {
	var best *gpualloc.Description
	var why error
	for i, d := range all {
		switch {
		case !allocates(d, g):
		case !d.Available:
			why = errors.Join(why, fmt.Errorf("%s: %s; %s", d.Spec, d.Why, d.Remedy))
		case best == nil || best.Kind != gpualloc.KindVRAM && d.Kind == gpualloc.KindVRAM:
			best = &all[i]
		}
	}
	switch {
	case best != nil:
		return *best, nil
	case why != nil:
		return gpualloc.Description{}, fmt.Errorf("%w: %w", gpualloc.ErrUnavailable, why)
	}
	return gpualloc.Description{}, fmt.Errorf("%w: nothing here allocates memory of %s (driver %q)", gpualloc.ErrUnavailable, g.Name, g.Exporter.Driver)
}

func allocates(d gpualloc.Description, g drivers.GPU) bool {
	if g.Exporter.PCI != nil {
		return d.PCI != nil && *d.PCI == *g.Exporter.PCI
	}
	return d.PCI == nil && d.Driver == g.Exporter.Driver
}

// nic opens a NIC at its first use.
func (p *Prover) nic(name string) (*ibvfd.Context, error) {
	if c := p.nics[name]; c != nil {
		return c, nil
	}
	open := ibvfd.Open
	if p.still != nil {
		open = ibvfd.OpenKernel
	}
	c, err := open(name)
	if err == nil {
		p.nics[name] = c
	}
	return c, err
}

// Prove tries a pair. It never returns nil: the proof has all results and errors. If ctx or
// Options.Limit ends, the proof has the reason, and the rungs that it has not reached are p2p.NotReached.
func (p *Prover) Prove(ctx context.Context, pair p2p.Pair) *p2p.Proof {
	c := &climb{Prover: p, pair: pair, proof: p2p.NewProof()}
	ctx, cancel := context.WithTimeoutCause(ctx, p.opt.Limit, fmt.Errorf("it took longer than %v", p.opt.Limit))
	defer cancel()
	c.watcher = p2p.StartWatch(p.m, pair)
	start := time.Now()
	c.run(ctx)
	c.proof.Elapsed = time.Since(start)
	c.proof.Watch = c.watcher.Stop()
	return c.proof
}
