// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/linux/udmabuf.h.

// abiUDMABufCreate is struct udmabuf_create.
type abiUDMABufCreate struct {
	_      structs.HostLayout
	Memfd  uint32
	Flags  uint32
	Offset uint64
	Size   uint64
}

// abiUDMABufItem is struct udmabuf_create_item.
type abiUDMABufItem struct {
	_      structs.HostLayout
	Memfd  uint32
	Pad    uint32
	Offset uint64
	Size   uint64
}

// abiUDMABufList is struct udmabuf_create_list without its flexible array.
type abiUDMABufList struct {
	_     structs.HostLayout
	Flags uint32
	Count uint32
}

const (
	udmabufCloexec = 0x01 // UDMABUF_FLAGS_CLOEXEC
	udmabufMagic   = 'u'
)

var (
	reqUDMABufCreate     = ioctl.IOW(udmabufMagic, 0x42, uint32(unsafe.Sizeof(abiUDMABufCreate{}))) // UDMABUF_CREATE
	reqUDMABufCreateList = ioctl.IOW(udmabufMagic, 0x43, uint32(unsafe.Sizeof(abiUDMABufList{})))   // UDMABUF_CREATE_LIST
)

// createFunc issues an ioctl whose result, the number that ioctl(2) returns, is
// a new descriptor. An ioctl.Transport has no room for that number.
type createFunc func(fd int, req uint32, arg unsafe.Pointer) (int, error)

// createKernel is the createFunc of the running kernel.
func createKernel(fd int, req uint32, arg unsafe.Pointer) (int, error) {
	for {
		r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg))
		switch e {
		case 0:
			return int(r), nil
		case unix.EINTR:
			continue
		}
		return -1, e
	}
}

func udmabufCreate(create createFunc, fd int, r Range) (int, error) {
	arg := abiUDMABufCreate{
		Memfd:  uint32(r.FD),
		Flags:  udmabufCloexec,
		Offset: uint64(r.Offset),
		Size:   uint64(r.Size),
	}
	return create(fd, reqUDMABufCreate, unsafe.Pointer(&arg))
}

func udmabufCreateList(create createFunc, fd int, ranges []Range) (int, error) {
	const head, item = int(unsafe.Sizeof(abiUDMABufList{})), int(unsafe.Sizeof(abiUDMABufItem{}))
	// uint64 words keep the structures aligned.
	arg := make([]uint64, (head+item*len(ranges))/8)
	*(*abiUDMABufList)(unsafe.Pointer(&arg[0])) = abiUDMABufList{Flags: udmabufCloexec, Count: uint32(len(ranges))}
	for i, r := range ranges {
		*(*abiUDMABufItem)(unsafe.Pointer(&arg[(head+item*i)/8])) = abiUDMABufItem{
			Memfd:  uint32(r.FD),
			Offset: uint64(r.Offset),
			Size:   uint64(r.Size),
		}
	}
	return create(fd, reqUDMABufCreateList, unsafe.Pointer(&arg[0]))
}
