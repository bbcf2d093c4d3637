// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// Flags of PrimeHandleToFD.
const (
	Cloexec   uint32 = unix.O_CLOEXEC // DRM_CLOEXEC; always set here
	ReadWrite uint32 = unix.O_RDWR    // DRM_RDWR: the dma-buf can be mapped for writing
)

// PrimeHandleToFD exports a GEM object as a dma-buf. The caller closes the
// dma-buf, which does not need the handle nor the Device any more. flags is 0
// or ReadWrite; without ReadWrite the dma-buf can be mapped for reading only.
//
// Errors: ENOENT for an unknown handle, ENOSYS or EOPNOTSUPP where the driver
// cannot export.
func (d *Device) PrimeHandleToFD(handle, flags uint32) (*dmabuf.Buf, error) {
	const op = "DRM_IOCTL_PRIME_HANDLE_TO_FD"
	raw := -1
	err := d.fd.Do(func(n int) (err error) {
		raw, err = primeHandleToFD(d.t, n, handle, flags|Cloexec)
		return err
	})
	if err != nil {
		return nil, d.failHandle(op, handle, err)
	}
	b, err := dmabuf.NewExported(raw)
	if err != nil {
		if raw >= 0 {
			_ = unix.Close(raw)
		}
		return nil, d.failHandle(op, handle, err)
	}
	return b, nil
}

// PrimeFDToHandle imports a dma-buf, which it borrows, and returns a GEM handle
// for it. The caller drops the handle by GEMClose. If the Device has a handle
// for the buffer already, because it has imported or exported it before,
// PrimeFDToHandle returns the same handle, which is still dropped once.
//
// Errors: ENOTTY or EINVAL for a descriptor that is no dma-buf, ENOSYS where
// the driver cannot import.
func (d *Device) PrimeFDToHandle(b *dmabuf.Buf) (uint32, error) {
	var handle uint32
	err := d.fd.Do(func(n int) error {
		return b.Do(func(raw int) (err error) {
			handle, err = primeFDToHandle(d.t, n, raw)
			return err
		})
	})
	if err != nil {
		return 0, d.fail("DRM_IOCTL_PRIME_FD_TO_HANDLE", b.String(), err)
	}
	return handle, nil
}
