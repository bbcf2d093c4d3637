// SPDX-License-Identifier: Apache-2.0

package loader

import "testing"

func TestExporterOps(t *testing.T) {
	for _, name := range []string{"amdgpu_dma_buf_pin", "xe_dma_buf_map", "nv_dma_buf_map", "drm_gem_map_dma_buf", "map_udmabuf", "system_heap_map_dma_buf", "vfio_pci_dma_buf_attach", "i915_gem_map_dma_buf"} {
		if !maybeExporterOp([]byte(name)) {
			t.Errorf("%s is an exporter's operation", name)
		}
	}
	for _, name := range []string{"dma_buf_pin", "dma_buf_map_attachment", "__map_dma_buf", "amdgpu_dma_buf_unpin", "drm_gem_unmap_dma_buf", "amdgpu_dma_buf_detach", "drm_gem_dmabuf_vmap", "ext4_map_blocks"} {
		if maybeExporterOp([]byte(name)) {
			t.Errorf("%s is none", name)
		}
	}
}
