// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"runtime"
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/drm/xe_drm.h (Linux 6.8 on).

// abiXeQuery is struct drm_xe_device_query.
type abiXeQuery struct {
	_          structs.HostLayout
	Extensions uint64
	Query      uint32
	Size       uint32
	Data       *byte
	Reserved   [2]uint64
}

// abiXeRegion is struct drm_xe_mem_region.
type abiXeRegion struct {
	_           structs.HostLayout
	Class       uint16
	Instance    uint16
	MinPageSize uint32
	TotalSize   uint64
	Used        uint64
	Visible     uint64
	VisibleUsed uint64
	Reserved    [6]uint64
}

// abiXeRegionsHead is the head of struct drm_xe_query_mem_regions.
type abiXeRegionsHead struct {
	_          structs.HostLayout
	NumRegions uint32
	Pad        uint32
}

// abiXeConfigHead is the head of struct drm_xe_query_config; numbers follow.
type abiXeConfigHead struct {
	_         structs.HostLayout
	NumParams uint32
	Pad       uint32
}

// abiXeCreate is struct drm_xe_gem_create.
type abiXeCreate struct {
	_          structs.HostLayout
	Extensions uint64
	Size       uint64
	Placement  uint32
	Flags      uint32
	VMID       uint32
	Handle     uint32
	Caching    uint16
	Pad        [3]uint16
	Reserved   [2]uint64
}

// abiXeMmapOffset is struct drm_xe_gem_mmap_offset.
type abiXeMmapOffset struct {
	_          structs.HostLayout
	Extensions uint64
	Handle     uint32
	Flags      uint32
	Offset     uint64
	Reserved   [2]uint64
}

const (
	xeClassSystem = 0 // DRM_XE_MEM_REGION_CLASS_SYSMEM
	xeClassVRAM   = 1 // DRM_XE_MEM_REGION_CLASS_VRAM

	xeQueryRegions = 1 // DRM_XE_DEVICE_QUERY_MEM_REGIONS
	xeQueryConfig  = 2 // DRM_XE_DEVICE_QUERY_CONFIG

	xeConfigRevAndDeviceID = 0 // DRM_XE_QUERY_CONFIG_REV_AND_DEVICE_ID
	xeConfigFlags          = 1 // DRM_XE_QUERY_CONFIG_FLAGS
	xeConfigMinAlignment   = 2 // DRM_XE_QUERY_CONFIG_MIN_ALIGNMENT
	xeConfigVABits         = 3 // DRM_XE_QUERY_CONFIG_VA_BITS

	xeFlagHasVRAM = 1 << 0 // DRM_XE_QUERY_CONFIG_FLAG_HAS_VRAM
)

var (
	reqXeQuery      = ioctl.IOWR(drmBase, commandBase+0x00, uint32(unsafe.Sizeof(abiXeQuery{})))      // DRM_IOCTL_XE_DEVICE_QUERY
	reqXeCreate     = ioctl.IOWR(drmBase, commandBase+0x01, uint32(unsafe.Sizeof(abiXeCreate{})))     // DRM_IOCTL_XE_GEM_CREATE
	reqXeMmapOffset = ioctl.IOWR(drmBase, commandBase+0x02, uint32(unsafe.Sizeof(abiXeMmapOffset{}))) // DRM_IOCTL_XE_GEM_MMAP_OFFSET
)

func xeCreate(t ioctl.Transport, fd int, arg abiXeCreate) (GEM, error) {
	err := t.Ioctl(fd, reqXeCreate, unsafe.Pointer(&arg))
	return GEM{Handle: arg.Handle, Size: int64(arg.Size)}, err
}

func xeMmapOffset(t ioctl.Transport, fd int, handle uint32) (uint64, error) {
	arg := abiXeMmapOffset{Handle: handle}
	err := t.Ioctl(fd, reqXeMmapOffset, unsafe.Pointer(&arg))
	return arg.Offset, err
}

// xeQuery asks twice: for the size, then for the answer, whose size must be
// exactly that.
func xeQuery(t ioctl.Transport, fd int, query uint32) ([]byte, error) {
	arg := &abiXeQuery{Query: query}
	if err := t.Ioctl(fd, reqXeQuery, unsafe.Pointer(arg)); err != nil {
		return nil, err
	}
	if arg.Size == 0 || arg.Size > maxQuery {
		return nil, unix.EPROTO
	}
	data := make([]byte, arg.Size)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&data[0])
	again := &abiXeQuery{Query: query, Size: arg.Size, Data: &data[0]}
	if err := t.Ioctl(fd, reqXeQuery, unsafe.Pointer(again)); err != nil {
		return nil, err
	}
	return data, nil
}

func xeRegions(t ioctl.Transport, fd int) ([]abiXeRegion, error) {
	data, err := xeQuery(t, fd, xeQueryRegions)
	if err != nil {
		return nil, err
	}
	head, ok := take[abiXeRegionsHead](&data)
	if !ok {
		return nil, unix.EPROTO
	}
	var out []abiXeRegion
	for range head.NumRegions {
		r, ok := take[abiXeRegion](&data)
		if !ok {
			return nil, unix.EPROTO
		}
		out = append(out, r)
	}
	return out, nil
}

func xeConfig(t ioctl.Transport, fd int) ([]uint64, error) {
	data, err := xeQuery(t, fd, xeQueryConfig)
	if err != nil {
		return nil, err
	}
	head, ok := take[abiXeConfigHead](&data)
	if !ok {
		return nil, unix.EPROTO
	}
	var out []uint64
	for range head.NumParams {
		n, ok := take[uint64](&data)
		if !ok {
			return nil, unix.EPROTO
		}
		out = append(out, n)
	}
	return out, nil
}
