// SPDX-License-Identifier: Apache-2.0

package levelzero

import "errors"

// ErrNotBuilt is the error of a build without cgo.
var ErrNotBuilt = errors.New("built without cgo: no Level Zero")

// Handles of the library, and device addresses.
type (
	driverHandle  uintptr // ze_driver_handle_t
	deviceHandle  uintptr // ze_device_handle_t
	contextHandle uintptr // ze_context_handle_t
	listHandle    uintptr // ze_command_list_handle_t
	pointer       uintptr
)

// properties of a device, of several structures.
type properties struct {
	kind    int // ze_device_type_t
	vendor  uint32
	flags   uint32
	maxSize uint64
	uuid    [16]byte
	name    string
}

// allocProperties is what a context knows of an address.
type allocProperties struct {
	kind     int // ze_memory_type_t
	pageSize uint64
	device   deviceHandle
}

// driver is one loaded libze_loader, one method for one of its functions.
type driver interface {
	path() string

	init() Result
	drivers() ([]driverHandle, Result)
	devices(driverHandle) ([]deviceHandle, Result)
	properties(deviceHandle) (properties, Result)
	totalMem(deviceHandle) (uint64, Result)
	exportTypes(deviceHandle) (uint32, Result)
	pci(deviceHandle) (domain, bus, dev, function uint32, r Result)

	context(driverHandle) (contextHandle, Result)
	list(contextHandle, deviceHandle) (listHandle, Result)
	destroyList(listHandle) Result
	toHost(l listHandle, to []byte, from pointer) Result
	toDevice(l listHandle, to pointer, from []byte) Result
	zero(l listHandle, p pointer, size uint64) Result

	// alloc allocates with an export descriptor for dma-bufs, or without.
	alloc(ctx contextHandle, d deviceHandle, size, alignment uint64, export bool) (pointer, Result)
	free(contextHandle, pointer) Result
	allocProperties(contextHandle, pointer) (allocProperties, Result)
	export(contextHandle, pointer) (fd int, r Result)
	addressRange(contextHandle, pointer) (base pointer, size uint64, r Result)
}
