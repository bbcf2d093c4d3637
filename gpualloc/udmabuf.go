// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/devnode"
)

// udmabufBackend exports pages of a memfd through /dev/udmabuf.
type udmabufBackend struct{}

func (udmabufBackend) discover(env Env, spec string) []candidate {
	if spec != "" && !inFamily(spec, "udmabuf") {
		return nil
	}
	c := candidate{
		Description: Description{
			Spec: "udmabuf", Exporter: "udmabuf", Driver: "udmabuf",
			Device: filepath.Join(env.dev(), "udmabuf"), Kind: KindSystem,
		},
		rank: rankUDMABuf,
	}
	err := usable(c.Device, unix.R_OK|unix.W_OK, "load the module (modprobe udmabuf); the kernel needs CONFIG_UDMABUF")
	if err != nil {
		c.refused(err)
		return []candidate{c}
	}
	c.Available = true
	if _, size, err := dmabuf.UDMABufLimits(env.Sys); err == nil {
		c.MaxSize = size
		c.Limits = []Limit{{
			Name: "udmabuf.size_limit_mb", Bytes: size, Scope: scopeSegment,
			Where: "/sys/module/udmabuf/parameters/size_limit_mb",
			Raise: "write a higher number of MiB to /sys/module/udmabuf/parameters/size_limit_mb, or " + atMost(size),
		}}
	}
	c.open = openUDMABuf
	return []candidate{c}
}

// usable asks whether the node may be opened, without opening it. mode is
// unix.R_OK and unix.W_OK.
func usable(path string, mode uint32, missing string) error {
	err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
	if err == nil {
		return nil
	}
	e := &failure.Error{Op: "open", Device: path, Err: err}
	e.Detail, e.Remedy = devnode.Explain(path, err, missing)
	return e
}

func openUDMABuf(env Env, d Description) (Allocator, error) {
	return newAllocator(env, d, udmabufExporter{device: d.Device}), nil
}

type udmabufExporter struct{ device string }

func (udmabufExporter) granule() int64          { return int64(os.Getpagesize()) }
func (udmabufExporter) fds() (peak, stay int64) { return 3, 1 } // memfd, device, dma-buf
func (udmabufExporter) close() error            { return nil }

func (u udmabufExporter) export(_ context.Context, size int64, name string) (Segment, func() error, error) {
	if name == "" {
		name = "gpurdma"
	}
	mem, err := dmabuf.NewMemfd(name, size)
	if err != nil {
		return Segment{}, nil, err
	}
	defer mem.Close() // the udmabuf keeps the pages
	var buf *dmabuf.Buf
	err = mem.Do(func(fd int) (err error) {
		buf, err = dmabuf.CreateUDMABuf([]dmabuf.Range{{FD: fd, Size: size}}, dmabuf.UDMABufDevice(u.device))
		return err
	})
	if err != nil {
		return Segment{}, nil, err
	}
	return Segment{Buf: buf, Size: buf.Size()}, nil, nil
}
