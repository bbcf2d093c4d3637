// SPDX-License-Identifier: Apache-2.0

package rc

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

// Device is the part of ibvfd that a NIC needs. Package memnic implements it in memory, also for
// cases that tests cannot make a NIC produce.
type Device interface {
	// Name returns the device's name: "mlx5_0".
	Name() string
	// Atomics reports whether the device has fetch-and-add and compare-and-swap.
	Atomics() bool
	// Host registers a part of host memory, and holds mem until the registration is closed.
	Host(mem *hostmem.Buf, off, length int64, access ibvfd.Access) (*Registration, error)
	// Source registers a part of a source, and holds src until the registration is closed.
	Source(src Source, off, length int64, access ibvfd.Access) (*Registration, error)
	// Queue makes a completion queue. The queue calls event when it is armed and has a
	// completion, and broke when it can raise no more events; neither may block.
	Queue(depth int, event func(), broke func(why error)) (CompletionQueue, error)
	// QueueDepth returns depth, or the device's maximum if that is smaller.
	QueueDepth(depth int) int
	// Link makes the queue pairs of a connection.
	Link(attr Attr) (Link, error)
	// NewDomain returns the device with a protection domain of its own, which must be closed
	// before the device.
	NewDomain() (Device, error)
	// Removed reports whether the device is gone. Then bytes whose writes it has acknowledged may not be
	// in the memory.
	Removed() bool
	// Close closes the device, or its protection domain if NewDomain made it. It returns
	// failure.ErrInUse while registrations, queues or links of it are open.
	Close() error
	// Ended waits until all goroutines of a closed device have ended.
	Ended()
}

// CompletionQueue is a device's completion queue.
type CompletionQueue interface {
	Poll(wc []ibvfd.WC) (int, error)
	Arm() error // makes the next completion raise an event
	Close() error
}

// Source is memory that a device registers by its dma-bufs, or by its device pointers
// (PeerDirect).
type Source interface {
	dmabuf.Holder
	Segments() []gpualloc.Segment // in order
}

// Registration is memory under keys: one MR, or one for each dma-buf.
type Registration struct {
	Local, Remote lower.Memory // under lkeys, and under rkeys
	Route         ibvfd.Route
	Why           string // the reason for the route (ibvfd.MR.Why); may be ""
	Close         func() error
	// Move puts the registration on the same range of another source, under its keys. It is nil if that
	// is never possible. After an error the registration is where it was, but for the MRs that could
	// not go back, which the error names too.
	Move func(Source) error
}

// Verbs is a device of this machine.
type Verbs struct {
	ctx   *ibvfd.Context
	pd    *ibvfd.PD
	attr  ibdev.DeviceAttr
	watch *watch
}

// Open opens a device of this machine. If heard is not nil, it gets all asynchronous events.
func Open(name string, heard func(ibvfd.Event)) (Device, error) {
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
	return &Verbs{ctx, pd, attr, watchDevice(ctx, heard)}, nil
}

// Name returns the device's name: "mlx5_0".
func (d *Verbs) Name() string { return d.ctx.Name() }

// Atomics reports whether the device has fetch-and-add and compare-and-swap.
func (d *Verbs) Atomics() bool { return d.attr.Atomic }

// Ports returns the number of ports.
func (d *Verbs) Ports() int { return d.attr.Ports }

// Context returns the opened device.
func (d *Verbs) Context() *ibvfd.Context { return d.ctx }

// Close closes the protection domain and the device. See Device.
func (d *Verbs) Close() error {
	if err := d.pd.Close(); err != nil {
		return err
	}
	return d.ctx.Close()
}

// Removed reports whether the device is gone.
func (d *Verbs) Removed() bool {
	d.watch.mu.Lock()
	defer d.watch.mu.Unlock()
	return d.watch.gone != nil
}

// Ended waits until the goroutine that reads the events of a closed device has ended.
func (d *Verbs) Ended() { d.watch.ended.Wait() }

// verbsDomain is a device in another protection domain.
type verbsDomain struct{ *Verbs }

// NewDomain returns the device with a protection domain of its own.
func (d *Verbs) NewDomain() (Device, error) {
	pd, err := d.ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	return verbsDomain{&Verbs{d.ctx, pd, d.attr, d.watch}}, nil
}

func (d verbsDomain) Close() error { return d.pd.Close() }
func (verbsDomain) Ended()         {} // the device stays open

// AllocHost allocates host memory that the NIC reaches: see ibvfd.PD.AllocHost.
func (d *Verbs) AllocHost(size int) (*hostmem.Buf, error) { return d.pd.AllocHost(size) }

// Host registers a part of host memory.
func (d *Verbs) Host(mem *hostmem.Buf, off, length int64, access ibvfd.Access) (*Registration, error) {
	mr, err := d.pd.RegMR(ibvfd.MRAttr{
		Kind: ibvfd.HostMemory, Host: mem.Bytes(), Offset: uint64(off), Length: uint64(length), Access: access, Owner: mem,
	})
	if err != nil {
		return nil, err
	}
	return registered([]*ibvfd.MR{mr}, mr.Close), nil
}

// Source registers a part of a source.
func (d *Verbs) Source(src Source, off, length int64, access ibvfd.Access) (*Registration, error) {
	r, err := region.Register(RegionAttr(src, off, length, access), d.pd)
	if err != nil {
		return nil, err
	}
	reg := registered(r.MRs(d.pd), r.Close)
	reg.Move = func(to Source) error { return r.Move(RegionAttr(to, off, length, access)) }
	return reg, nil
}

// RegionAttr returns the attributes to register a part of a source.
func RegionAttr(src Source, off, length int64, access ibvfd.Access) region.Attr {
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
	if _, ok := src.(PeerDirect); ok {
		attr.Policy = ibvfd.RouteAutoPeerDirect
	}
	return attr
}

// PeerDirect is a source that may be registered by its device pointers.
type PeerDirect struct{ Source }

func registered(mrs []*ibvfd.MR, done func() error) *Registration {
	r := &Registration{Close: done}
	for _, mr := range mrs {
		r.Local = append(r.Local, lower.Piece{Addr: mr.IOVA(), Length: int64(mr.Length()), Key: mr.LKey()})
		r.Remote = append(r.Remote, lower.Piece{Addr: mr.IOVA(), Length: int64(mr.Length()), Key: mr.RKey()})
		r.Route = mr.Route()
		if r.Why == "" {
			r.Why = mr.Why()
		}
	}
	return r
}
