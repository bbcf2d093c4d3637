// SPDX-License-Identifier: Apache-2.0

package levelzero

import (
	"fmt"
	"io/fs"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Device is a GPU in Level Zero's list, which ZE_AFFINITY_MASK selects.
// ZE_FLAT_DEVICE_HIERARCHY says whether each tile is a device.
type Device struct {
	Ordinal    int          `json:"ordinal"` // the number in the spec "ze:0", over all drivers
	Name       string       `json:"name"`
	UUID       string       `json:"uuid"` // "01234567-89ab-cdef-0123-456789abcdef"
	PCI        pciaddr.Addr `json:"pci"`
	TotalMem   int64        `json:"total_mem"` // bytes
	MaxSize    int64        `json:"max_size"`  // bytes of one allocation
	Integrated bool         `json:"integrated"`
	DMABuf     bool         `json:"dma_buf"` // the driver says that it exports dma-bufs

	driver driverHandle
	handle deviceHandle
}

// String names the GPU for messages.
func (d Device) String() string { return fmt.Sprintf("ze:%d (%s, %v)", d.Ordinal, d.Name, d.PCI) }

// Devices lists the GPUs. Without the library it returns an error that is
// fs.ErrNotExist.
func Devices() ([]Device, error) {
	s, err := start()
	if err != nil {
		return nil, err
	}
	return s.devices()
}

func (s *session) devices() ([]Device, error) {
	drivers, r := s.drv.drivers()
	if r != Success {
		return nil, failed("zeDriverGet", s.drv.path(), r, "", "")
	}
	var out []Device
	for _, h := range drivers {
		handles, r := s.drv.devices(h)
		if r != Success {
			return nil, failed("zeDeviceGet", s.drv.path(), r, "", "")
		}
		for _, dev := range handles {
			p, r := s.drv.properties(dev)
			if r != Success {
				return nil, failed("zeDeviceGetProperties", s.drv.path(), r, "", "")
			}
			if p.kind != deviceTypeGPU {
				continue
			}
			d, err := s.describe(len(out), h, dev, p)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, &failure.Error{
			Op: "zeDeviceGet", Device: s.drv.path(), Err: fs.ErrNotExist, Detail: fmt.Sprintf("%d drivers list no GPU", len(drivers)),
			Remedy: "check that i915 or xe drives the GPU, that /dev/dri/renderD* is accessible, and what ZE_AFFINITY_MASK hides",
		}
	}
	return out, nil
}

// describe asks for everything about one GPU.
func (s *session) describe(ordinal int, h driverHandle, dev deviceHandle, p properties) (Device, error) {
	on := fmt.Sprintf("ze:%d", ordinal)
	d := Device{
		Ordinal: ordinal, Name: p.name, MaxSize: int64(min(p.maxSize, 1<<62)), Integrated: p.flags&deviceIntegrated != 0,
		driver: h, handle: dev,
	}
	d.UUID = fmt.Sprintf("%x-%x-%x-%x-%x", p.uuid[:4], p.uuid[4:6], p.uuid[6:8], p.uuid[8:10], p.uuid[10:])
	domain, bus, device, function, r := s.drv.pci(dev)
	if r != Success {
		return d, failed("zeDevicePciGetPropertiesExt", on, r, "", "")
	}
	d.PCI = pciaddr.Addr{Domain: domain, Bus: uint8(bus), Device: uint8(device), Function: uint8(function)}
	total, r := s.drv.totalMem(dev)
	if r != Success {
		return d, failed("zeDeviceGetMemoryProperties", on, r, "", "")
	}
	d.TotalMem = int64(total)
	types, r := s.drv.exportTypes(dev)
	if r != Success {
		return d, failed("zeDeviceGetExternalMemoryProperties", on, r, "", "")
	}
	d.DMABuf = types&externalTypeDMABuf != 0
	return d, nil
}
