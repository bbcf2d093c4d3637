// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Runtime is a family of allocators of another package, which loads a GPU
// vendor's library at run time. gpualloc imports none of these packages. A
// program imports the one that it needs, as for image formats or database
// drivers:
//
//	import _ "github.com/gpurdma/gpurdma/gpualloc/cuda"
type Runtime struct {
	// Name is the part of the family's specs before the colon: "cuda".
	Name string
	// Discover lists the family's allocators. Where the library or the
	// hardware is missing, it lists one that is not available and says why.
	Discover func(env Env) []Found
}

// Found is an allocator that a Runtime knows.
type Found struct {
	Description
	// Err is the error of the library or the device, if the allocator is not
	// available.
	Err error
	// Alternative says that "auto" prefers the other allocators of the same
	// device.
	Alternative bool
	// Open opens the allocator.
	Open func(env Env) (Exporter, error)
}

// Refuse marks the allocator as not available because of err, and takes Why and
// Remedy from err.
func (f *Found) Refuse(err error) {
	c := candidate{Description: f.Description}
	c.refused(err)
	f.Description, f.Err = c.Description, err
	f.Available = false
}

// Exporter makes a dma-buf with each call of Export. Package gpualloc rounds
// sizes, checks limits, makes several segments, sets names and frees.
type Exporter interface {
	// Granule is the number of bytes of which sizes are made multiples: a power
	// of two, and at least a page.
	Granule() int64
	// FDs is the number of descriptors that one export has open at most, and
	// how many of these stay open.
	FDs() (peak, stay int64)
	// Limits lists the present limits of an allocation: the GPU's free memory,
	// its BAR.
	Limits() []Limit
	// Export allocates size bytes of zeroed memory, and exports them. Several
	// goroutines may call it at once.
	Export(ctx context.Context, size int64, name string) (Exported, error)
	// Close closes the device. Exported memory stays valid.
	Close() error
}

// Exported is one exported piece of memory.
type Exported struct {
	Segment
	// View copies bytes by the runtime's own calls, at offsets from the
	// segment's start. If it is nil, the Buffer maps the dma-buf.
	View View
	// Free gives the memory back to the runtime; it is called after the Buf was
	// closed. It is nil if there is nothing to give back.
	Free func() error
	// Flush is Buffer.FlushWrites for all of the device's memory; nil if the
	// runtime has no such call.
	Flush func() error
}

// View reads and writes a segment's bytes by CPU.
type View interface {
	io.ReaderAt
	io.WriterAt
}

// NewBuffer makes a Buffer of memory that is exported already, such as memory
// that the caller owns. The Buffer takes the Bufs: its Close closes them, and
// calls Free of each part.
func NewBuffer(desc Description, requested int64, parts []Exported) *Buffer {
	b := &Buffer{desc: &desc, requested: requested}
	for _, e := range parts {
		b.add(e.segment(), e.Free)
	}
	return b
}

func (e Exported) segment() Segment {
	s := e.Segment
	s.flush = e.Flush
	if e.View != nil {
		s.view = func() (part, error) { return viewPart{e.View}, nil }
	}
	return s
}

// viewPart is a View with nothing to close.
type viewPart struct{ View }

func (viewPart) Close() error { return nil }

var runtimes struct {
	sync.Mutex
	all []Runtime
}

// Register adds a family of allocators. Init functions call it. It panics if
// the name is empty or taken.
func Register(r Runtime) {
	runtimes.Lock()
	defer runtimes.Unlock()
	if r.Name == "" || r.Discover == nil {
		panic("gpualloc: Register of a runtime without name or Discover")
	}
	for _, have := range runtimes.all {
		if have.Name == r.Name {
			panic(fmt.Sprintf("gpualloc: Register called twice for %q", r.Name))
		}
	}
	runtimes.all = append(runtimes.all, r)
}

// registered lists the backends of registered runtimes that spec can mean, all
// of them for "". Loading a vendor's library is not for nothing: another family's
// name, and a spec that begins with one, leaves it alone.
func registered(spec string) []backend {
	runtimes.Lock()
	defer runtimes.Unlock()
	family, _, _ := strings.Cut(spec, ":")
	var out []backend
	for _, r := range runtimes.all {
		if family == r.Name || !knownFamily(family) {
			out = append(out, runtimeBackend{r})
		}
	}
	return out
}

// knownFamily: runtimes is locked.
func knownFamily(name string) bool {
	return name == "drm" || name == "heap" || name == "udmabuf" || slices.ContainsFunc(runtimes.all, func(r Runtime) bool { return r.Name == name })
}

// isRegistered reports whether the program has a Runtime of that name.
func isRegistered(name string) bool {
	runtimes.Lock()
	defer runtimes.Unlock()
	return slices.ContainsFunc(runtimes.all, func(r Runtime) bool { return r.Name == name })
}

// runtimeBackend makes candidates of what a Runtime finds.
type runtimeBackend struct{ Runtime }

func (b runtimeBackend) discover(env Env, _ string) []candidate {
	var out []candidate
	for _, f := range b.Discover(env) {
		c := candidate{Description: f.Description, err: f.Err, rank: rankRuntime}
		if f.Alternative {
			c.rank = rankAlternative
		}
		if f.Available {
			c.open = func(env Env, d Description) (Allocator, error) {
				e, err := f.Open(env)
				if err != nil {
					return nil, err
				}
				return newAllocator(env, d, runtimeExporter{e}), nil
			}
		}
		out = append(out, c)
	}
	return out
}

// runtimeExporter is a runtime's Exporter as the allocator wants it.
type runtimeExporter struct{ e Exporter }

func (r runtimeExporter) granule() int64          { return r.e.Granule() }
func (r runtimeExporter) fds() (peak, stay int64) { return r.e.FDs() }
func (r runtimeExporter) limits() []Limit         { return r.e.Limits() }
func (r runtimeExporter) close() error            { return r.e.Close() }

func (r runtimeExporter) export(ctx context.Context, size int64, name string) (Segment, func() error, error) {
	e, err := r.e.Export(ctx, size, name)
	if err != nil {
		return Segment{}, nil, err
	}
	return e.segment(), e.Free, nil
}
