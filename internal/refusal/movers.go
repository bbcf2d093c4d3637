// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// movers are the exporters that move their buffers, and pin one in VRAM as long
// as all its importers are peer to peer. softgpu is the test bed's.
var movers = []string{"amdgpu", "xe", "softgpu"}

// held explains EINVAL and EBUSY.
//
// An importer that does not reach VRAM has a buffer brought to system memory,
// unless another has pinned it in VRAM: amdgpu_dma_buf_pin (amdgpu_bo_pin) and
// xe_dma_buf_pin then answer EINVAL. Older amdgpu pins in system memory only, and
// amdgpu_dma_buf_map answers EBUSY where the buffer is pinned elsewhere.
func (e *Evidence) held(x exporter) (Finding, bool) {
	switch {
	case e.Errno == unix.EINVAL && isVFIO(x.driver):
		// dma_buf_phys_vec_to_sgt, which vfio_pci_dma_buf_map calls.
		return Finding{Unreachable, e.name(x) + " answers EINVAL where the kernel finds no way for peer-to-peer between the two devices", seeMatrix}, true
	case x.driver != "" && !slices.Contains(movers, x.driver), x.driver == "" && e.Exporter != "drm":
		return Finding{}, false
	case len(e.Attached) > 0:
		return Finding{
			Pinned,
			fmt.Sprintf("the buffer is attached to %s, too, which has most likely pinned it in the GPU's memory: %s does not reach that by peer-to-peer, and a pinned buffer does not move to system memory", list(e.Attached), e.nic()),
			oneNIC,
		}, true
	case e.AtPin && e.NoPeer:
		return Finding{
			Pinned,
			fmt.Sprintf("another importer has pinned the buffer in the GPU's memory: %s does not reach that by peer-to-peer, and a pinned buffer does not move to system memory", e.nic()),
			oneNIC,
		}, true
	case e.Unread != nil:
		return Finding{
			Open,
			fmt.Sprintf("whether another device has the buffer attached could not be read (%v): one that has pinned it in the GPU's memory keeps out a NIC that does not reach that by peer-to-peer", e.Unread),
			"if it is registered with another NIC, " + oneNIC + "; otherwise see the kernel log (dmesg); " + traceIt,
		}, true
	}
	return Finding{Open, "no other device has the buffer attached, so none keeps it in the GPU's memory", "see the kernel log (dmesg); " + traceIt}, true
}

const oneNIC = "register it only with the NIC that reaches the GPU, or end the other registration first, or use a buffer for each NIC"

func isVFIO(driver string) bool { return driver == "vfio-pci-core" || driver == "vfio-pci" }

// unsupported explains EOPNOTSUPP of an exporter, where the NIC's driver
// registers dma-bufs.
func (e *Evidence) unsupported(x exporter) (Finding, bool) {
	switch {
	case isVFIO(x.driver):
		// vfio_pci_dma_buf_attach: peer2peer and dma_buf_attach_revocable
		return Finding{
			NotForIt, e.name(x) + " gives its memory only to importers that use peer-to-peer and give it back when asked",
			"use a NIC whose driver does, such as mlx5 with CONFIG_INFINIBAND_ON_DEMAND_PAGING",
		}, true
	case x.driver == "xe":
		// xe_dma_buf_attach, xe_dma_buf_map
		return Finding{
			NotForIt, e.name(x) + " refuses a NIC that does not reach VRAM by peer-to-peer a buffer that may be in VRAM only",
			"let the buffer be in system memory as well, or " + seeMatrix,
		}, true
	case x.driver == "i915":
		// i915_gem_dmabuf_attach
		return Finding{
			NotForIt, e.name(x) + " gives buffers to other devices in system memory, and this one may not be there",
			"make it with system memory among its placements",
		}, true
	case e.Software && x.driver == "nvidia":
		// nv_dma_buf_ops has no vmap
		return Finding{
			NotForIt, e.nic() + " is a software NIC, which reads by the CPU, and " + e.name(x) + " has no mapping for that (vmap)",
			"use memory that the CPU reaches, or a NIC in hardware",
		}, true
	}
	return Finding{}, false
}
