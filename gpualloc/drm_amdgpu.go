// SPDX-License-Identifier: Apache-2.0

package gpualloc

import "github.com/gpurdma/gpurdma/drm"

type amdgpuGPU struct{ drm.Amdgpu }

func openAmdgpu(d *drm.Device) (gpu, error) {
	g, err := d.Amdgpu()
	return amdgpuGPU{g}, err
}

// Regions leaves out a page: a buffer must be smaller than VRAM
// (amdgpu_bo_validate_size in amdgpu_object.c), and one that is not is made in
// GTT, if it fits there.
func (g amdgpuGPU) Regions() ([]drm.Region, error) {
	all, err := g.Amdgpu.Regions()
	for i, r := range all {
		if r.VRAM && r.Size > 0 {
			all[i].Size -= r.Page
			all[i].Visible = min(r.Visible, all[i].Size)
		}
	}
	return all, err
}

func (g amdgpuGPU) create(size int64, p place, _ memory) (drm.GEM, error) {
	if p == inSystem {
		return g.Create(size, drm.AmdgpuGTT, 0)
	}
	return g.Create(size, drm.AmdgpuVRAM, drm.AmdgpuCPUAccess|drm.AmdgpuVRAMCleared)
}
