// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/devnode"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Range is a part of a memfd. Offset and Size are in bytes and multiples of
// the page size. FD is borrowed.
type Range struct {
	FD           int
	Offset, Size int64
}

// UDMABufOption changes how CreateUDMABuf works.
type UDMABufOption func(*udmabufConfig)

type udmabufConfig struct {
	device string
	sys    string
	create createFunc
}

// UDMABufDevice names the device node; the default is "/dev/udmabuf".
func UDMABufDevice(path string) UDMABufOption {
	return func(c *udmabufConfig) { c.device = path }
}

// CreateUDMABuf exports ranges of memfds, in their order, as one dma-buf. The
// memfds must be sealed with F_SEAL_SHRINK and not with F_SEAL_WRITE
// ([NewMemfd] makes such); they may be closed afterwards.
//
// Errors: EINVAL for memory that is no memfd, unsealed, unaligned or past the
// file's end, or over the module's limits ([UDMABufLimits]); ENOENT when the
// kernel has no udmabuf. Needs Linux 4.20 and CONFIG_UDMABUF. Source:
// include/uapi/linux/udmabuf.h, drivers/dma-buf/udmabuf.c.
func CreateUDMABuf(ranges []Range, opt ...UDMABufOption) (*Buf, error) {
	c := udmabufConfig{device: "/dev/udmabuf", create: createKernel}
	for _, o := range opt {
		o(&c)
	}
	total, err := checkRanges(c.device, ranges)
	if err != nil {
		return nil, err
	}
	dev := -1
	err = retry(func() (err error) {
		dev, err = unix.Open(c.device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, openError(c.device, err, "load the module (modprobe udmabuf); the kernel needs CONFIG_UDMABUF")
	}
	defer unix.Close(dev) //nolint:errcheck // of a device that keeps nothing
	var raw int
	op := "UDMABUF_CREATE"
	if len(ranges) == 1 {
		raw, err = udmabufCreate(c.create, dev, ranges[0])
	} else {
		op = "UDMABUF_CREATE_LIST"
		raw, err = udmabufCreateList(c.create, dev, ranges)
	}
	if err != nil {
		return nil, c.explain(op, ranges, total, err)
	}
	b, err := NewExported(raw)
	if err != nil {
		_ = unix.Close(raw)
		return nil, err
	}
	return b, nil
}

func checkRanges(device string, ranges []Range) (total int64, err error) {
	page := int64(os.Getpagesize())
	refuse := func(detail, remedy string) error {
		return &failure.Error{Op: "UDMABUF_CREATE", Device: device, Detail: detail, Remedy: remedy, Err: failure.ErrRange}
	}
	if len(ranges) == 0 {
		return 0, refuse("no ranges", "give at least one")
	}
	for i, r := range ranges {
		switch {
		case r.FD < 0:
			return 0, failed("UDMABUF_CREATE", r.FD, unix.EBADF)
		case r.Size <= 0 || r.Offset < 0 || r.Size%page != 0 || r.Offset%page != 0:
			return 0, refuse(fmt.Sprintf("range %d: offset %#x, size %#x", i, r.Offset, r.Size),
				fmt.Sprintf("use multiples of the page size, %#x, and a size above 0", page))
		case r.Size > math.MaxInt64-r.Offset || r.Size > math.MaxInt64-total:
			return 0, refuse(fmt.Sprintf("range %d: offset %#x, size %#x overflow", i, r.Offset, r.Size), "")
		}
		total += r.Size
	}
	return total, nil
}

// explain finds out which of udmabuf's many EINVALs this one is.
func (c udmabufConfig) explain(op string, ranges []Range, total int64, err error) error {
	e := &failure.Error{
		Op: op, Device: c.device,
		Detail: fmt.Sprintf("%d ranges, %s", len(ranges), bytesize.Format(total)),
		Err:    err,
	}
	if len(ranges) == 1 {
		e.Detail = bytesize.Format(total)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBADFD) {
		return e
	}
	if entries, size, err := UDMABufLimits(c.sys); err == nil {
		switch {
		case len(ranges) > entries:
			e.Detail += fmt.Sprintf(", over the limit of %d ranges", entries)
			e.Remedy = "use fewer ranges, or raise " + udmabufParam("list_limit")
			return e
		case total > size:
			e.Detail += fmt.Sprintf(", over the limit of %s", bytesize.Format(size))
			e.Remedy = "ask for less, or raise " + udmabufParam("size_limit_mb")
			return e
		}
	}
	for i, r := range ranges {
		if why, remedy := badRange(r); why != "" {
			e.Detail += fmt.Sprintf("; range %d: %s", i, why)
			e.Remedy = remedy
			return e
		}
	}
	return e
}

func badRange(r Range) (why, remedy string) {
	seals, err := unix.FcntlInt(uintptr(r.FD), unix.F_GET_SEALS, 0)
	if errors.Is(err, unix.EBADF) {
		return fmt.Sprintf("fd %d is not open", r.FD), "pass an open memfd"
	}
	if err != nil {
		return fmt.Sprintf("fd %d is not a memfd", r.FD), "pass a memfd made with MFD_ALLOW_SEALING"
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Sprintf("fd %d may still shrink", r.FD), "seal the memfd with F_SEAL_SHRINK"
	}
	if seals&unix.F_SEAL_WRITE != 0 {
		return fmt.Sprintf("fd %d is sealed against writing", r.FD), "do not seal the memfd with F_SEAL_WRITE"
	}
	var st unix.Stat_t
	if err := unix.Fstat(r.FD, &st); err == nil && r.Offset+r.Size > st.Size {
		return fmt.Sprintf("offset %#x + size %#x > %#x, the memfd's size", r.Offset, r.Size, st.Size), "stay inside the memfd"
	}
	return "", ""
}

func udmabufParam(name string) string { return "/sys/module/udmabuf/parameters/" + name }

// UDMABufLimits reads the most ranges of one udmabuf and its largest size in
// bytes, from the module's parameters list_limit and size_limit_mb. sys is the
// root of sysfs, "" for /sys.
func UDMABufLimits(sys string) (entries int, bytes int64, err error) {
	s := sysfs.New(sys)
	const dir = "module/udmabuf/parameters"
	list, err := s.ReadInt(filepath.Join(dir, "list_limit"))
	if err != nil {
		return 0, 0, err
	}
	mb, err := s.ReadInt(filepath.Join(dir, "size_limit_mb"))
	if err != nil {
		return 0, 0, err
	}
	if list < 0 || mb < 0 || mb > math.MaxInt64>>20 {
		return 0, 0, fmt.Errorf("%s: %w", strconv.Quote(strings.Join([]string{dir, fmt.Sprint(list), fmt.Sprint(mb)}, " ")), failure.ErrRange)
	}
	return int(min(list, math.MaxInt)), mb << 20, nil
}

// openError explains a device node that could not be opened.
func openError(path string, err error, missing string) error {
	e := &failure.Error{Op: "open", Device: path, Err: err}
	var n unix.Errno
	if errors.As(err, &n) {
		e.Err = n
	}
	e.Detail, e.Remedy = devnode.Explain(path, err, missing)
	return e
}
