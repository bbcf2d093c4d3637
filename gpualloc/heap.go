// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// heapBackend exports memory of the kernel's dma-heaps.
type heapBackend struct{}

const noHeaps = "the kernel needs CONFIG_DMABUF_HEAPS and CONFIG_DMABUF_HEAPS_SYSTEM"

func (heapBackend) discover(env Env, spec string) []candidate {
	if spec != "" && !inFamily(spec, "heap") {
		return nil
	}
	heap := func(name string) candidate {
		return candidate{
			Description: Description{
				Spec: "heap:" + name, Exporter: name, Driver: "dma-heap",
				Device: filepath.Join(env.dev(), "dma_heap", name), Kind: KindSystem,
			},
			rank: rankHeap,
		}
	}
	names, err := dmabuf.Heaps(env.Dev)
	if len(names) == 0 {
		c := heap("system")
		if err == nil {
			err = usable(c.Device, unix.R_OK, noHeaps)
		}
		c.refused(err)
		return []candidate{c}
	}
	var out []candidate
	for _, name := range names {
		c := heap(name)
		if name != "system" {
			c.rank = rankVirtual // small reserved areas: a choice, not a default
		}
		if err := usable(c.Device, unix.R_OK, noHeaps); err != nil {
			c.refused(err)
		} else {
			c.Available, c.open = true, openHeap
		}
		out = append(out, c)
	}
	return out
}

func openHeap(env Env, d Description) (Allocator, error) {
	h, err := dmabuf.OpenHeap(d.Device)
	if err != nil {
		return nil, err
	}
	return newAllocator(env, d, heapExporter{h}), nil
}

type heapExporter struct{ heap *dmabuf.Heap }

func (heapExporter) granule() int64          { return int64(os.Getpagesize()) }
func (heapExporter) fds() (peak, stay int64) { return 1, 1 }
func (h heapExporter) close() error          { return h.heap.Close() }

func (h heapExporter) export(_ context.Context, size int64, _ string) (Segment, func() error, error) {
	buf, err := h.heap.Alloc(size)
	if err != nil {
		return Segment{}, nil, err
	}
	return Segment{Buf: buf, Size: buf.Size()}, nil, nil
}
