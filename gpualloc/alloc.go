// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/errs"
)

// exporter is what a backend must be able to do: make one dma-buf. Everything
// that all backends share (rounding, limits, splitting, cleaning up) is in
// allocator.
type exporter interface {
	// granule is what sizes are rounded up to, in bytes, a power of two.
	granule() int64
	// export allocates size bytes and exports them. It may be called from
	// several goroutines at once. free, if not nil, gives back what the driver
	// keeps beside the dma-buf; the Buf is closed before.
	export(ctx context.Context, size int64, name string) (seg Segment, free func() error, err error)
	// fds is how many descriptors one export has open at its peak, and how many
	// of these stay.
	fds() (peak, stay int64)
	close() error
}

// allocator is the Allocator of every backend whose unit is a dma-buf.
type allocator struct {
	env Env
	exp exporter

	budget budget
	desc   Description                 // as it was discovered
	shown  atomic.Pointer[Description] // with the exporter that the first buffer showed

	mu     sync.RWMutex // read-held while the device is in use
	closed bool
}

func newAllocator(env Env, desc Description, exp exporter) *allocator {
	return &allocator{env: env, desc: desc, exp: exp}
}

func (a *allocator) Describe() Description {
	if d := a.shown.Load(); d != nil {
		return *d
	}
	return a.desc
}

func (a *allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return a.exp.close()
}

func (a *allocator) refuse(err error, detail, remedy string) error {
	return &failure.Error{Op: "alloc", Device: a.desc.Device, Detail: detail, Remedy: remedy, Err: err}
}

// maxName is DMA_BUF_NAME_LEN without the terminating zero.
const maxName = 31

// plan is what an allocation is going to be.
type plan struct {
	total int64 // bytes
	each  int64 // bytes of each segment but the last, which has what is left
	count int64 // segments
}

// segment is the size of one, in bytes.
func (p plan) segment(i int64) int64 { return min(p.each, p.total-i*p.each) }

func (a *allocator) plan(size int64, opt Options) (plan, error) {
	g := a.exp.granule()
	switch {
	case size <= 0:
		return plan{}, a.refuse(failure.ErrRange, fmt.Sprintf("size %d", size), "ask for at least one byte")
	case size > math.MaxInt64-g:
		return plan{}, a.refuse(failure.ErrRange, fmt.Sprintf("size %d cannot be rounded up to %d", size, g), "ask for less")
	case len(opt.Name) > maxName || strings.ContainsRune(opt.Name, 0):
		return plan{}, a.refuse(failure.ErrRange, fmt.Sprintf("name %q", opt.Name), fmt.Sprintf("use at most %d bytes, none of them zero", maxName))
	case opt.SegmentSize < 0:
		return plan{}, a.refuse(failure.ErrRange, fmt.Sprintf("segment size %d", opt.SegmentSize), "use 0 for one segment")
	}
	p := plan{total: roundUp(size, g)}
	p.each = p.total
	if opt.SegmentSize > 0 && opt.SegmentSize < p.each {
		p.each = roundUp(opt.SegmentSize, g)
	}
	p.count = (p.total + p.each - 1) / p.each
	const maxSegments = 1 << 20 // far above any limit of open files
	if p.count > maxSegments {
		return plan{}, a.refuse(failure.ErrLimit, fmt.Sprintf("%d segments", p.count), "use larger segments")
	}
	return p, nil
}

func roundUp(n, granule int64) int64 { return (n + granule - 1) &^ (granule - 1) }

func (a *allocator) Alloc(ctx context.Context, size int64, opt Options) (*Buffer, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return nil, os.ErrClosed
	}
	if err := errs.Ended(ctx); err != nil {
		return nil, a.refuse(err, "", "")
	}
	p, err := a.plan(size, opt)
	if err != nil {
		return nil, err
	}
	drawn, err := a.checkLimits(p, opt.Force)
	if err != nil {
		return nil, err
	}
	b := &Buffer{requested: size, pieces: pieces{budget: &a.budget, drawn: drawn}}
	for i := range p.count {
		if err := errs.Ended(ctx); err != nil {
			return nil, errors.Join(a.refuse(err, fmt.Sprintf("after %d of %d segments", i, p.count), ""), b.free())
		}
		if err := a.one(ctx, &b.pieces, p.segment(i), opt.Name); err != nil {
			if p.count > 1 {
				err = fmt.Errorf("segment %d of %d: %w", i+1, p.count, err)
			}
			return nil, errors.Join(err, b.free())
		}
	}
	b.desc = a.describe(b.segments[0].Buf)
	return b, nil
}

// describe is the description of what is allocated. The exporter's name is in the
// dma-bufs' fdinfo, and discovery can only guess it: a driver may export by itself
// (virtio_gpu) or through the DRM core ("drm").
func (a *allocator) describe(b *dmabuf.Buf) *Description {
	if d := a.shown.Load(); d != nil {
		return d
	}
	info, err := b.Info()
	if err != nil {
		return &a.desc
	}
	d := a.desc
	d.Exporter = info.Exporter
	a.shown.Store(&d)
	return &d
}

// one exports one segment and adds it to made, also when it then fails: made
// knows how to free it.
func (a *allocator) one(ctx context.Context, made *pieces, size int64, name string) error {
	seg, free, err := a.exp.export(ctx, size, name)
	if err != nil {
		return err
	}
	made.add(seg, free)
	if seg.Size < size || seg.Offset < 0 || seg.Size > seg.Buf.Size()-seg.Offset {
		return a.refuse(unix.EPROTO, fmt.Sprintf("asked for %s, got %d bytes at %d of a dma-buf of %d", bytesize.Format(size), seg.Size, seg.Offset, seg.Buf.Size()), "")
	}
	if name == "" {
		return nil
	}
	return seg.Buf.SetName(name)
}
