// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// device is the part of ibvfd that a NIC needs. Tests have a device in memory, for cases that
// a NIC cannot be made to produce.
type device interface {
	name() string
	atomics() bool // fetch-and-add and compare-and-swap
	// host registers a part of host memory.
	host(mem *hostmem.Buf, off, length int64, access ibvfd.Access) (*registration, error)
	// source registers a part of a buffer's dma-bufs.
	source(src rcSource, off, length int64, access ibvfd.Access) (*registration, error)
	// queue makes a completion queue. It calls event when an armed queue has a completion, and
	// broke if there are no events any more; neither may block.
	queue(depth int, event func(), broke func(why error)) (completionQueue, error)
	// queueDepth returns depth, or the device's maximum if that is smaller.
	queueDepth(depth int) int
	// link makes the queue pairs of a connection.
	link(attr linkAttr) (link, error)
	// newDomain returns the device with a protection domain of its own, which must be closed
	// before the device.
	newDomain() (device, error)
	close() error
	// ended returns when all goroutines of a closed device have ended.
	ended()
}

// rcSource is memory that a device registers by its dma-bufs, or by its device pointers
// (PeerDirect).
type rcSource interface {
	dmabuf.Holder
	Segments() []gpualloc.Segment // in order
}

// registration is memory under keys: one MR, or one for each dma-buf.
type registration struct {
	local, remote lower.Memory // under lkeys, and under rkeys
	route         ibvfd.Route
	close         func() error
}

// verbsDevice is a device of this machine.
type verbsDevice struct {
	ctx   *ibvfd.Context
	pd    *ibvfd.PD
	attr  ibdev.DeviceAttr
	watch *watch
}

func openDevice(name string, heard func(ibvfd.Event)) (device, error) {
	ctx, err := ibvfd.Open(name)
	if err != nil {
		return nil, err
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return &verbsDevice{ctx, pd, attr, watchDevice(ctx, heard)}, nil
}

func (d *verbsDevice) name() string  { return d.ctx.Name() }
func (d *verbsDevice) atomics() bool { return d.attr.Atomic }

// Ports returns the number of ports.
func (d *verbsDevice) Ports() int { return d.attr.Ports }

// Context returns the opened device.
func (d *verbsDevice) Context() *ibvfd.Context { return d.ctx }

func (d *verbsDevice) close() error {
	if err := d.pd.Close(); err != nil {
		return err
	}
	return d.ctx.Close()
}

func (d *verbsDevice) ended() { d.watch.ended.Wait() }

// verbsDomain is a device in another protection domain.
type verbsDomain struct{ *verbsDevice }

func (d *verbsDevice) newDomain() (device, error) {
	pd, err := d.ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	return verbsDomain{&verbsDevice{d.ctx, pd, d.attr, d.watch}}, nil
}

func (d verbsDomain) close() error { return d.pd.Close() }
func (verbsDomain) ended()         {} // the device stays open

func (d *verbsDevice) host(mem *hostmem.Buf, off, length int64, access ibvfd.Access) (*registration, error) {
	mr, err := d.pd.RegMR(ibvfd.MRAttr{
		Kind: ibvfd.HostMemory, Host: mem.Bytes(), Offset: uint64(off), Length: uint64(length), Access: access, Owner: mem,
	})
	if err != nil {
		return nil, err
	}
	return registered([]*ibvfd.MR{mr}, mr.Close), nil
}

func (d *verbsDevice) source(src rcSource, off, length int64, access ibvfd.Access) (*registration, error) {
	r, err := region.Register(regionAttr(src, off, length, access), d.pd)
	if err != nil {
		return nil, err
	}
	return registered(r.MRs(d.pd), r.Close), nil
}

// regionAttr describes the part of a source to register.
func regionAttr(src rcSource, off, length int64, access ibvfd.Access) region.Attr {
	attr := region.Attr{Offset: uint64(off), Length: uint64(length), IOVA: uint64(off), Access: access, Owner: src}
	for _, s := range src.Segments() {
		attr.Segments = append(attr.Segments, region.Segment{Buf: s.Buf, Offset: uint64(s.Offset), Length: uint64(s.Size), Addr: s.Addr})
	}
	if len(attr.Segments) > 0 {
		// An IOVA and the place in the dma-buf, or the address, must agree within a page.
		if s := attr.Segments[0]; s.Buf != nil {
			attr.IOVA += s.Offset
		} else {
			attr.IOVA += s.Addr % uint64(os.Getpagesize())
		}
	}
	if _, ok := src.(peerDirect); ok {
		attr.Policy = ibvfd.RouteAutoPeerDirect
	}
	return attr
}

// peerDirect is a source that may be registered by its device pointers.
type peerDirect struct{ rcSource }

func registered(mrs []*ibvfd.MR, done func() error) *registration {
	r := &registration{close: done}
	for _, mr := range mrs {
		r.local = append(r.local, lower.Piece{Addr: mr.IOVA(), Length: int64(mr.Length()), Key: mr.LKey()})
		r.remote = append(r.remote, lower.Piece{Addr: mr.IOVA(), Length: int64(mr.Length()), Key: mr.RKey()})
		r.route = mr.Route()
	}
	return r
}
