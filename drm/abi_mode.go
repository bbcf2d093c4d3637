// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/drm/drm_mode.h; the request numbers are in drm.h.

// abiCreateDumb is struct drm_mode_create_dumb.
type abiCreateDumb struct {
	_      structs.HostLayout
	Height uint32
	Width  uint32
	BPP    uint32
	Flags  uint32
	Handle uint32
	Pitch  uint32
	Size   uint64
}

// abiMapDumb is struct drm_mode_map_dumb.
type abiMapDumb struct {
	_      structs.HostLayout
	Handle uint32
	Pad    uint32
	Offset uint64
}

// abiDestroyDumb is struct drm_mode_destroy_dumb.
type abiDestroyDumb struct {
	_      structs.HostLayout
	Handle uint32
}

var (
	reqCreateDumb  = ioctl.IOWR(drmBase, 0xb2, uint32(unsafe.Sizeof(abiCreateDumb{})))  // DRM_IOCTL_MODE_CREATE_DUMB
	reqMapDumb     = ioctl.IOWR(drmBase, 0xb3, uint32(unsafe.Sizeof(abiMapDumb{})))     // DRM_IOCTL_MODE_MAP_DUMB
	reqDestroyDumb = ioctl.IOWR(drmBase, 0xb4, uint32(unsafe.Sizeof(abiDestroyDumb{}))) // DRM_IOCTL_MODE_DESTROY_DUMB
)

func createDumb(t ioctl.Transport, fd int, width, height, bpp uint32) (Dumb, error) {
	arg := abiCreateDumb{Height: height, Width: width, BPP: bpp}
	err := t.Ioctl(fd, reqCreateDumb, unsafe.Pointer(&arg))
	return Dumb{Handle: arg.Handle, Pitch: arg.Pitch, Size: int64(arg.Size)}, err
}

func mapDumb(t ioctl.Transport, fd int, handle uint32) (uint64, error) {
	arg := abiMapDumb{Handle: handle}
	err := t.Ioctl(fd, reqMapDumb, unsafe.Pointer(&arg))
	return arg.Offset, err
}

func destroyDumb(t ioctl.Transport, fd int, handle uint32) error {
	return t.Ioctl(fd, reqDestroyDumb, unsafe.Pointer(&abiDestroyDumb{Handle: handle}))
}
