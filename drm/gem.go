// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// GEM is a buffer of a driver: a handle of the Device that made it, dropped by
// [Device.GEMClose] or with the Device.
type GEM struct {
	Handle uint32
	Size   int64 // bytes, as the driver rounded it up
}

// Region is memory in which a GPU's driver makes buffers.
type Region struct {
	VRAM     bool   // the GPU's own; otherwise the machine's
	Instance uint16 // the driver's number for it
	Size     int64  // bytes
	// Visible is the number of bytes that CPUs and other devices reach: of VRAM,
	// the part behind the BAR.
	Visible int64
	// Used and VisibleUsed are bytes taken. Intel's drivers report them only to
	// processes with CAP_PERFMON; for others they are 0.
	Used, VisibleUsed int64
	// Page is the size in bytes of which a buffer's size is, or must be, a
	// multiple; 0 if the driver does not say.
	Page int64
}

// String names the region for messages.
func (r Region) String() string {
	if r.VRAM {
		return fmt.Sprintf("VRAM %d", r.Instance)
	}
	return "system memory"
}

// speaks refuses a Device of another driver: each driver gives the request numbers
// from DRM_COMMAND_BASE on a meaning of its own.
func (d *Device) speaks(driver string) error {
	v, err := d.Version()
	if err != nil {
		return err
	}
	if v.Name != driver {
		return &failure.Error{
			Op: driver + "'s ioctls", Device: d.path, Detail: "the driver is " + v.Name,
			Remedy: "open a node of a GPU that " + driver + " drives", Err: unix.ENOTTY,
		}
	}
	return nil
}

// create runs fn, which makes a buffer. It closes a buffer that is smaller than size,
// and fails. where returns the place in words, for the error.
func (d *Device) create(op string, size int64, where func() string, fn func(fd int) (GEM, error)) (GEM, error) {
	if size <= 0 {
		return GEM{}, d.fail(op, fmt.Sprintf("size %d", size), failure.ErrRange)
	}
	var g GEM
	err := d.fd.Do(func(raw int) (err error) {
		g, err = fn(raw)
		return err
	})
	if err != nil {
		return GEM{}, d.fail(op, fmt.Sprintf("%d bytes in %s", size, where()), err)
	}
	if g.Size < size {
		_ = d.GEMClose(g.Handle)
		return GEM{}, d.fail(op, fmt.Sprintf("asked for %d bytes, the driver answers %d", size, g.Size), unix.EPROTO)
	}
	return g, nil
}

// offset asks where the node's own mmap shows a buffer.
func (d *Device) offset(op string, handle uint32, fn func(fd int) (uint64, error)) (offset uint64, err error) {
	err = d.fd.Do(func(raw int) (err error) {
		offset, err = fn(raw)
		return err
	})
	return offset, d.failHandle(op, handle, err)
}
