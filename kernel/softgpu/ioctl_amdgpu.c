// SPDX-License-Identifier: GPL-2.0
/*
 * amdgpu's allocation ioctls. They refuse what drivers/gpu/drm/amd/amdgpu
 * refuses; a comment at each rule names the function there.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <drm/drm_drv.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_vma_manager.h>
#include <uapi/drm/amdgpu_drm.h>

#include "softgpu.h"

#define DEVICE_ID 0x740f	/* MI210 */
#define FAMILY AMDGPU_FAMILY_AI

/* amdgpu_ttm.c: the GTT is half of system memory, 3/4 on older kernels. */
static u64 gtt_size(void)
{
	return ((u64)totalram_pages() << PAGE_SHIFT) / 2;
}

/* amdgpu_gem_are_domains_valid(): a special domain stands alone. */
static bool domains_valid(u64 domains)
{
	u64 normal = domains & (AMDGPU_GEM_DOMAIN_CPU | AMDGPU_GEM_DOMAIN_GTT |
				AMDGPU_GEM_DOMAIN_VRAM);
	u64 special = domains & ~normal;

	if (!special)
		return true;
	return !normal && !(special & (special - 1));
}

/* amdgpu_gem_create_ioctl() */
static int check_create(const struct drm_amdgpu_gem_create_in *in)
{
	if (in->domains & AMDGPU_GEM_DOMAIN_DOORBELL)
		return -EINVAL;
	if (in->domain_flags & ~(u64)(AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED |
				      AMDGPU_GEM_CREATE_NO_CPU_ACCESS |
				      AMDGPU_GEM_CREATE_CPU_GTT_USWC |
				      AMDGPU_GEM_CREATE_VRAM_CLEARED |
				      AMDGPU_GEM_CREATE_VM_ALWAYS_VALID |
				      AMDGPU_GEM_CREATE_EXPLICIT_SYNC |
				      AMDGPU_GEM_CREATE_ENCRYPTED |
				      AMDGPU_GEM_CREATE_GFX12_DCC |
				      AMDGPU_GEM_CREATE_DISCARDABLE))
		return -EINVAL;
	if (in->domains & ~(u64)AMDGPU_GEM_DOMAIN_MASK)
		return -EINVAL;
	if (!domains_valid(in->domains))
		return -EINVAL;
	/* No TMZ. */
	if (in->domain_flags & AMDGPU_GEM_CREATE_ENCRYPTED)
		return -EINVAL;
	/* softgpu does not have the on-chip memories GDS, GWS and OA. */
	if (in->domains & ~(u64)(AMDGPU_GEM_DOMAIN_CPU | AMDGPU_GEM_DOMAIN_GTT |
				 AMDGPU_GEM_DOMAIN_VRAM))
		return -EINVAL;
	return 0;
}

/* amdgpu_bo_create() and amdgpu_bo_validate_size() */
static struct softgpu_bo *bo_create(struct softgpu_device *gpu,
				    const struct drm_amdgpu_gem_create_in *in,
				    u32 domains, u64 flags)
{
	struct softgpu_bo_params params = {
		.size = in->bo_size,
		.align = ALIGN((u32)in->alignment, PAGE_SIZE),
		.visible = flags & AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED,
		.no_cpu = flags & AMDGPU_GEM_CREATE_NO_CPU_ACCESS,
		/* amdgpu_gem_prime_export(): the buffer belongs to one VM. */
		.no_export = flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
	};

	if (params.size > S64_MAX - PAGE_SIZE)
		return ERR_PTR(-ENOMEM);
	if (domains & AMDGPU_GEM_DOMAIN_GTT) {
		if (PAGE_ALIGN(params.size) >= gtt_size())
			return ERR_PTR(-ENOMEM);
	} else if (domains & AMDGPU_GEM_DOMAIN_VRAM) {
		if (PAGE_ALIGN(params.size) >= gpu->vram_size)
			return ERR_PTR(-ENOMEM);
	}
	if (domains & AMDGPU_GEM_DOMAIN_VRAM)
		params.preferred |= SOFTGPU_VRAM;
	/* amdgpu_bo_placement_from_domain(): no domain at all is system memory. */
	if (domains & (AMDGPU_GEM_DOMAIN_GTT | AMDGPU_GEM_DOMAIN_CPU) || !domains)
		params.preferred |= SOFTGPU_SYSTEM;
	params.allowed = params.preferred;
	/* amdgpu drops a discardable buffer at eviction; softgpu keeps it. */
	if (!(flags & AMDGPU_GEM_CREATE_DISCARDABLE))
		params.allowed |= SOFTGPU_SYSTEM;
	return softgpu_bo_create(gpu, &params);
}

static int gem_create(struct drm_device *drm, void *data, struct drm_file *file)
{
	union drm_amdgpu_gem_create *args = data;
	u64 flags = args->in.domain_flags;
	u32 domains = args->in.domains;
	struct softgpu_bo *bo;
	u32 handle;
	int ret;

	ret = check_create(&args->in);
	if (ret)
		return ret;
	for (;;) {
		bo = bo_create(to_softgpu(drm), &args->in, domains, flags);
		if (!IS_ERR(bo))
			break;
		ret = PTR_ERR(bo);
		if (ret == -ERESTARTSYS || ret == -EINTR)
			return ret;
		/*
		 * amdgpu_gem_create_ioctl() tries again: first outside the BAR,
		 * then in GTT. Full VRAM, or a buffer larger than VRAM, is
		 * therefore no error.
		 */
		if (flags & AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED)
			flags &= ~(u64)AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED;
		else if (domains == AMDGPU_GEM_DOMAIN_VRAM)
			domains |= AMDGPU_GEM_DOMAIN_GTT;
		else
			return ret == -E2BIG ? -ENOMEM : ret;
	}
	ret = softgpu_bo_publish(bo, file, &handle);
	if (ret)
		return ret;
	memset(args, 0, sizeof(*args));
	args->out.handle = handle;
	return 0;
}

/* amdgpu_gem_mmap_ioctl() and amdgpu_mode_dumb_mmap() */
static int gem_mmap(struct drm_device *drm, void *data, struct drm_file *file)
{
	union drm_amdgpu_gem_mmap *args = data;
	struct drm_gem_object *obj;
	int ret = 0;

	obj = drm_gem_object_lookup(file, args->in.handle);
	memset(args, 0, sizeof(*args));
	if (!obj)
		return -ENOENT;
	if (to_bo(obj)->no_cpu)
		ret = -EPERM;
	else
		args->out.addr_ptr = drm_vma_node_offset_addr(&obj->vma_node);
	drm_gem_object_put(obj);
	return ret;
}

static void fill_heap(struct drm_amdgpu_heap_info *heap, u64 size, u64 used)
{
	heap->total_heap_size = size;
	heap->usable_heap_size = size;
	heap->heap_usage = used;
	heap->max_allocation = size * 3 / 4;
}

static void fill_memory(struct softgpu_device *gpu, struct drm_amdgpu_memory_info *mem)
{
	fill_heap(&mem->vram, gpu->vram_size, READ_ONCE(gpu->vram_used));
	fill_heap(&mem->cpu_accessible_vram, gpu->visible_size, READ_ONCE(gpu->visible_used));
	fill_heap(&mem->gtt, gtt_size(), atomic64_read(&gpu->system_used));
}

static void fill_device(struct softgpu_device *gpu, struct drm_amdgpu_info_device *dev)
{
	dev->device_id = DEVICE_ID;
	dev->pci_rev = gpu->pdev->revision;
	dev->family = FAMILY;
	dev->virtual_address_alignment = PAGE_SIZE;
	dev->gart_page_size = PAGE_SIZE;
	dev->vram_type = AMDGPU_VRAM_TYPE_HBM;
}

/* amdgpu_info_ioctl(): copies as much as the caller has room for. */
static int answer(const struct drm_amdgpu_info *info, const void *what, size_t size)
{
	return copy_to_user(u64_to_user_ptr(info->return_pointer), what,
			    min_t(size_t, info->return_size, size)) ? -EFAULT : 0;
}

static int info_device(struct softgpu_device *gpu, const struct drm_amdgpu_info *info)
{
	struct drm_amdgpu_info_device *dev = kzalloc_obj(*dev);
	int ret;

	if (!dev)
		return -ENOMEM;
	fill_device(gpu, dev);
	ret = answer(info, dev, sizeof(*dev));
	kfree(dev);
	return ret;
}

static int info(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct softgpu_device *gpu = to_softgpu(drm);
	struct drm_amdgpu_info *args = data;
	struct drm_amdgpu_info_vram_gtt sizes = {};
	struct drm_amdgpu_memory_info mem = {};
	u32 accel = 1;
	u64 bytes;

	if (!args->return_size || !args->return_pointer)
		return -EINVAL;
	switch (args->query) {
	case AMDGPU_INFO_ACCEL_WORKING:
		return answer(args, &accel, sizeof(accel));
	case AMDGPU_INFO_VRAM_USAGE:
		bytes = READ_ONCE(gpu->vram_used);
		return answer(args, &bytes, sizeof(bytes));
	case AMDGPU_INFO_VIS_VRAM_USAGE:
		bytes = READ_ONCE(gpu->visible_used);
		return answer(args, &bytes, sizeof(bytes));
	case AMDGPU_INFO_GTT_USAGE:
		bytes = atomic64_read(&gpu->system_used);
		return answer(args, &bytes, sizeof(bytes));
	case AMDGPU_INFO_VRAM_GTT:
		sizes.vram_size = gpu->vram_size;
		sizes.vram_cpu_accessible_size = gpu->visible_size;
		sizes.gtt_size = gtt_size();
		return answer(args, &sizes, sizeof(sizes));
	case AMDGPU_INFO_MEMORY:
		fill_memory(gpu, &mem);
		return answer(args, &mem, sizeof(mem));
	case AMDGPU_INFO_DEV_INFO:
		return info_device(gpu, args);
	default:
		return -EINVAL;
	}
}

static const struct drm_ioctl_desc ioctls[] = {
	DRM_IOCTL_DEF_DRV(AMDGPU_GEM_CREATE, gem_create, DRM_AUTH | DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(AMDGPU_GEM_MMAP, gem_mmap, DRM_AUTH | DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(AMDGPU_INFO, info, DRM_AUTH | DRM_RENDER_ALLOW),
};

const struct drm_driver softgpu_amdgpu_driver = {
	SOFTGPU_DRIVER_COMMON,
	.name = "amdgpu",
	.major = 3,
	.minor = 61,
	.ioctls = ioctls,
	.num_ioctls = ARRAY_SIZE(ioctls),
};
