// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"structs"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/pci"
)

// include/uapi/linux/vfio.h, as much as it takes to get a dma-buf of a BAR.

const (
	vfioType = ';' // VFIO_TYPE
	vfioBase = 100 // VFIO_BASE

	vfioType1v2            = 3       // VFIO_TYPE1v2_IOMMU
	vfioGroupViable        = 1 << 0  // VFIO_GROUP_FLAGS_VIABLE
	vfioConfigRegion       = 7       // VFIO_PCI_CONFIG_REGION_INDEX
	vfioFeatureGet         = 1 << 16 // VFIO_DEVICE_FEATURE_GET
	vfioFeatureDMABuf      = 11      // VFIO_DEVICE_FEATURE_DMA_BUF, 6.19 and later
	pciCommand             = 4       // PCI_COMMAND
	pciCommandMemory  byte = 2       // PCI_COMMAND_MEMORY
)

var (
	vfioSetIOMMU     = ioctl.IO(vfioType, vfioBase+2)  // VFIO_SET_IOMMU
	vfioGroupStatus  = ioctl.IO(vfioType, vfioBase+3)  // VFIO_GROUP_GET_STATUS
	vfioSetContainer = ioctl.IO(vfioType, vfioBase+4)  // VFIO_GROUP_SET_CONTAINER
	vfioGetDevice    = ioctl.IO(vfioType, vfioBase+6)  // VFIO_GROUP_GET_DEVICE_FD
	vfioRegionInfo   = ioctl.IO(vfioType, vfioBase+8)  // VFIO_DEVICE_GET_REGION_INFO
	vfioFeature      = ioctl.IO(vfioType, vfioBase+17) // VFIO_DEVICE_FEATURE
)

// struct vfio_group_status
type vfioStatus struct {
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
}

// struct vfio_region_info
type vfioRegion struct {
	_         structs.HostLayout
	Argsz     uint32
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Size      uint64
	Offset    uint64 // of the region in the device's file
}

// struct vfio_device_feature, with struct vfio_device_feature_dma_buf and one
// struct vfio_region_dma_range behind it.
type vfioDMABuf struct {
	_           structs.HostLayout
	Argsz       uint32
	Flags       uint32
	RegionIndex uint32
	OpenFlags   uint32
	BufFlags    uint32
	NrRanges    uint32
	Offset      uint64 // in the BAR
	Length      uint64
}

// vfioDevice is a PCI function that user space drives.
type vfioDevice struct {
	file   *os.File
	config int64 // where its configuration space is in the file
}

// vfioCall is an ioctl that answers a number.
func vfioCall(f *os.File, request uint32, arg unsafe.Pointer) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// openVFIO takes a function that is bound to vfio-pci. It is given back when
// the test is over.
func openVFIO(t *testing.T, function string) vfioDevice {
	t.Helper()
	must := func(what string, n int, err error) int {
		t.Helper()
		if err != nil {
			t.Fatalf("%s of %s: %v", what, function, err)
		}
		return n
	}
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	link, err := filepath.EvalSymlinks(filepath.Join("/sys/bus/pci/devices", function, "iommu_group"))
	if err != nil {
		t.Fatal(err)
	}
	container := open("/dev/vfio/vfio")
	group := open("/dev/vfio/" + filepath.Base(link))
	status := vfioStatus{Argsz: uint32(unsafe.Sizeof(vfioStatus{}))}
	n, err := vfioCall(group, vfioGroupStatus, unsafe.Pointer(&status))
	must("VFIO_GROUP_GET_STATUS", n, err)
	if status.Flags&vfioGroupViable == 0 {
		t.Fatalf("the IOMMU group of %s has devices that others drive", function)
	}
	fd := int32(container.Fd())
	n, err = vfioCall(group, vfioSetContainer, unsafe.Pointer(&fd))
	must("VFIO_GROUP_SET_CONTAINER", n, err)
	// VFIO_SET_IOMMU has a number for an argument, and no address.
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, container.Fd(), uintptr(vfioSetIOMMU), vfioType1v2); errno != 0 {
		t.Fatalf("VFIO_SET_IOMMU: %v", errno)
	}
	name, err := unix.BytePtrFromString(function)
	if err != nil {
		t.Fatal(err)
	}
	n, err = vfioCall(group, vfioGetDevice, unsafe.Pointer(name))
	d := vfioDevice{file: os.NewFile(uintptr(must("VFIO_GROUP_GET_DEVICE_FD", n, err)), function)}
	t.Cleanup(func() { d.file.Close() })
	d.config = d.region(t, vfioConfigRegion)
	d.decode(t, true)
	return d
}

// region is where a region is in the device's file.
func (d vfioDevice) region(t *testing.T, index int) int64 {
	t.Helper()
	r := vfioRegion{Argsz: uint32(unsafe.Sizeof(vfioRegion{})), Index: uint32(index)}
	if _, err := vfioCall(d.file, vfioRegionInfo, unsafe.Pointer(&r)); err != nil {
		t.Fatalf("VFIO_DEVICE_GET_REGION_INFO: %v", err)
	}
	return int64(r.Offset)
}

// view is a BAR as the CPU sees it. sysfs shows none that a driver has claimed.
func (d vfioDevice) view(t *testing.T, b pci.BAR) bar {
	t.Helper()
	mem, err := unix.Mmap(int(d.file.Fd()), d.region(t, b.Index), int(b.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return bar{index: b.Index, start: b.Start, mem: mem}
}

// decode turns the function's memory BARs on or off. Off, vfio-pci revokes
// their dma-bufs.
func (d vfioDevice) decode(t *testing.T, on bool) {
	t.Helper()
	var command [2]byte
	if _, err := d.file.ReadAt(command[:], d.config+pciCommand); err != nil {
		t.Fatal(err)
	}
	command[0] &^= pciCommandMemory
	if on {
		command[0] |= pciCommandMemory
	}
	if _, err := d.file.WriteAt(command[:], d.config+pciCommand); err != nil {
		t.Fatal(err)
	}
}

// export makes a dma-buf of a part of a BAR.
func (d vfioDevice) export(index int, offset, length uint64) (*os.File, error) {
	arg := vfioDMABuf{
		Flags: vfioFeatureGet | vfioFeatureDMABuf, RegionIndex: uint32(index),
		OpenFlags: unix.O_RDWR | unix.O_CLOEXEC, NrRanges: 1, Offset: offset, Length: length,
	}
	arg.Argsz = uint32(unsafe.Sizeof(arg))
	fd, err := vfioCall(d.file, vfioFeature, unsafe.Pointer(&arg))
	if err != nil {
		return nil, fmt.Errorf("VFIO_DEVICE_FEATURE_DMA_BUF: %w", err)
	}
	return os.NewFile(uintptr(fd), "dma-buf of "+d.file.Name()), nil
}
