// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapShared maps the first size bytes of a file. unix.Mmap would do, but keeps
// a list of what it has mapped.
func mapShared(raw, size int) (pages []byte, unmap func(), err error) {
	p, err := unix.MmapPtr(raw, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*byte)(p), size), func() { _ = unix.MunmapPtr(p, uintptr(size)) }, nil
}
