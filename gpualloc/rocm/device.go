// SPDX-License-Identifier: Apache-2.0

package rocm

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Device is a GPU in ROCm's list, which ROCR_VISIBLE_DEVICES selects and
// orders.
type Device struct {
	Ordinal  int          `json:"ordinal"` // the number in the spec "rocm:0"
	Name     string       `json:"name"`    // "gfx942"
	Product  string       `json:"product"` // "AMD Instinct MI300X"
	UUID     string       `json:"uuid"`    // "GPU-0123456789abcdef", "" where the GPU has none
	PCI      pciaddr.Addr `json:"pci"`
	TotalMem int64        `json:"total_mem"` // bytes, of the pool that is allocated from

	agent   agent
	pool    pool
	granule uint64
}

// String names the GPU for messages.
func (d Device) String() string { return fmt.Sprintf("rocm:%d (%s, %v)", d.Ordinal, d.Product, d.PCI) }

// Devices lists the GPUs. The zero Env is this machine. Without the library it
// returns an error that is fs.ErrNotExist.
func Devices(env gpualloc.Env) ([]Device, error) {
	s, err := start(env)
	if err != nil {
		return nil, err
	}
	return s.devices()
}

func (s *session) devices() ([]Device, error) {
	agents, st := s.drv.agents()
	if st != Success {
		return nil, failed("hsa_iterate_agents", s.drv.path(), st, "", "")
	}
	var out []Device
	for _, a := range agents {
		kind, st := s.drv.agentUint(a, agentDevice)
		if st != Success {
			return nil, failed("hsa_agent_get_info", s.drv.path(), st, "", "HSA_AGENT_INFO_DEVICE")
		}
		if uint32(kind) != deviceTypeGPU {
			continue
		}
		d, err := s.describe(len(out), a)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, &failure.Error{
			Op: "hsa_iterate_agents", Device: s.drv.path(), Err: fs.ErrNotExist, Detail: "the runtime lists no GPU",
			Remedy: "check that amdgpu drives the GPU (rocminfo), and that ROCR_VISIBLE_DEVICES and the container show it",
		}
	}
	return out, nil
}

// describe asks for everything about one GPU.
func (s *session) describe(ordinal int, a agent) (Device, error) {
	on := fmt.Sprintf("rocm:%d", ordinal)
	d := Device{Ordinal: ordinal, agent: a}
	var st Status
	if d.Name, st = s.drv.agentString(a, agentName, nameLen); st != Success {
		return d, failed("hsa_agent_get_info", on, st, "", "HSA_AGENT_INFO_NAME")
	}
	if d.Product, st = s.drv.agentString(a, agentProductName, nameLen); st != Success || d.Product == "" {
		d.Product = d.Name
	}
	bdf, st := s.drv.agentUint(a, agentBDF)
	if st != Success {
		return d, failed("hsa_agent_get_info", on, st, "", "HSA_AMD_AGENT_INFO_BDFID")
	}
	domain, st := s.drv.agentUint(a, agentDomain)
	if st != Success {
		return d, failed("hsa_agent_get_info", on, st, "", "HSA_AMD_AGENT_INFO_DOMAIN")
	}
	d.PCI = pciaddr.Addr{Domain: uint32(domain), Bus: uint8(bdf >> 8), Device: uint8(bdf >> 3 & 31), Function: uint8(bdf & 7)}
	// A GPU without a UUID says "GPU-XX".
	if id, st := s.drv.agentString(a, agentUUID, uuidLen); st == Success && id != "" && !strings.HasSuffix(id, "-XX") {
		d.UUID = id
	}
	return d, s.choosePool(&d, on)
}

// choosePool takes the GPU's own memory for ordinary use: global, coarse
// grained.
func (s *session) choosePool(d *Device, on string) error {
	pools, st := s.drv.pools(d.agent)
	if st != Success {
		return failed("hsa_amd_agent_iterate_memory_pools", on, st, "", "")
	}
	for _, p := range pools {
		var v [5]uint64
		for i, attr := range []int{poolSegment, poolFlags, poolAllocAllowed, poolAllocGranule, poolSize} {
			if v[i], st = s.drv.poolUint(p, attr); st != Success {
				return failed("hsa_amd_memory_pool_get_info", on, st, "", "attribute %d", attr)
			}
		}
		if uint32(v[0]) == segmentGlobal && v[1]&poolCoarseGrained != 0 && v[2] != 0 {
			d.pool, d.granule, d.TotalMem = p, v[3], int64(v[4])
			return nil
		}
	}
	return &failure.Error{
		Op: "hsa_amd_agent_iterate_memory_pools", Device: on, Err: fs.ErrNotExist,
		Detail: fmt.Sprintf("none of %d pools is coarse-grained GPU memory that may be allocated from", len(pools)),
	}
}
