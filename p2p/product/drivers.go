// SPDX-License-Identifier: Apache-2.0

package product

// drivers are the kernel drivers whose name alone decides.
var drivers = map[string]*line{
	"vfio-pci":             byKernel("vfio-pci", "drivers/vfio/pci/vfio_pci_dmabuf.c"),
	"nvgrace-gpu-vfio-pci": byKernel("vfio-pci", "drivers/vfio/pci/nvgrace-gpu/main.c"),
	"habanalabs":           byKernel("Gaudi", "drivers/accel/habanalabs/common/memory.c; libfabric fi_efa"),
	"softgpu":              byKernel("software GPU", "kernel/softgpu/export.c"),
	"vgem":                 byKernel("no GPU", "drivers/gpu/drm/vgem/vgem_drv.c"),
	"vkms":                 byKernel("no GPU", "drivers/gpu/drm/vkms/vkms_drv.c"),
	"virtio_gpu":           byKernel("virtual display", "drivers/gpu/drm/virtio/virtgpu_prime.c"),
	"ast":                  byKernel("display", "drivers/gpu/drm/ast/ast_drv.c"),
	"mgag200":              byKernel("display", "drivers/gpu/drm/mgag200/mgag200_drv.c"),
	"hyperv_drm":           byKernel("virtual display", "drivers/gpu/drm/hyperv/hyperv_drm_drv.c"),
	"simple-framebuffer":   byKernel("display", "drivers/gpu/drm/sysfb/simpledrm.c"),
	"bochs-drm":            byKernel("virtual display", "drivers/gpu/drm/tiny/bochs.c"),
	"cirrus":               byKernel("virtual display", "drivers/gpu/drm/tiny/cirrus-qemu.c"),
	"cirrus-qemu":          byKernel("virtual display", "drivers/gpu/drm/tiny/cirrus-qemu.c"),
	"qxl":                  byKernel("virtual display", "drivers/gpu/drm/qxl/qxl_drv.c"),
	"qaic":                 byKernel("accelerator", "drivers/accel/qaic/qaic_data.c"),
	"ivpu":                 byKernel("accelerator", "drivers/accel/ivpu/ivpu_gem.c"),
	"intel_vpu":            byKernel("accelerator", "drivers/accel/ivpu/ivpu_gem.c"),
	"amdxdna":              byKernel("accelerator", "drivers/accel/amdxdna/amdxdna_gem.c"),
	"nvgpu":                tegra,
	"gk20a":                tegra,
	"nouveau": {
		name: "nouveau", dmabuf: No, peermem: No,
		why:    "nouveau moves a buffer to system memory when it exports it, and CUDA does not run on nouveau",
		change: "bind NVIDIA's driver with the open kernel modules in place of nouveau",
		source: "drivers/gpu/drm/nouveau/nouveau_prime.c nouveau_gem_prime_pin()",
	},
	"radeon": {
		name: "radeon", dmabuf: No, peermem: No,
		why:    "the radeon driver moves a buffer to system memory when it exports it, and ROCm does not run on it",
		change: "use a GPU that amdgpu drives",
		source: "drivers/gpu/drm/radeon/radeon_prime.c radeon_gem_prime_pin()",
	},
}

// byKernel is a line for a driver that needs no library to export buffers. Where the
// exported bytes are is a rule of the driver, not of the product.
func byKernel(name, source string) *line {
	return &line{
		name: name, dmabuf: Yes,
		why:    "the kernel's driver exports buffers itself, and no library of a vendor decides",
		source: source,
	}
}
