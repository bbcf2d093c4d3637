// SPDX-License-Identifier: Apache-2.0

package gpualloc

import "github.com/gpurdma/gpurdma/drm"

type i915GPU struct{ drm.I915 }

func openI915(d *drm.Device) (gpu, error) {
	g, err := d.I915()
	return i915GPU{g}, err
}

// create lets buffers in VRAM be in system memory as well: i915 moves them
// there for every importer, and what CPUs are sure to reach must have that way
// out.
func (g i915GPU) create(size int64, p place, m memory) (drm.GEM, error) {
	if p == inSystem {
		return g.Create(size)
	}
	var flags uint32
	if m.smallBAR() {
		flags = drm.I915NeedsCPUAccess
	}
	return g.CreateExt(size, flags, m.all()...)
}
