// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Device is a GPU in CUDA's list, which CUDA_VISIBLE_DEVICES selects and orders.
type Device struct {
	Ordinal       int          `json:"ordinal"` // the number in the spec "cuda:0"
	Name          string       `json:"name"`    // "NVIDIA H100 80GB HBM3"
	UUID          string       `json:"uuid"`    // "GPU-01234567-89ab-cdef-0123-456789abcdef", of a MIG instance "MIG-…"
	PCI           pciaddr.Addr `json:"pci"`
	TotalMem      int64        `json:"total_mem"`  // bytes
	Compute       [2]int       `json:"compute"`    // compute capability: 9, 0
	Integrated    bool         `json:"integrated"` // the GPU uses the machine's memory (Tegra)
	VMM           bool         `json:"vmm"`        // the GPU has the virtual memory API
	VMMRDMA       bool         `json:"vmm_rdma"`   // the virtual memory API has memory that RDMA devices reach
	DriverVersion int          `json:"driver_version"`
	DMABuf        Support      `json:"dma_buf"`
	// GPUDirectRDMA is the attribute GPU_DIRECT_RDMA_SUPPORTED; nil where the driver does not
	// know it.
	GPUDirectRDMA *bool `json:"gpu_direct_rdma"`

	dev    device
	writes ordering
}

// Support says whether a GPU exports dma-bufs.
type Support struct {
	OK     bool     `json:"ok"`
	Why    []string `json:"why,omitempty"` // the causes that were found; empty with OK
	Remedy string   `json:"remedy,omitempty"`
}

// Devices lists the GPUs. The zero Env is this machine: Devices reads in its file
// trees why a GPU exports no dma-bufs. Without the library it returns an error that
// is fs.ErrNotExist.
func Devices(env gpualloc.Env) ([]Device, error) {
	s, err := start()
	if err != nil {
		return nil, err
	}
	return s.devices(env)
}

func (s *session) devices(env gpualloc.Env) ([]Device, error) {
	n, r := s.drv.deviceCount()
	if err := failed("cuDeviceGetCount", s.drv.path(), r, "", ""); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, failed("cuDeviceGetCount", s.drv.path(), NoDevice, "", "the driver lists no GPU")
	}
	var out []Device
	for i := range n {
		d, err := s.describe(i, env)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// describe asks for everything about one GPU.
func (s *session) describe(ordinal int, env gpualloc.Env) (Device, error) {
	on := fmt.Sprintf("cuda:%d", ordinal)
	d := Device{Ordinal: ordinal, DriverVersion: s.version}
	var r Result
	if d.dev, r = s.drv.device(ordinal); r != Success {
		return d, failed("cuDeviceGet", on, r, "", "")
	}
	if d.Name, r = s.drv.name(d.dev); r != Success {
		return d, failed("cuDeviceGetName", on, r, "", "")
	}
	id, r := s.drv.uuid(d.dev)
	if r != Success {
		return d, failed("cuDeviceGetUuid", on, r, "", "")
	}
	// A MIG instance has another UUID than its GPU; both prefixes are nvidia-smi's.
	prefix := "GPU"
	if gpu, r := s.drv.uuidOfGPU(d.dev); r == Success && gpu != id {
		prefix = "MIG"
	}
	d.UUID = fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	bus, r := s.drv.pciBusID(d.dev)
	if r != Success {
		return d, failed("cuDeviceGetPCIBusId", on, r, "", "")
	}
	var err error
	if d.PCI, err = pciaddr.Parse(bus); err != nil {
		return d, &failure.Error{Op: "cuDeviceGetPCIBusId", Device: on, Err: err}
	}
	total, r := s.drv.totalMem(d.dev)
	if r != Success {
		return d, failed("cuDeviceTotalMem", on, r, "", "")
	}
	d.TotalMem = int64(total)
	var integrated, vmm, vmmRDMA int
	for _, a := range []struct {
		attr int
		to   *int
	}{
		{attrIntegrated, &integrated}, {attrVMM, &vmm}, {attrGPUDirectRDMAVMM, &vmmRDMA},
		{attrMajor, &d.Compute[0]}, {attrMinor, &d.Compute[1]},
	} {
		if *a.to, r = s.drv.attribute(a.attr, d.dev); r != Success && r != InvalidValue {
			return d, failed("cuDeviceGetAttribute", on, r, "", "attribute %d", a.attr)
		}
	}
	switch v, r := s.drv.attribute(attrGPUDirectRDMA, d.dev); r {
	case Success:
		yes := v != 0
		d.GPUDirectRDMA = &yes
	case InvalidValue: // a driver from before 11.3
	default:
		return d, failed("cuDeviceGetAttribute", on, r, "", "attribute %d", attrGPUDirectRDMA)
	}
	var attr int
	if d.writes, attr, r = s.ordering(d.dev); r != Success {
		return d, failed("cuDeviceGetAttribute", on, r, "", "attribute %d", attr)
	}
	d.Integrated = integrated != 0
	d.VMM = vmm != 0 && !s.drv.missing("cuMemCreate") && !s.drv.missing("cuMemMap")
	d.VMMRDMA = d.VMM && vmmRDMA != 0
	d.DMABuf = s.support(d, env)
	return d, nil
}

// String names the GPU for messages.
func (d Device) String() string { return fmt.Sprintf("cuda:%d (%s, %v)", d.Ordinal, d.Name, d.PCI) }

// versionText writes 12080 as "12.8".
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
