// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// Flusher is a Source whose GPU can wait for NICs' writes itself; *[gpualloc.Buffer] is one.
type Flusher interface {
	// FlushWrites returns errors.ErrUnsupported if the GPU cannot do so.
	FlushWrites() error
}

// Flush makes peers' writes to the Buffer visible to work that its GPU already runs, such as a
// kernel that waits in a loop, and returns when they are visible. It is for writes that have
// completed on this side: a message, data of a write, or a completion of a local operation came
// after them. Work that is launched after such a completion sees the writes without Flush, and so
// does the CPU.
//
// The method depends on the memory. Flush asks CUDA whether the GPU orders such writes, and
// otherwise lets CUDA wait for them (cuFlushGPUDirectRDMAWrites). If the vendor has no such
// call, the NIC reads a byte of each dma-buf: on PCIe a read does not overtake the writes
// before it. At the first Flush the NIC registers the byte, in a protection domain of its own;
// the dma-bufs' descriptors must be open then. A staged Buffer is synchronised, see
// [Buffer.Sync]. For host memory Flush does nothing.
//
// After an error it is not known which writes the GPU sees.
func (b *Buffer) Flush(ctx context.Context) error {
	if err := b.Use(); err != nil {
		return err
	}
	defer b.core.unuse()
	c := b.core
	if c.staging != nil {
		return c.sync(b.off, b.size)
	}
	c.moving.RLock()
	defer c.moving.RUnlock()
	if f, ok := c.source().(Flusher); ok && c.gpu() && !c.missing() {
		if err := f.FlushWrites(); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return c.push(ctx)
}

// push makes the NIC read a byte of each dma-buf of a GPU's memory. After that all bytes that the NIC has
// written before are in the memory, also without a completion. moving is held for reading.
func (c *core) push(ctx context.Context) error {
	if !c.gpu() || c.missing() { // another NIC's Buffer of the memory is read
		return nil
	}
	return c.nic.readBack.read(ctx, c)
}

// readBack reads the NIC's own memory back, through two queue pairs that are each other's
// peers. It makes them at the first use, in a protection domain without other queue pairs.
type readBack struct {
	gate  chan struct{} // a lock: the goroutine that has put a value in uses the other fields
	nic   *NIC
	dev   rc.Device
	queue rc.CompletionQueue
	link  rc.Link
	sink  *hostmem.Buf
	into  *rc.Registration
	wake  chan struct{}         // gets a value at an event, and at the end of the link
	end   atomic.Pointer[error] // the error that ended it
}

// readBackDepth is the number of READs under way at once.
const readBackDepth = 16

// read reads a byte of each of c's dma-bufs.
func (m *readBack) read(ctx context.Context, c *core) error {
	select {
	case m.gate <- struct{}{}:
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	defer func() { <-m.gate }()
	if err := m.open(); err != nil {
		return err
	}
	if c.bytes == nil {
		if err := m.register(c); err != nil {
			return err
		}
	}
	err := m.readAll(ctx, c.bytes)
	if err != nil {
		// The READs still under way must not complete in a later call.
		err = errs.Join(err, m.nic.End(m.drop()))
	}
	return err
}

// register gives readBack a byte of each of c's dma-bufs to read.
func (m *readBack) register(c *core) error {
	var bytes []*rc.Registration
	start := int64(0)
	for _, p := range c.local.Memory {
		r, err := m.dev.Source(c.exported(), start, 1, ibvfd.AccessRemoteRead)
		if err != nil {
			return errs.Join(err, m.nic.End(func() error { return closeRegistrations(&bytes) }))
		}
		bytes = append(bytes, r)
		start += p.Length
	}
	c.bytes = bytes
	return nil
}

// closeRegistrations closes registrations in order. At an error it stops, and leaves the
// others in the list.
func closeRegistrations(list *[]*rc.Registration) error {
	for len(*list) > 0 {
		if err := (*list)[0].Close(); err != nil {
			return err
		}
		*list = (*list)[1:]
	}
	return nil
}

func (m *readBack) open() (err error) {
	if m.link != nil {
		return nil
	}
	if m.dev == nil {
		if m.dev, err = m.nic.dev.NewDomain(); err != nil {
			return err
		}
	}
	if m.sink == nil {
		if m.sink, err = hostmem.Alloc(8); err != nil {
			return err
		}
	}
	if m.into == nil {
		if m.into, err = m.dev.Host(m.sink, 0, 8, ibvfd.AccessLocalWrite); err != nil {
			return err
		}
	}
	if m.queue == nil {
		if m.queue, err = m.dev.Queue(rc.Queues*readBackDepth+1, m.event, m.broke); err != nil {
			return err
		}
	}
	m.end.Store(nil)
	l, err := m.dev.Link(rc.Attr{SendDepth: readBackDepth, RecvDepth: 1, SGE: 1, End: m.nic.End, Queue: m.queue, Broke: m.broke})
	if err != nil {
		return err
	}
	ends := l.Local()
	ends[rc.WriteQueue], ends[rc.ReadQueue] = ends[rc.ReadQueue], ends[rc.WriteQueue]
	if err := l.Connect(ends, l.Attr().ReadsIn); err != nil {
		return errs.Join(err, m.nic.End(l.Close))
	}
	m.link = l
	return nil
}

// event wakes the goroutine that waits.
func (m *readBack) event() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *readBack) broke(why error) {
	m.end.CompareAndSwap(nil, &why)
	m.event()
}

func (m *readBack) readAll(ctx context.Context, from []*rc.Registration) error {
	to := m.into.Local[0]
	var wrs [readBackDepth]ibvfd.SendWR
	for len(from) > 0 {
		n := min(len(from), readBackDepth)
		for i, r := range from[:n] {
			wrs[i] = ibvfd.SendWR{
				Op: ibvfd.OpRead, Flags: ibvfd.SendSignaled, SGE: []ibvfd.SGE{{Addr: to.Addr, Length: 1, LKey: to.Key}},
				RemoteAddr: r.Remote[0].Addr, RKey: r.Remote[0].Key,
			}
		}
		if _, err := m.link.Post(rc.ReadQueue, wrs[:n]); err != nil {
			return err
		}
		if err := m.await(ctx, n); err != nil {
			return err
		}
		from = from[n:]
	}
	return nil
}

// await takes n completions.
func (m *readBack) await(ctx context.Context, n int) error {
	var wcs [readBackDepth]ibvfd.WC
	armed := false
	for busy := (spin.Wait{}); n > 0; {
		k, err := m.queue.Poll(wcs[:n])
		if err != nil {
			return err
		}
		for _, wc := range wcs[:k] {
			if err := wc.Err(); err != nil {
				return &failure.Error{Op: "flush", Device: m.nic.Name(), Detail: "a byte was not read back", Err: err}
			}
		}
		n -= k
		switch {
		case k > 0:
		case m.end.Load() != nil:
			return *m.end.Load()
		case ctx.Err() != nil:
			return errs.Ended(ctx)
		case armed:
			select {
			case <-m.wake:
				armed = false
			case <-ctx.Done():
				return errs.Ended(ctx)
			}
		case busy.Over():
			if err := m.queue.Arm(); err != nil {
				return err
			}
			armed = true // then poll once more: a completion before arming raises no event
		}
	}
	return nil
}

// drop removes the queue pairs and their completion queue. The function that it returns closes
// them.
func (m *readBack) drop() func() error {
	l, q := m.link, m.queue
	m.link, m.queue = nil, nil
	return func() error {
		if l != nil {
			if err := l.Close(); err != nil {
				return err
			}
			l = nil
		}
		if q != nil {
			return q.Close()
		}
		return nil
	}
}

// close frees everything. It may be called again after an error.
func (m *readBack) close() error {
	if m.link != nil {
		if err := m.link.Close(); err != nil {
			return err
		}
		m.link = nil
	}
	if m.queue != nil {
		if err := m.queue.Close(); err != nil {
			return err
		}
		m.queue = nil
	}
	if m.into != nil {
		if err := m.into.Close(); err != nil {
			return err
		}
		m.into = nil
	}
	if m.sink != nil {
		if err := m.sink.Close(); err != nil {
			return err
		}
		m.sink = nil
	}
	if m.dev != nil {
		if err := m.dev.Close(); err != nil {
			return err
		}
		m.dev = nil
	}
	return nil
}
