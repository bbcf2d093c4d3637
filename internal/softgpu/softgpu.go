// SPDX-License-Identifier: Apache-2.0

package softgpu

import (
	"path"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Module is the software GPU's driver: that of its PCI device, and the module
// that owns its dma-bufs.
const Module = "softgpu"

// Class is the driver whose ways a device has and whose ioctls it speaks: the
// owner's own, or of a software GPU its personality ("amdgpu", "xe", "i915").
// owner is the device's driver or the module that owns its dma-bufs, device the
// device's directory relative to the root of sysfs. A software GPU whose
// personality cannot be read (it was just unbound) is of no class: "".
func Class(s sysfs.FS, owner, device string) string {
	if owner != Module {
		return owner
	}
	personality, err := s.ReadString(path.Join(device, "personality"))
	if err != nil {
		return ""
	}
	return personality
}
