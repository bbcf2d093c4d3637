// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"runtime"
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/drm/virtgpu_drm.h.

// abiVirtgpuMap is struct drm_virtgpu_map.
type abiVirtgpuMap struct {
	_      structs.HostLayout
	Offset uint64
	Handle uint32
	Pad    uint32
}

// abiVirtgpuGetparam is struct drm_virtgpu_getparam.
type abiVirtgpuGetparam struct {
	_     structs.HostLayout
	Param uint64
	Value *uint64 // the kernel writes an int there; the rest stays 0
}

// abiVirtgpuBlob is struct drm_virtgpu_resource_create_blob.
type abiVirtgpuBlob struct {
	_         structs.HostLayout
	BlobMem   uint32
	BlobFlags uint32
	BOHandle  uint32
	ResHandle uint32
	Size      uint64
	Pad       uint32
	CmdSize   uint32
	Cmd       uint64
	BlobID    uint64
}

// abiVirtgpuCaps is struct drm_virtgpu_get_caps.
type abiVirtgpuCaps struct {
	_      structs.HostLayout
	SetID  uint32
	SetVer uint32
	Addr   *byte
	Size   uint32
	Pad    uint32
}

var (
	reqVirtgpuMap      = ioctl.IOWR(drmBase, commandBase+0x01, uint32(unsafe.Sizeof(abiVirtgpuMap{})))      // DRM_IOCTL_VIRTGPU_MAP
	reqVirtgpuGetparam = ioctl.IOWR(drmBase, commandBase+0x03, uint32(unsafe.Sizeof(abiVirtgpuGetparam{}))) // DRM_IOCTL_VIRTGPU_GETPARAM
	reqVirtgpuGetCaps  = ioctl.IOWR(drmBase, commandBase+0x09, uint32(unsafe.Sizeof(abiVirtgpuCaps{})))     // DRM_IOCTL_VIRTGPU_GET_CAPS
	reqVirtgpuBlob     = ioctl.IOWR(drmBase, commandBase+0x0a, uint32(unsafe.Sizeof(abiVirtgpuBlob{})))     // DRM_IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB
)

func virtgpuMap(t ioctl.Transport, fd int, handle uint32) (uint64, error) {
	arg := abiVirtgpuMap{Handle: handle}
	err := t.Ioctl(fd, reqVirtgpuMap, unsafe.Pointer(&arg))
	return arg.Offset, err
}

func virtgpuGetparam(t ioctl.Transport, fd int, param uint64) (uint64, error) {
	value := new(uint64)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(value)
	err := t.Ioctl(fd, reqVirtgpuGetparam, unsafe.Pointer(&abiVirtgpuGetparam{Param: param, Value: value}))
	return *value, err
}

func virtgpuBlob(t ioctl.Transport, fd int, arg abiVirtgpuBlob) (handle uint32, err error) {
	err = t.Ioctl(fd, reqVirtgpuBlob, unsafe.Pointer(&arg))
	return arg.BOHandle, err
}

func virtgpuGetCaps(t ioctl.Transport, fd int, set, version uint32, into []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&into[0])
	arg := &abiVirtgpuCaps{SetID: set, SetVer: version, Addr: &into[0], Size: uint32(len(into))}
	return t.Ioctl(fd, reqVirtgpuGetCaps, unsafe.Pointer(arg))
}
