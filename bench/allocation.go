// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
)

// compareAllocation measures allocation, export and freeing.
func compareAllocation(ctx context.Context, opt options) ([]row, error) {
	return opt.each(func(spec string, size int64) (row, error) {
		return compareAllocationOf(ctx, opt, spec, size)
	})
}

func compareAllocationOf(ctx context.Context, opt options, spec string, size int64) (row, error) {
	alloc, err := openAllocator(spec, size)
	if err != nil {
		return row{}, err
	}
	defer alloc.Close()
	desc := alloc.Describe()
	kind, err := cKind(desc)
	if err != nil {
		return row{}, err
	}
	goSide := func(n int) ([]time.Duration, error) {
		ns := make([]time.Duration, n)
		for i := range ns {
			start := clock()
			buf, err := alloc.Alloc(ctx, size, gpualloc.Options{})
			if err != nil {
				return nil, err
			}
			if err := buf.Close(); err != nil {
				return nil, err
			}
			ns[i] = clock() - start
		}
		return ns, nil
	}
	// As much as the driver gives, which may be more than was asked for.
	buf, err := alloc.Alloc(ctx, size, gpualloc.Options{})
	if err != nil {
		return row{}, err
	}
	size = buf.Size()
	if err := buf.Close(); err != nil {
		return row{}, err
	}
	peers, err := startPeers("alloc-loop", nil, kind, desc.Device, strconv.FormatInt(size, 10))
	if err != nil {
		return row{}, err
	}
	defer peers.close()
	return alternate(ctx, opt, row{Exporter: spec, Size: size}, goSide, peers[0].run, peers[1].run)
}

// cKind is the C program's name for an allocator.
func cKind(d gpualloc.Description) (string, error) {
	name, place, _ := strings.Cut(d.Spec, "/")
	class := d.Class
	if class == "" {
		class = d.Driver
	}
	switch {
	case name == "udmabuf":
		return "udmabuf", nil
	case strings.HasPrefix(name, "heap:"):
		return "heap", nil
	case !strings.HasPrefix(name, "drm:"):
	case class != "amdgpu" && class != "i915" && class != "xe":
		return "dumb", nil
	case place == "" || place == "vram":
		return class, nil
	}
	return "", fmt.Errorf("%w: the C program does not allocate from %s", errSkip, d.Spec)
}
