// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
)

// compareAllocation measures allocation, export and freeing.
func compareAllocation(ctx context.Context, opt options) ([]row, error) {
	return opt.each(func(spec string, size int64) (row, error) {
		return compareAllocationOf(ctx, opt, spec, size, false)
	})
}

// compareTouched measures the same with a write to each page in between: many
// exporters allocate no memory before.
func compareTouched(ctx context.Context, opt options) ([]row, error) {
	return opt.each(func(spec string, size int64) (row, error) {
		return compareAllocationOf(ctx, opt, spec, size, true)
	})
}

func compareAllocationOf(ctx context.Context, opt options, spec string, size int64, touched bool) (row, error) {
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
			if touched {
				if err := touch(buf); err != nil {
					return nil, err
				}
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
	args := []string{kind, desc.Device, strconv.FormatInt(size, 10)}
	if touched {
		args = append(args, "touch")
	}
	peers, err := startPeers("alloc-loop", nil, args...)
	if err != nil {
		return row{}, err
	}
	defer peers.close()
	return alternate(ctx, opt, row{Exporter: spec, Size: size}, goSide, peers[0].run, peers[1].run)
}

// touch writes a byte of each page through a mapping of the dma-buf, as the C program
// does.
func touch(buf *gpualloc.Buffer) error {
	for _, s := range buf.Segments() {
		raw, err := s.Buf.Acquire()
		if err != nil {
			return err
		}
		p, err := unix.Mmap(raw, 0, int(s.Offset+s.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		s.Buf.Release()
		if err != nil {
			return fmt.Errorf("mmap: %w", err)
		}
		for at := int(s.Offset); at < len(p); at += pageSize {
			p[at] = 1
		}
		if err := unix.Munmap(p); err != nil {
			return fmt.Errorf("munmap: %w", err)
		}
	}
	return nil
}

var pageSize = os.Getpagesize()

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
