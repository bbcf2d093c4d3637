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
	"github.com/gpurdma/gpurdma/internal/bytesize"
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

	budget       budget
	exporterName atomic.Pointer[string] // as the first buffer showed it

	mu     sync.RWMutex // read-held while the device is in use
	desc   Description
	closed bool
}

func newAllocator(env Env, desc Description, exp exporter) *allocator {
	return &allocator{env: env, desc: desc, exp: exp}
}

func (a *allocator) Describe() Description {
	a.mu.RLock()
	defer a.mu.RUnlock()
	d := a.desc
	if name := a.exporterName.Load(); name != nil {
		d.Exporter = *name
	}
	return d
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
	return &dmabuf.Error{Op: "alloc", Device: a.desc.Device, Detail: detail, Remedy: remedy, Err: err}
}

// maxName is DMA_BUF_NAME_LEN without the terminating zero.
const maxName = 31

// plan is what an allocation is going to be.
type plan struct {
	segments []int64 // sizes, in bytes
	total    int64
}

func (a *allocator) plan(size int64, opt Options) (plan, error) {
	g := a.exp.granule()
	switch {
	case size <= 0:
		return plan{}, a.refuse(dmabuf.ErrRange, fmt.Sprintf("size %d", size), "ask for at least one byte")
	case size > math.MaxInt64-g:
		return plan{}, a.refuse(dmabuf.ErrRange, fmt.Sprintf("size %d cannot be rounded up to %d", size, g), "ask for less")
	case len(opt.Name) > maxName || strings.ContainsRune(opt.Name, 0):
		return plan{}, a.refuse(dmabuf.ErrRange, fmt.Sprintf("name %q", opt.Name), fmt.Sprintf("use at most %d bytes, none of them zero", maxName))
	case opt.SegmentSize < 0:
		return plan{}, a.refuse(dmabuf.ErrRange, fmt.Sprintf("segment size %d", opt.SegmentSize), "use 0 for one segment")
	}
	p := plan{total: roundUp(size, g)}
	each := p.total
	if opt.SegmentSize > 0 && opt.SegmentSize < each {
		each = roundUp(opt.SegmentSize, g)
	}
	const maxSegments = 1 << 20 // far above any limit of open files
	if p.total/each >= maxSegments {
		return plan{}, a.refuse(dmabuf.ErrLimit, fmt.Sprintf("%d segments", p.total/each), "use larger segments")
	}
	for left := p.total; left > 0; left -= each {
		p.segments = append(p.segments, min(each, left))
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
	if err := ctx.Err(); err != nil {
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
	made := pieces{budget: &a.budget, drawn: drawn}
	for i, n := range p.segments {
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(a.refuse(err, fmt.Sprintf("after %d of %d segments", i, len(p.segments)), ""), made.free())
		}
		if err := a.one(ctx, &made, n, opt.Name); err != nil {
			if len(p.segments) > 1 {
				err = fmt.Errorf("segment %d of %d: %w", i+1, len(p.segments), err)
			}
			return nil, errors.Join(err, made.free())
		}
	}
	desc := a.desc
	desc.Exporter = a.exporter(made.segments[0].Buf)
	return newBuffer(desc, size, made.segments, made.freeMemory, nil), nil
}

// exporter is the name in the dma-bufs' fdinfo, which discovery can only guess:
// a driver may export by itself (virtio_gpu) or through the DRM core ("drm").
func (a *allocator) exporter(b *dmabuf.Buf) string {
	if name := a.exporterName.Load(); name != nil {
		return *name
	}
	info, err := b.Info()
	if err != nil {
		return a.desc.Exporter
	}
	a.exporterName.Store(&info.Exporter)
	return info.Exporter
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

// pieces are segments on their way to becoming a Buffer.
type pieces struct {
	segments []Segment
	frees    []func() error
	budget   *budget // nil if they were not limited
	drawn    drawing
}

func (p *pieces) add(s Segment, free func() error) {
	p.segments = append(p.segments, s)
	if free != nil {
		p.frees = append(p.frees, free)
	}
}

// freeMemory gives back what drivers keep beside the dma-bufs, once those are
// closed, and with that what all of it drew.
func (p *pieces) freeMemory() (err error) {
	for _, free := range p.frees {
		if e := free(); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err == nil && p.budget != nil {
		p.budget.giveBack(p.drawn)
	}
	return err
}

func (p *pieces) free() error { return errors.Join(closeAll(p.segments), p.freeMemory()) }
