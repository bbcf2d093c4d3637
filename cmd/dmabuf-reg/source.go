// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd/region"
)

// allocated describes an allocated or imported buffer.
type allocated struct {
	Spec      string `json:"spec"` // "" for an imported descriptor
	Exporter  string `json:"exporter"`
	Device    string `json:"device"`
	PCI       string `json:"pci"`
	Kind      string `json:"kind"`      // the kind that the allocator asked for, not a proof of placement
	Requested int64  `json:"requested"` // bytes asked for
	Size      int64  `json:"size"`      // bytes allocated
	Inode     uint64 `json:"inode"`     // of the first segment
	Segments  int    `json:"segments"`
}

func (m *allocated) vram() bool { return m.Kind == gpualloc.KindVRAM.String() }

// words are its kind. Where a driver keeps what was asked for in VRAM is its affair.
func (m *allocated) words() string {
	if m.vram() {
		return "asked for in VRAM"
	}
	return m.Kind + " memory"
}

// source is the buffer to register, allocated by us or handed in.
type source struct {
	allocated
	segments []region.Segment
	owner    dmabuf.Holder
	alloc    *gpualloc.Buffer // nil if imported
	close    func() error
}

func importFD(fd int) (*source, error) {
	buf, err := dmabuf.Import(fd)
	if err != nil {
		return nil, err
	}
	info, err := buf.Info()
	if err != nil {
		return nil, errors.Join(err, buf.Close())
	}
	return &source{
		allocated: allocated{
			Exporter: info.Exporter, Device: fmt.Sprintf("fd %d", fd), Kind: gpualloc.KindUnknown.String(),
			Requested: buf.Size(), Size: buf.Size(), Inode: buf.Inode(), Segments: 1,
		},
		segments: []region.Segment{{Buf: buf, Length: uint64(buf.Size())}},
		close:    buf.Close,
	}, nil
}

// allocate makes a buffer that is going to be registered.
func allocate(ctx context.Context, spec string, size int64, force bool) (_ *source, err error) {
	allocator, err := openAllocator(spec)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, allocator.Close())
		}
	}()
	buf, err := allocator.Alloc(ctx, size, gpualloc.Options{Name: program, Force: force})
	if err != nil {
		return nil, err
	}
	if !force {
		if err := nvml.CheckBAR1(buf); err != nil {
			return nil, errors.Join(err, buf.Close())
		}
	}
	s := &source{
		allocated: allocated{
			Spec: buf.Spec(), Exporter: buf.Exporter(), Device: buf.Device(), Kind: buf.Kind().String(),
			Requested: buf.Requested(), Size: buf.Size(), Segments: len(buf.Segments()),
		},
		owner: buf,
		alloc: buf,
		close: func() error { return errors.Join(buf.Close(), allocator.Close()) },
	}
	if addr, ok := buf.PCI(); ok {
		s.PCI = addr.String()
	}
	for i, seg := range buf.Segments() {
		if i == 0 {
			s.Inode = seg.Buf.Inode()
		}
		s.segments = append(s.segments, region.Segment{Buf: seg.Buf, Offset: uint64(seg.Offset), Length: uint64(seg.Size), Addr: seg.Addr})
	}
	return s, nil
}

// openAllocator opens what --gpu names.
func openAllocator(spec string) (gpualloc.Allocator, error) {
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	switch {
	case errors.Is(err, fs.ErrPermission): // it is there
		return nil, err
	case errors.Is(err, gpualloc.ErrAmbiguousSpec):
		return nil, &cli.UsageError{Err: err}
	case errors.Is(err, gpualloc.ErrUnknownSpec), errors.Is(err, gpualloc.ErrUnavailable):
		return nil, &cli.Unavailable{Err: err}
	}
	return a, err
}

// notTried is an allocator that this machine does not offer.
type notTried struct {
	Spec   string `json:"spec"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}
