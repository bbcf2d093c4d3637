// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"runtime"
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/drm/i915_drm.h.

// abiI915Create is struct drm_i915_gem_create.
type abiI915Create struct {
	_      structs.HostLayout
	Size   uint64
	Handle uint32
	Pad    uint32
}

// abiI915CreateExt is struct drm_i915_gem_create_ext.
type abiI915CreateExt struct {
	_          structs.HostLayout
	Size       uint64
	Handle     uint32
	Flags      uint32
	Extensions *abiI915CreateRegions
}

// abiI915Extension is struct i915_user_extension.
type abiI915Extension struct {
	_    structs.HostLayout
	Next uint64
	Name uint32
	Flag uint32
	Rsvd [4]uint32
}

// abiI915CreateRegions is struct drm_i915_gem_create_ext_memory_regions.
type abiI915CreateRegions struct {
	_          structs.HostLayout
	Base       abiI915Extension
	Pad        uint32
	NumRegions uint32
	Regions    *abiI915Region
}

// abiI915Region is struct drm_i915_gem_memory_class_instance.
type abiI915Region struct {
	_        structs.HostLayout
	Class    uint16
	Instance uint16
}

// abiI915MmapOffset is struct drm_i915_gem_mmap_offset.
type abiI915MmapOffset struct {
	_          structs.HostLayout
	Handle     uint32
	Pad        uint32
	Offset     uint64
	Flags      uint64
	Extensions uint64
}

// abiI915Query is struct drm_i915_query.
type abiI915Query struct {
	_        structs.HostLayout
	NumItems uint32
	Flags    uint32
	Items    *abiI915QueryItem
}

// abiI915QueryItem is struct drm_i915_query_item.
type abiI915QueryItem struct {
	_       structs.HostLayout
	QueryID uint64
	Length  int32 // the size of the answer, or an errno below zero
	Flags   uint32
	Data    *byte
}

// abiI915RegionInfo is struct drm_i915_memory_region_info.
type abiI915RegionInfo struct {
	_                  structs.HostLayout
	Region             abiI915Region
	Rsvd0              uint32
	Probed             uint64
	Unallocated        uint64
	ProbedVisible      uint64
	UnallocatedVisible uint64
	Pad                [6]uint64
}

// abiI915RegionsHead is the head of struct drm_i915_query_memory_regions.
type abiI915RegionsHead struct {
	_          structs.HostLayout
	NumRegions uint32
	Rsvd       [3]uint32
}

const (
	i915ClassSystem = 0 // I915_MEMORY_CLASS_SYSTEM
	i915ClassDevice = 1 // I915_MEMORY_CLASS_DEVICE

	i915ExtMemoryRegions = 0 // I915_GEM_CREATE_EXT_MEMORY_REGIONS
	i915QueryRegions     = 4 // DRM_I915_QUERY_MEMORY_REGIONS

	i915MmapGTT   = 0 // I915_MMAP_OFFSET_GTT
	i915MmapWC    = 1 // I915_MMAP_OFFSET_WC
	i915MmapFixed = 4 // I915_MMAP_OFFSET_FIXED
)

var (
	reqI915Create     = ioctl.IOWR(drmBase, commandBase+0x1b, uint32(unsafe.Sizeof(abiI915Create{})))     // DRM_IOCTL_I915_GEM_CREATE
	reqI915MmapOffset = ioctl.IOWR(drmBase, commandBase+0x24, uint32(unsafe.Sizeof(abiI915MmapOffset{}))) // DRM_IOCTL_I915_GEM_MMAP_OFFSET
	reqI915Query      = ioctl.IOWR(drmBase, commandBase+0x39, uint32(unsafe.Sizeof(abiI915Query{})))      // DRM_IOCTL_I915_QUERY
	reqI915CreateExt  = ioctl.IOWR(drmBase, commandBase+0x3c, uint32(unsafe.Sizeof(abiI915CreateExt{})))  // DRM_IOCTL_I915_GEM_CREATE_EXT
)

// maxQuery bounds what a driver may make us allocate for one answer.
const maxQuery = 1 << 20

func i915Create(t ioctl.Transport, fd int, size int64) (GEM, error) {
	arg := abiI915Create{Size: uint64(size)}
	err := t.Ioctl(fd, reqI915Create, unsafe.Pointer(&arg))
	return GEM{Handle: arg.Handle, Size: int64(arg.Size)}, err
}

func i915CreateExt(t ioctl.Transport, fd int, size int64, flags uint32, regions []abiI915Region) (GEM, error) {
	arg := &abiI915CreateExt{Size: uint64(size), Flags: flags}
	var pin runtime.Pinner
	defer pin.Unpin()
	if len(regions) > 0 {
		pin.Pin(&regions[0])
		ext := &abiI915CreateRegions{NumRegions: uint32(len(regions)), Regions: &regions[0]}
		ext.Base.Name = i915ExtMemoryRegions
		pin.Pin(ext)
		arg.Extensions = ext
	}
	err := t.Ioctl(fd, reqI915CreateExt, unsafe.Pointer(arg))
	return GEM{Handle: arg.Handle, Size: int64(arg.Size)}, err
}

func i915MmapOffset(t ioctl.Transport, fd int, handle uint32, kind uint64) (uint64, error) {
	arg := abiI915MmapOffset{Handle: handle, Flags: kind}
	err := t.Ioctl(fd, reqI915MmapOffset, unsafe.Pointer(&arg))
	return arg.Offset, err
}

// i915QueryItem asks twice: for the length, then for the answer. An item's own
// error is its length.
func i915QueryItem(t ioctl.Transport, fd int, id uint64) ([]byte, error) {
	ask := func(data []byte) (int, error) {
		var pin runtime.Pinner
		defer pin.Unpin()
		item := &abiI915QueryItem{QueryID: id, Length: int32(len(data))}
		if len(data) > 0 {
			item.Data = &data[0]
			pin.Pin(item.Data)
		}
		pin.Pin(item)
		arg := &abiI915Query{NumItems: 1, Items: item}
		if err := t.Ioctl(fd, reqI915Query, unsafe.Pointer(arg)); err != nil {
			return 0, err
		}
		if item.Length < 0 {
			return 0, unix.Errno(-item.Length)
		}
		return int(item.Length), nil
	}
	n, err := ask(nil)
	if err != nil {
		return nil, err
	}
	if n == 0 || n > maxQuery {
		return nil, unix.EPROTO
	}
	data := make([]byte, n)
	n, err = ask(data)
	if err != nil {
		return nil, err
	}
	return data[:min(n, len(data))], nil
}

func i915Regions(t ioctl.Transport, fd int) ([]abiI915RegionInfo, error) {
	data, err := i915QueryItem(t, fd, i915QueryRegions)
	if err != nil {
		return nil, err
	}
	head, ok := take[abiI915RegionsHead](&data)
	if !ok {
		return nil, unix.EPROTO
	}
	var out []abiI915RegionInfo
	for range head.NumRegions {
		info, ok := take[abiI915RegionInfo](&data)
		if !ok {
			return nil, unix.EPROTO
		}
		out = append(out, info)
	}
	return out, nil
}

// take copies a structure from the beginning of a kernel's answer, which need
// not be aligned; false if the answer is shorter.
func take[T any](data *[]byte) (T, bool) {
	var v T
	size := int(unsafe.Sizeof(v))
	if len(*data) < size {
		return v, false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), size), *data)
	*data = (*data)[size:]
	return v, true
}
