// SPDX-License-Identifier: Apache-2.0

package cuda

import "fmt"

// Mapping says how an exported descriptor addresses the memory. The packages of this
// module use MappingDefault for every NIC, because ordinary registrations need it.
// The others are for the data-direct path, mlx5dv_reg_dmabuf_mr.
type Mapping int

// The mappings.
const (
	// MappingDefault is the driver's choice: the link to the CPU on coherent
	// machines, the PCIe BAR on others. Every importer can use it.
	MappingDefault Mapping = iota
	// MappingPCIe is the PCIe BAR (CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE,
	// driver 12.8 on). If the driver does not give it, Export fails. On a coherent
	// machine only mlx5's data-direct path (mlx5dv_reg_dmabuf_mr) can use it; an
	// ordinary registration of it fails with errno 524.
	MappingPCIe
	// MappingDataDirect is for the data-direct path: MappingPCIe if the driver has
	// it, otherwise MappingDefault. Exported.Mapping is the one that was used.
	MappingDataDirect
)

// String returns "default", "pcie" or "data-direct".
func (m Mapping) String() string {
	switch m {
	case MappingDefault:
		return "default"
	case MappingPCIe:
		return "pcie"
	case MappingDataDirect:
		return "data-direct"
	}
	return fmt.Sprintf("Mapping(%d)", int(m))
}

// MarshalText makes a Mapping a string in JSON.
func (m Mapping) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// handle asks for the descriptor of a range that is aligned to pages.
func (s *session) handle(ctx contextHandle, on string, p pointer, size uint64, m Mapping) (fd int, got Mapping, err error) {
	if s.drv.missing(exportFunction) {
		return -1, m, failed("dlsym", s.drv.path(), NotSupported, "install a driver of CUDA 11.7 (R515) or later",
			"a driver of CUDA %s has no %s", versionText(s.version), exportFunction)
	}
	if m == MappingPCIe || m == MappingDataDirect {
		fd, r := s.drv.export(ctx, p, size, rangeFlagPCIe)
		if r == Success {
			return fd, MappingPCIe, nil
		}
		if m == MappingPCIe || r != NotSupported && r != InvalidValue {
			return -1, m, s.exportError(on, r, p, size, MappingPCIe)
		}
	}
	fd, r := s.drv.export(ctx, p, size, 0)
	if r != Success {
		return -1, m, s.exportError(on, r, p, size, MappingDefault)
	}
	return fd, MappingDefault, nil
}

func (s *session) exportError(on string, r Result, p pointer, size uint64, m Mapping) error {
	remedy := ""
	switch {
	case m == MappingPCIe && s.version < versionOfPCIeMapping:
		remedy = fmt.Sprintf("the driver is of CUDA %s, and the PCIe mapping needs 12.8: export without it", versionText(s.version))
	case m == MappingPCIe && (r == NotSupported || r == InvalidValue):
		remedy = "this GPU or driver has no PCIe mapping: export without it"
	case r == NotSupported:
		remedy = "the GPU exports no dma-bufs (cuda.Devices says why), or this memory cannot be: use cuMemAlloc, or cuMemCreate with gpuDirectRDMACapable"
	case r == InvalidValue:
		remedy = "pass memory that is allocated as a whole and on one device, and not freed"
	}
	return failed(exportFunction, on, r, remedy, "%#x bytes at %#x, mapping %v", size, uint64(p), m)
}
