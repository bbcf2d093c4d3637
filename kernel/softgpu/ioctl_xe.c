// SPDX-License-Identifier: GPL-2.0
/*
 * xe's allocation ioctls, as a discrete GPU with 64 KiB pages answers them.
 * They refuse what drivers/gpu/drm/xe refuses; a comment at each rule names the
 * function there.
 */
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <drm/drm_drv.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_vma_manager.h>
#include <uapi/drm/xe_drm.h>

#include "softgpu.h"

/* Bit 0 system memory, bit 1 the first tile's VRAM (xe_query.c). */
#define MEM_REGION_MASK 0x3
#define DEVICE_ID 0x0bd5	/* Ponte Vecchio, which has 64 KiB pages */
#define XE_VA_BITS 57

#ifdef HAVE_XE_NO_COMPRESSION
#define FLAG_NO_COMPRESSION DRM_XE_GEM_CREATE_FLAG_NO_COMPRESSION
#else
#define FLAG_NO_COMPRESSION 0
#endif

/* xe_gem_create_ioctl() in xe_bo.c: the checks that need no device. */
static int check_create(const struct drm_xe_gem_create *args)
{
	bool vram = args->placement & 0x2;

	if (args->extensions)
		return -EINVAL;
	if (args->pad[0] || args->pad[1] || args->pad[2] ||
	    args->reserved[0] || args->reserved[1])
		return -EINVAL;
	if (!args->placement || (args->placement & ~MEM_REGION_MASK))
		return -EINVAL;
	if (args->flags & ~(DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING |
			    DRM_XE_GEM_CREATE_FLAG_SCANOUT |
			    DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM |
			    FLAG_NO_COMPRESSION))
		return -EINVAL;
	if (args->handle || !args->size || (args->size & ~PAGE_MASK))
		return -EINVAL;
	/* Graphics versions before 20 do not have it. */
	if (args->flags & FLAG_NO_COMPRESSION)
		return -EOPNOTSUPP;
	if ((args->flags & DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM) && !vram)
		return -EINVAL;
	if (!args->cpu_caching || args->cpu_caching > DRM_XE_GEM_CPU_CACHING_WC)
		return -EINVAL;
	if (vram && args->cpu_caching != DRM_XE_GEM_CPU_CACHING_WC)
		return -EINVAL;
	if ((args->flags & DRM_XE_GEM_CREATE_FLAG_SCANOUT) &&
	    args->cpu_caching == DRM_XE_GEM_CPU_CACHING_WB)
		return -EINVAL;
	return 0;
}

static int gem_create(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct softgpu_device *gpu = to_softgpu(drm);
	struct drm_xe_gem_create *args = data;
	struct softgpu_bo_params params = {};
	struct softgpu_bo *bo;
	int ret;

	ret = check_create(args);
	if (ret)
		return ret;
	/* softgpu has no VMs, so xe_vm_lookup() would find none. */
	if (args->vm_id)
		return -ENOENT;
	if (args->placement & 0x1)
		params.allowed |= SOFTGPU_SYSTEM;
	if (args->placement & 0x2)
		params.allowed |= SOFTGPU_VRAM;
	/* try_add_vram() comes before try_add_system() in xe_bo.c. */
	params.preferred = params.allowed;
	/* ___xe_bo_create_locked(): a user's buffer is whole VRAM pages. */
	params.align = params.allowed & SOFTGPU_VRAM ? gpu->vram_page : PAGE_SIZE;
	if (!IS_ALIGNED(args->size, params.align))
		return -EINVAL;
	params.size = args->size;
	params.visible = args->flags & DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM;
	params.defer = args->flags & DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING;
	bo = softgpu_bo_create(gpu, &params);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	return softgpu_bo_publish(bo, file, &args->handle);
}

/* xe_gem_mmap_offset_ioctl() */
static int gem_mmap_offset(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_xe_gem_mmap_offset *args = data;
	struct drm_gem_object *obj;

	if (args->extensions || args->reserved[0] || args->reserved[1])
		return -EINVAL;
#ifdef HAVE_XE_PCI_BARRIER
	/* softgpu does not have the register behind the barrier page. */
	if (args->flags & ~DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER)
		return -EINVAL;
	if (args->flags)
		return args->handle ? -EINVAL : -EOPNOTSUPP;
#else
	if (args->flags)
		return -EINVAL;
#endif
	obj = drm_gem_object_lookup(file, args->handle);
	if (!obj)
		return -ENOENT;
	args->offset = drm_vma_node_offset_addr(&obj->vma_node);
	drm_gem_object_put(obj);
	return 0;
}

/*
 * The rule of every query in xe_query.c: size 0 asks for the size, and any
 * other size must be exact. Returns 1 if the caller's buffer is to be filled.
 */
static int query_size(struct drm_xe_device_query *query, size_t size)
{
	if (!query->size) {
		query->size = size;
		return 0;
	}
	return query->size == size ? 1 : -EINVAL;
}

static int query_mem_regions(struct softgpu_device *gpu, struct drm_xe_device_query *query)
{
	struct drm_xe_query_mem_regions *regions;
	struct drm_xe_mem_region *region;
	size_t size = struct_size(regions, mem_regions, 2);
	int ret = query_size(query, size);

	if (ret <= 0)
		return ret;
	regions = kzalloc(size, GFP_KERNEL);
	if (!regions)
		return -ENOMEM;
	regions->num_mem_regions = 2;
	region = &regions->mem_regions[0];
	region->mem_class = DRM_XE_MEM_REGION_CLASS_SYSMEM;
	region->min_page_size = PAGE_SIZE;
	region->total_size = (u64)totalram_pages() << PAGE_SHIFT;
	region->used = atomic64_read(&gpu->system_used);
	region = &regions->mem_regions[1];
	region->mem_class = DRM_XE_MEM_REGION_CLASS_VRAM;
	region->instance = 1;
	region->min_page_size = gpu->vram_page;
	region->total_size = gpu->vram_size;
	region->used = READ_ONCE(gpu->vram_used);
	region->cpu_visible_size = gpu->visible_size;
	region->cpu_visible_used = READ_ONCE(gpu->visible_used);
	ret = copy_to_user(u64_to_user_ptr(query->data), regions, size) ? -ENOSPC : 0;
	kfree(regions);
	return ret;
}

static int query_config(struct softgpu_device *gpu, struct drm_xe_device_query *query)
{
	const u32 n = DRM_XE_QUERY_CONFIG_MAX_EXEC_QUEUE_PRIORITY + 1;
	struct drm_xe_query_config *config;
	size_t size = struct_size(config, info, n);
	int ret = query_size(query, size);

	if (ret <= 0)
		return ret;
	config = kzalloc(size, GFP_KERNEL);
	if (!config)
		return -ENOMEM;
	config->num_params = n;
	config->info[DRM_XE_QUERY_CONFIG_REV_AND_DEVICE_ID] =
		DEVICE_ID | (gpu->pdev->revision << 16);
	config->info[DRM_XE_QUERY_CONFIG_FLAGS] = DRM_XE_QUERY_CONFIG_FLAG_HAS_VRAM;
	config->info[DRM_XE_QUERY_CONFIG_MIN_ALIGNMENT] = gpu->vram_page;
	config->info[DRM_XE_QUERY_CONFIG_VA_BITS] = XE_VA_BITS;
	ret = copy_to_user(u64_to_user_ptr(query->data), config, size) ? -EFAULT : 0;
	kfree(config);
	return ret;
}

/* xe_query_ioctl() */
static int device_query(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_xe_device_query *query = data;

	if (query->extensions || query->reserved[0] || query->reserved[1])
		return -EINVAL;
	switch (query->query) {
	case DRM_XE_DEVICE_QUERY_MEM_REGIONS:
		return query_mem_regions(to_softgpu(drm), query);
	case DRM_XE_DEVICE_QUERY_CONFIG:
		return query_config(to_softgpu(drm), query);
	default:
		return -EINVAL;
	}
}

static const struct drm_ioctl_desc ioctls[] = {
	DRM_IOCTL_DEF_DRV(XE_DEVICE_QUERY, device_query, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(XE_GEM_CREATE, gem_create, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(XE_GEM_MMAP_OFFSET, gem_mmap_offset, DRM_RENDER_ALLOW),
};

const struct drm_driver softgpu_xe_driver = {
	SOFTGPU_DRIVER_COMMON,
	.name = "xe",
	.major = 1,
	.minor = 1,
	.ioctls = ioctls,
	.num_ioctls = ARRAY_SIZE(ioctls),
};
