// SPDX-License-Identifier: GPL-2.0
/*
 * i915's allocation ioctls, as a discrete GPU with 64 KiB pages answers them.
 * They refuse what drivers/gpu/drm/i915 refuses; a comment at each rule names
 * the function there.
 */
#include <linux/capability.h>
#include <linux/sizes.h>
#include <linux/uaccess.h>
#include <drm/drm_drv.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_vma_manager.h>
#include <uapi/drm/i915_drm.h>

#include "softgpu.h"

/* a server card with DG2 */
#define CHIPSET_ID 0x56c0
/* intel_region_lmem.c: min_page_size of local memory. */
#define LMEM_PAGE SZ_64K

struct create_ext {
	unsigned int n;
	u32 places[2];		/* in the caller's order */
	u32 mask;
};

static u32 region_place(const struct drm_i915_gem_memory_class_instance *region)
{
	if (region->memory_instance)
		return 0;
	switch (region->memory_class) {
	case I915_MEMORY_CLASS_SYSTEM:
		return SOFTGPU_SYSTEM;
	case I915_MEMORY_CLASS_DEVICE:
		return SOFTGPU_VRAM;
	default:
		return 0;
	}
}

/* set_placements() in gem/i915_gem_create.c */
static int ext_memory_regions(struct i915_user_extension __user *base, struct create_ext *data)
{
	struct drm_i915_gem_create_ext_memory_regions ext;
	struct drm_i915_gem_memory_class_instance __user *uregions;
	struct drm_i915_gem_memory_class_instance region;
	u32 mask = 0, place, i;

	if (copy_from_user(&ext, base, sizeof(ext)))
		return -EFAULT;
	if (ext.pad || !ext.num_regions || ext.num_regions > ARRAY_SIZE(data->places))
		return -EINVAL;
	uregions = u64_to_user_ptr(ext.regions);
	for (i = 0; i < ext.num_regions; i++) {
		if (copy_from_user(&region, &uregions[i], sizeof(region)))
			return -EFAULT;
		place = region_place(&region);
		/* No such region, or named twice. */
		if (!place || (mask & place))
			return -EINVAL;
		if (!data->n)
			data->places[i] = place;
		mask |= place;
	}
	/* Only one such extension in a call. */
	if (data->n)
		return -EINVAL;
	data->n = ext.num_regions;
	data->mask = mask;
	return 0;
}

/* ext_set_protected() without PXP hardware. */
static int ext_protected(struct i915_user_extension __user *base)
{
	struct drm_i915_gem_create_ext_protected_content ext;

	if (copy_from_user(&ext, base, sizeof(ext)))
		return -EFAULT;
	return ext.flags ? -EINVAL : -ENODEV;
}

static int one_extension(struct i915_user_extension __user *ext, u32 name, struct create_ext *data)
{
	if (!data)
		return -EINVAL;
	switch (name) {
	case I915_GEM_CREATE_EXT_MEMORY_REGIONS:
		return ext_memory_regions(ext, data);
	case I915_GEM_CREATE_EXT_PROTECTED_CONTENT:
		return ext_protected(ext);
	case I915_GEM_CREATE_EXT_SET_PAT:
		/* ext_set_pat(): not before Xe_LPG. */
		return -ENODEV;
	default:
		return -EINVAL;
	}
}

/* i915_user_extensions(). data is NULL where no extension is defined. */
static int user_extensions(u64 first, struct create_ext *data)
{
	struct i915_user_extension __user *ext = u64_to_user_ptr(first);
	struct i915_user_extension head;
	unsigned int depth = 512, i;
	int ret;

	while (ext) {
		if (!depth--)
			return -E2BIG;
		if (copy_from_user(&head, ext, sizeof(head)))
			return -EFAULT;
		if (head.flags)
			return -EINVAL;
		for (i = 0; i < ARRAY_SIZE(head.rsvd); i++)
			if (head.rsvd[i])
				return -EINVAL;
		ret = one_extension(ext, head.name, data);
		if (ret)
			return ret;
		ext = u64_to_user_ptr(head.next_extension);
	}
	return 0;
}

/* __i915_gem_object_create_user_ext(): memory comes with the first use. */
static int create(struct drm_device *drm, struct drm_file *file, u64 *size, u32 *handle,
		  struct softgpu_bo_params *params)
{
	u64 page = params->allowed & SOFTGPU_VRAM ? LMEM_PAGE : PAGE_SIZE;
	struct softgpu_bo *bo;

	if (*size > U64_MAX - page)
		return -EINVAL;
	params->size = round_up(*size, page);
	if (!params->size)
		return -EINVAL;
	params->align = page;
	params->defer = true;
	bo = softgpu_bo_create(to_softgpu(drm), params);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	*size = bo->base.size;
	return softgpu_bo_publish(bo, file, handle);
}

static int gem_create(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_i915_gem_create *args = data;
	struct softgpu_bo_params params = {
		.allowed = SOFTGPU_SYSTEM,
		.preferred = SOFTGPU_SYSTEM,
	};

	return create(drm, file, &args->size, &args->handle, &params);
}

/* i915_gem_create_ext_ioctl() */
static int gem_create_ext(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_i915_gem_create_ext *args = data;
	struct softgpu_bo_params params = {};
	struct create_ext ext = {};
	int ret;

	if (args->flags & ~I915_GEM_CREATE_EXT_FLAG_NEEDS_CPU_ACCESS)
		return -EINVAL;
	ret = user_extensions(args->extensions, &ext);
	if (ret)
		return ret;
	if (!ext.n) {
		ext.n = 1;
		ext.places[0] = SOFTGPU_SYSTEM;
		ext.mask = SOFTGPU_SYSTEM;
	}
	if (args->flags & I915_GEM_CREATE_EXT_FLAG_NEEDS_CPU_ACCESS) {
		/* It must be able to spill to system memory. */
		if (ext.n == 1 || !(ext.mask & SOFTGPU_SYSTEM))
			return -EINVAL;
		params.visible = true;
	}
	params.allowed = ext.mask;
	params.preferred = ext.places[0];
	return create(drm, file, &args->size, &args->handle, &params);
}

/* i915_gem_mmap_offset_ioctl(): with local memory there is one kind of mapping. */
static int gem_mmap_offset(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_i915_gem_mmap_offset *args = data;
	struct drm_gem_object *obj;
	int ret;

	ret = user_extensions(args->extensions, NULL);
	if (ret)
		return ret;
	switch (args->flags) {
	case I915_MMAP_OFFSET_FIXED:
		break;
	case I915_MMAP_OFFSET_GTT:
	case I915_MMAP_OFFSET_WC:
	case I915_MMAP_OFFSET_WB:
	case I915_MMAP_OFFSET_UC:
		return -ENODEV;
	default:
		return -EINVAL;
	}
	obj = drm_gem_object_lookup(file, args->handle);
	if (!obj)
		return -ENOENT;
	args->offset = drm_vma_node_offset_addr(&obj->vma_node);
	drm_gem_object_put(obj);
	return 0;
}

static void fill_region(struct softgpu_device *gpu, struct drm_i915_memory_region_info *info,
			u32 place)
{
	u64 size, visible, used, visible_used;

	memset(info, 0, sizeof(*info));
	if (place == SOFTGPU_VRAM) {
		info->region.memory_class = I915_MEMORY_CLASS_DEVICE;
		size = gpu->vram_size;
		visible = gpu->visible_size;
		used = READ_ONCE(gpu->vram_used);
		visible_used = READ_ONCE(gpu->visible_used);
	} else {
		info->region.memory_class = I915_MEMORY_CLASS_SYSTEM;
		size = (u64)totalram_pages() << PAGE_SHIFT;
		visible = size;
		used = atomic64_read(&gpu->system_used);
		visible_used = used;
	}
	info->probed_size = size;
	info->probed_cpu_visible_size = visible;
	/* query_memregion_info(): only for processes with CAP_PERFMON. */
	if (perfmon_capable()) {
		info->unallocated_size = size - used;
		info->unallocated_cpu_visible_size = visible - visible_used;
	} else {
		info->unallocated_size = size;
		info->unallocated_cpu_visible_size = visible;
	}
}

/* query_memregion_info() and copy_query_item() in i915_query.c */
static int query_regions(struct softgpu_device *gpu, const struct drm_i915_query_item *item)
{
	static const u32 places[] = { SOFTGPU_SYSTEM, SOFTGPU_VRAM };
	struct drm_i915_query_memory_regions __user *out = u64_to_user_ptr(item->data_ptr);
	struct drm_i915_memory_region_info info;
	struct drm_i915_query_memory_regions head;
	int total = sizeof(head) + ARRAY_SIZE(places) * sizeof(info);
	unsigned int i;

	if (item->flags)
		return -EINVAL;
	if (!item->length)
		return total;
	if (item->length < total)
		return -EINVAL;
	if (copy_from_user(&head, out, sizeof(head)))
		return -EFAULT;
	if (head.num_regions)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(head.rsvd); i++)
		if (head.rsvd[i])
			return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(places); i++) {
		fill_region(gpu, &info, places[i]);
		if (copy_to_user(&out->regions[i], &info, sizeof(info)))
			return -EFAULT;
	}
	head.num_regions = ARRAY_SIZE(places);
	return copy_to_user(out, &head, sizeof(head)) ? -EFAULT : total;
}

/* i915_query_ioctl(): an item's own error becomes its length. */
static int query(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_i915_query *args = data;
	struct drm_i915_query_item __user *items = u64_to_user_ptr(args->items_ptr);
	struct drm_i915_query_item item;
	u32 i;
	int ret;

	if (args->flags)
		return -EINVAL;
	for (i = 0; i < args->num_items; i++) {
		if (copy_from_user(&item, &items[i], sizeof(item)))
			return -EFAULT;
		if (!item.query_id)
			return -EINVAL;
		ret = -EINVAL;
		if (item.query_id == DRM_I915_QUERY_MEMORY_REGIONS)
			ret = query_regions(to_softgpu(drm), &item);
		if (ret != item.length && put_user(ret, &items[i].length))
			return -EFAULT;
	}
	return 0;
}

/* i915_getparam_ioctl() */
static int getparam(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_i915_getparam *args = data;
	int value;

	switch (args->param) {
	case I915_PARAM_CHIPSET_ID:
		value = CHIPSET_ID;
		break;
	case I915_PARAM_REVISION:
		value = to_softgpu(drm)->pdev->revision;
		break;
	case I915_PARAM_MMAP_GTT_VERSION:
		value = 4;
		break;
	default:
		return -EINVAL;
	}
	return put_user(value, args->value) ? -EFAULT : 0;
}

static const struct drm_ioctl_desc ioctls[] = {
	DRM_IOCTL_DEF_DRV(I915_GETPARAM, getparam, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(I915_GEM_CREATE, gem_create, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(I915_GEM_CREATE_EXT, gem_create_ext, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(I915_GEM_MMAP_OFFSET, gem_mmap_offset, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(I915_QUERY, query, DRM_RENDER_ALLOW),
};

const struct drm_driver softgpu_i915_driver = {
	SOFTGPU_DRIVER_COMMON,
	.name = "i915",
	.major = 1,
	.minor = 6,
	.ioctls = ioctls,
	.num_ioctls = ARRAY_SIZE(ioctls),
};
