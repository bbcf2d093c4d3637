// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"runtime"
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/drm/drm.h.

// abiVersion is struct drm_version. The strings are not zero-terminated.
type abiVersion struct {
	_       structs.HostLayout
	Major   int32
	Minor   int32
	Patch   int32
	Pad     int32
	NameLen uint64
	Name    *byte
	DateLen uint64
	Date    *byte
	DescLen uint64
	Desc    *byte
}

// abiGemClose is struct drm_gem_close.
type abiGemClose struct {
	_      structs.HostLayout
	Handle uint32
	Pad    uint32
}

// abiGetCap is struct drm_get_cap.
type abiGetCap struct {
	_          structs.HostLayout
	Capability uint64
	Value      uint64
}

// abiPrimeHandle is struct drm_prime_handle.
type abiPrimeHandle struct {
	_      structs.HostLayout
	Handle uint32
	Flags  uint32
	FD     int32
}

const (
	drmBase     = 'd'  // DRM_IOCTL_BASE
	commandBase = 0x40 // DRM_COMMAND_BASE: where a driver's own ioctls begin
)

var (
	reqVersion         = ioctl.IOWR(drmBase, 0x00, uint32(unsafe.Sizeof(abiVersion{})))     // DRM_IOCTL_VERSION
	reqGemClose        = ioctl.IOW(drmBase, 0x09, uint32(unsafe.Sizeof(abiGemClose{})))     // DRM_IOCTL_GEM_CLOSE
	reqGetCap          = ioctl.IOWR(drmBase, 0x0c, uint32(unsafe.Sizeof(abiGetCap{})))      // DRM_IOCTL_GET_CAP
	reqDropMaster      = ioctl.IO(drmBase, 0x1f)                                            // DRM_IOCTL_DROP_MASTER
	reqPrimeHandleToFD = ioctl.IOWR(drmBase, 0x2d, uint32(unsafe.Sizeof(abiPrimeHandle{}))) // DRM_IOCTL_PRIME_HANDLE_TO_FD
	reqPrimeFDToHandle = ioctl.IOWR(drmBase, 0x2e, uint32(unsafe.Sizeof(abiPrimeHandle{}))) // DRM_IOCTL_PRIME_FD_TO_HANDLE
)

// maxVersionText bounds what a driver may make us allocate for one string.
const maxVersionText = 1 << 10

// version asks twice: for the lengths, then for the strings.
func version(t ioctl.Transport, fd int) (Version, error) {
	arg := new(abiVersion)
	if err := t.Ioctl(fd, reqVersion, unsafe.Pointer(arg)); err != nil {
		return Version{}, err
	}
	v := Version{Major: int(arg.Major), Minor: int(arg.Minor), Patch: int(arg.Patch)}
	// The structure carries addresses, which the collector does not follow into
	// the kernel: pin what they point to for the call.
	var pin runtime.Pinner
	defer pin.Unpin()
	text := func(length uint64) ([]byte, *byte) {
		if length == 0 {
			return nil, nil
		}
		b := make([]byte, min(length, maxVersionText))
		pin.Pin(&b[0])
		return b, &b[0]
	}
	var name, date, desc []byte
	again := new(abiVersion)
	name, again.Name = text(arg.NameLen)
	date, again.Date = text(arg.DateLen)
	desc, again.Desc = text(arg.DescLen)
	again.NameLen, again.DateLen, again.DescLen = uint64(len(name)), uint64(len(date)), uint64(len(desc))
	if err := t.Ioctl(fd, reqVersion, unsafe.Pointer(again)); err != nil {
		return Version{}, err
	}
	// The kernel answers the full length even where it copied less.
	cut := func(b []byte, length uint64) string { return string(b[:min(uint64(len(b)), length)]) }
	v.Name, v.Date, v.Desc = cut(name, again.NameLen), cut(date, again.DateLen), cut(desc, again.DescLen)
	return v, nil
}

func getCap(t ioctl.Transport, fd int, capability uint64) (uint64, error) {
	arg := abiGetCap{Capability: capability}
	err := t.Ioctl(fd, reqGetCap, unsafe.Pointer(&arg))
	return arg.Value, err
}

func gemClose(t ioctl.Transport, fd int, handle uint32) error {
	return t.Ioctl(fd, reqGemClose, unsafe.Pointer(&abiGemClose{Handle: handle}))
}

func dropMaster(t ioctl.Transport, fd int) error { return t.Ioctl(fd, reqDropMaster, nil) }

func primeHandleToFD(t ioctl.Transport, fd int, handle, flags uint32) (int, error) {
	arg := abiPrimeHandle{Handle: handle, Flags: flags, FD: -1}
	err := t.Ioctl(fd, reqPrimeHandleToFD, unsafe.Pointer(&arg))
	return int(arg.FD), err
}

func primeFDToHandle(t ioctl.Transport, fd, buf int) (uint32, error) {
	arg := abiPrimeHandle{FD: int32(buf)}
	err := t.Ioctl(fd, reqPrimeFDToHandle, unsafe.Pointer(&arg))
	return arg.Handle, err
}
