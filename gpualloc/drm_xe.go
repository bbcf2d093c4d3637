// SPDX-License-Identifier: Apache-2.0

package gpualloc

import "github.com/gpurdma/gpurdma/drm"

type xeGPU struct{ drm.Xe }

func openXe(d *drm.Device) (gpu, error) {
	g, err := d.Xe()
	return xeGPU{g}, err
}

func (g xeGPU) create(size int64, p place, m memory) (drm.GEM, error) {
	switch p {
	case inSystem:
		return g.Create(size, drm.XeWriteBack, 0, m.system...)
	case vramOnly:
		return g.Create(size, drm.XeWriteCombined, drm.XeNeedsVisibleVRAM, m.vram...)
	}
	return g.Create(size, drm.XeWriteCombined, drm.XeNeedsVisibleVRAM, m.all()...)
}
