// SPDX-License-Identifier: Apache-2.0

package gpualloc

import "github.com/gpurdma/gpurdma/drm"

type amdgpuGPU struct{ drm.Amdgpu }

func openAmdgpu(d *drm.Device) (gpu, error) {
	g, err := d.Amdgpu()
	return amdgpuGPU{g}, err
}

func (g amdgpuGPU) create(size int64, p place, _ memory) (drm.GEM, error) {
	if p == inSystem {
		return g.Create(size, drm.AmdgpuGTT, 0)
	}
	return g.Create(size, drm.AmdgpuVRAM, drm.AmdgpuCPUAccess|drm.AmdgpuVRAMCleared)
}
