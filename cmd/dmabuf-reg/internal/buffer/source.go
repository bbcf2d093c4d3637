// SPDX-License-Identifier: Apache-2.0

package buffer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd/region"
)

// Description describes an allocated or imported buffer.
type Description struct {
	Spec     string `json:"spec"`     // the name of the allocator, as --gpu takes it; "" for an imported descriptor
	Exporter string `json:"exporter"` // the dma-buf's exporter as fdinfo shows it
	Device   string `json:"device"`   // the device node that the memory comes from; "" if there is none
	// PCI is the PCI address of the function that the memory comes from; "" if there is none.
	PCI string `json:"pci"`
	// Kind is the kind of memory that the allocator asked for: "system", "vram" or "unknown". It does
	// not prove where the bytes are.
	Kind      string `json:"kind"`
	Requested int64  `json:"requested"` // the bytes that were asked for
	Size      int64  `json:"size"`      // the bytes that were allocated, after rounding up
	Inode     uint64 `json:"inode"`     // the inode of the first segment's dma-buf
	Segments  int    `json:"segments"`  // how many dma-bufs the memory has
}

// VRAM reports whether the allocator asked for memory of a GPU.
func (m *Description) VRAM() bool { return m.Kind == gpualloc.KindVRAM.String() }

// Words are its kind. Where a driver keeps what was asked for in VRAM is its affair.
func (m *Description) Words() string {
	if m.VRAM() {
		return "asked for in VRAM"
	}
	return m.Kind + " memory"
}

// Source is the buffer to register, allocated by us or handed in.
type Source struct {
	Description
	Segments []region.Segment
	Owner    dmabuf.Holder
	Alloc    *gpualloc.Buffer // nil if imported
	Close    func() error
}

// Import takes a dma-buf whose descriptor the parent process has left open. It borrows the descriptor.
func Import(fd int) (*Source, error) {
	buf, err := dmabuf.Import(fd)
	if err != nil {
		return nil, err
	}
	info, err := buf.Info()
	if err != nil {
		return nil, errors.Join(err, buf.Close())
	}
	return &Source{
		Description: Description{
			Exporter: info.Exporter, Device: fmt.Sprintf("fd %d", fd), Kind: gpualloc.KindUnknown.String(),
			Requested: buf.Size(), Size: buf.Size(), Inode: buf.Inode(), Segments: 1,
		},
		Segments: []region.Segment{{Buf: buf, Length: uint64(buf.Size())}},
		Close:    buf.Close,
	}, nil
}

// Allocate makes a buffer that is going to be registered.
func Allocate(ctx context.Context, spec string, size int64, force bool) (_ *Source, err error) {
	allocator, err := OpenAllocator(spec)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, allocator.Close())
		}
	}()
	buf, err := allocator.Alloc(ctx, size, gpualloc.Options{Name: app.Program, Force: force})
	if err != nil {
		return nil, err
	}
	if !force {
		if err := nvml.CheckBAR1(buf); err != nil {
			return nil, errors.Join(err, buf.Close())
		}
	}
	s := &Source{
		Description: Description{
			Spec: buf.Spec(), Exporter: buf.Exporter(), Device: buf.Device(), Kind: buf.Kind().String(),
			Requested: buf.Requested(), Size: buf.Size(), Segments: len(buf.Segments()),
		},
		Owner: buf,
		Alloc: buf,
		Close: func() error { return errors.Join(buf.Close(), allocator.Close()) },
	}
	if addr, ok := buf.PCI(); ok {
		s.PCI = addr.String()
	}
	for i, seg := range buf.Segments() {
		if i == 0 {
			s.Inode = seg.Buf.Inode()
		}
		s.Segments = append(s.Segments, region.Segment{Buf: seg.Buf, Offset: uint64(seg.Offset), Length: uint64(seg.Size), Addr: seg.Addr})
	}
	return s, nil
}

// Host is the --gpu of host memory, which no exporter makes.
const Host = "host"

// NeedExporter refuses host memory for a command that is about dma-bufs.
func NeedExporter(command, spec string) error {
	if spec != Host {
		return nil
	}
	return &cli.UsageError{Err: fmt.Errorf("--gpu %s: %s is about dma-bufs, and no driver exports host memory as one: udmabuf is system memory as a dma-buf; serve, connect, bench and mesh take %s", spec, command, spec)}
}

// OpenAllocator opens what --gpu names.
func OpenAllocator(spec string) (gpualloc.Allocator, error) {
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

// NotTried is an allocator that this machine does not offer.
type NotTried struct {
	Spec   string `json:"spec"`   // the name of the allocator
	Why    string `json:"why"`    // why it cannot be used here
	Remedy string `json:"remedy"` // what to change
}
