// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"structs"
	"testing"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// include/uapi/linux/iommufd.h, as much as it takes to import a dma-buf.

const iommufdType = ';' // IOMMUFD_TYPE

var (
	iommuIOASAlloc   = ioctl.IO(iommufdType, 0x81) // IOMMU_IOAS_ALLOC
	iommuIOASMapFile = ioctl.IO(iommufdType, 0x8f) // IOMMU_IOAS_MAP_FILE
)

// IOMMU_IOAS_MAP_WRITEABLE, IOMMU_IOAS_MAP_READABLE
const iommuMapReadWrite = 1<<1 | 1<<2

// struct iommu_ioas_alloc
type iommuAlloc struct {
	_     structs.HostLayout
	Size  uint32
	Flags uint32
	ID    uint32
}

// struct iommu_ioas_map_file
type iommuMapFile struct {
	_      structs.HostLayout
	Size   uint32
	Flags  uint32
	ID     uint32
	FD     int32
	Start  uint64
	Length uint64
	IOVA   uint64
}

// iommuSpace is an address space of iommufd's. Closing its file frees it.
type iommuSpace struct {
	file *os.File
	id   uint32
}

func newIOMMUSpace(t *testing.T) iommuSpace {
	t.Helper()
	f, err := os.OpenFile("/dev/iommu", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	arg := iommuAlloc{}
	arg.Size = uint32(unsafe.Sizeof(arg))
	if _, err := vfioCall(f, iommuIOASAlloc, unsafe.Pointer(&arg)); err != nil {
		t.Fatalf("IOMMU_IOAS_ALLOC: %v", err)
	}
	return iommuSpace{f, arg.ID}
}

// mapFile maps a dma-buf at an IOVA that the kernel chooses.
func (s iommuSpace) mapFile(fd int, length uint64) error {
	arg := iommuMapFile{Flags: iommuMapReadWrite, ID: s.id, FD: int32(fd), Length: length}
	arg.Size = uint32(unsafe.Sizeof(arg))
	_, err := vfioCall(s.file, iommuIOASMapFile, unsafe.Pointer(&arg))
	return err
}
