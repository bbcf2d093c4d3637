// SPDX-License-Identifier: GPL-2.0
/* What each personality's allocation ioctls accept and refuse. */
#include <errno.h>
#include <string.h>

#include <drm/drm.h>
#include <drm/amdgpu_drm.h>
#include <drm/i915_drm.h>
#include <drm/xe_drm.h>

#include "testlib.h"

static void close_handle(struct gpu *gpu, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	check_errno(call(gpu->drm, DRM_IOCTL_GEM_CLOSE, &args), 0);
}

static void test_name(struct gpu *gpu)
{
	char name[32] = "";
	struct drm_version version = { .name = name, .name_len = sizeof(name) - 1 };

	check_errno(call(gpu->drm, DRM_IOCTL_VERSION, &version), 0);
	check(!strcmp(name, gpu->personality), "%s", name);
}

/* Creates a buffer with these arguments, and closes it if that succeeds. */
static int i915_ext(struct gpu *gpu, uint64_t size, uint32_t flags, uint32_t n,
		    struct drm_i915_gem_memory_class_instance *regions, uint64_t *got)
{
	struct drm_i915_gem_create_ext_memory_regions ext = {
		.base.name = I915_GEM_CREATE_EXT_MEMORY_REGIONS,
		.num_regions = n,
		.regions = (uintptr_t)regions,
	};
	struct drm_i915_gem_create_ext args = {
		.size = size, .flags = flags, .extensions = n ? (uintptr_t)&ext : 0,
	};
	int ret = call(gpu->drm, DRM_IOCTL_I915_GEM_CREATE_EXT, &args);

	if (!ret)
		close_handle(gpu, args.handle);
	if (got)
		*got = args.size;
	return ret;
}

static void test_i915_create(struct gpu *gpu)
{
	struct drm_i915_gem_memory_class_instance smem = { I915_MEMORY_CLASS_SYSTEM, 0 };
	struct drm_i915_gem_memory_class_instance lmem = { I915_MEMORY_CLASS_DEVICE, 0 };
	struct drm_i915_gem_memory_class_instance lmem1 = { I915_MEMORY_CLASS_DEVICE, 1 };
	struct drm_i915_gem_memory_class_instance both[] = { lmem, smem };
	struct drm_i915_gem_memory_class_instance twice[] = { lmem, lmem };
	const uint32_t cpu = I915_GEM_CREATE_EXT_FLAG_NEEDS_CPU_ACCESS;
	struct drm_i915_gem_create plain = { .size = 5000 };
	struct drm_i915_gem_create_ext unknown = { .size = 4096 };
	struct i915_user_extension bad = { .name = 99 };
	struct drm_i915_gem_mmap_offset mm = { .flags = I915_MMAP_OFFSET_WB };
	uint64_t size;

	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_CREATE, &plain), 0);
	check(plain.size == 8192);
	mm.handle = plain.handle;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_MMAP_OFFSET, &mm), -ENODEV);
	mm.flags = 77;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_MMAP_OFFSET, &mm), -EINVAL);
	close_handle(gpu, plain.handle);
	mm.flags = I915_MMAP_OFFSET_FIXED;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_MMAP_OFFSET, &mm), -ENOENT);

	check_errno(i915_ext(gpu, 4096, 0, 1, &lmem, &size), 0);
	check(size == 65536, "local memory has 64 KiB pages");
	check_errno(i915_ext(gpu, 4096, 0, 1, &smem, &size), 0);
	check(size == 4096);
	check_errno(i915_ext(gpu, 0, 0, 1, &lmem, NULL), -EINVAL);
	check_errno(i915_ext(gpu, 4096, 0, 1, &lmem1, NULL), -EINVAL);
	check_errno(i915_ext(gpu, 4096, 0, 2, twice, NULL), -EINVAL);
	check_errno(i915_ext(gpu, 4096, 2, 1, &lmem, NULL), -EINVAL);
	check_errno(i915_ext(gpu, 4096, cpu, 1, &lmem, NULL), -EINVAL);
	check_errno(i915_ext(gpu, 4096, cpu, 2, both, NULL), 0);
	unknown.extensions = (uintptr_t)&bad;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_CREATE_EXT, &unknown), -EINVAL);
	unknown.extensions = 8;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_CREATE_EXT, &unknown), -EFAULT);
	/* A chain that leads back to itself. */
	bad.name = I915_GEM_CREATE_EXT_MEMORY_REGIONS;
	bad.flags = 1;
	unknown.extensions = (uintptr_t)&bad;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_GEM_CREATE_EXT, &unknown), -EINVAL);
}

static void test_i915_query(struct gpu *gpu)
{
	char buf[sizeof(struct drm_i915_query_memory_regions) +
		 2 * sizeof(struct drm_i915_memory_region_info)] = "";
	struct drm_i915_query_memory_regions *regions = (void *)buf;
	struct drm_i915_query_item item = { .query_id = DRM_I915_QUERY_MEMORY_REGIONS };
	struct drm_i915_query query = { .num_items = 1, .items_ptr = (uintptr_t)&item };

	check_errno(call(gpu->drm, DRM_IOCTL_I915_QUERY, &query), 0);
	check(item.length == sizeof(buf), "%d", item.length);
	item.data_ptr = (uintptr_t)buf;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_QUERY, &query), 0);
	check(item.length == sizeof(buf) && regions->num_regions == 2);
	check(regions->regions[1].region.memory_class == I915_MEMORY_CLASS_DEVICE);
	check(regions->regions[1].probed_cpu_visible_size == gpu->bar_size);
	item.length = 8;
	regions->num_regions = 0;
	check_errno(call(gpu->drm, DRM_IOCTL_I915_QUERY, &query), 0);
	check(item.length == -EINVAL);
}

static int xe_create(struct gpu *gpu, struct drm_xe_gem_create args)
{
	int ret = call(gpu->drm, DRM_IOCTL_XE_GEM_CREATE, &args);

	if (!ret)
		close_handle(gpu, args.handle);
	return ret;
}

static void test_xe_create(struct gpu *gpu)
{
	const struct drm_xe_gem_create good = {
		.size = 65536, .placement = 2, .cpu_caching = DRM_XE_GEM_CPU_CACHING_WC,
	};
	struct drm_xe_gem_create args;

	check_errno(xe_create(gpu, good), 0);
#define REFUSED(err, field, value) \
	do { \
		args = good; \
		args.field = value; \
		check_errno(xe_create(gpu, args), err); \
	} while (0)
	REFUSED(-EINVAL, size, 0);
	REFUSED(-EINVAL, size, 65537);
	REFUSED(-EINVAL, size, 4096);
	REFUSED(-EINVAL, placement, 0);
	REFUSED(-EINVAL, placement, 4);
	REFUSED(-EINVAL, flags, 1 << 20);
	REFUSED(-EINVAL, handle, 1);
	REFUSED(-EINVAL, cpu_caching, 0);
	REFUSED(-EINVAL, cpu_caching, 3);
	REFUSED(-EINVAL, cpu_caching, DRM_XE_GEM_CPU_CACHING_WB);
	REFUSED(-EINVAL, pad[1], 1);
	REFUSED(-EINVAL, reserved[0], 1);
	REFUSED(-ENOENT, vm_id, 1);
	REFUSED(-E2BIG, size, gpu->bar_size * 64);
	args = good;
	args.placement = 1;
	args.flags = DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM;
	check_errno(xe_create(gpu, args), -EINVAL);
	args.flags = 0;
	args.size = 4096;
	args.cpu_caching = DRM_XE_GEM_CPU_CACHING_WB;
	check_errno(xe_create(gpu, args), 0);
	args.flags = DRM_XE_GEM_CREATE_FLAG_SCANOUT;
	check_errno(xe_create(gpu, args), -EINVAL);
	args = good;
	args.flags = DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING;
	check_errno(xe_create(gpu, args), 0);
}

static void test_xe_query(struct gpu *gpu)
{
	char buf[sizeof(struct drm_xe_query_mem_regions) + 2 * sizeof(struct drm_xe_mem_region)];
	struct drm_xe_query_mem_regions *regions = (void *)buf;
	struct drm_xe_device_query query = { .query = DRM_XE_DEVICE_QUERY_MEM_REGIONS };

	check_errno(call(gpu->drm, DRM_IOCTL_XE_DEVICE_QUERY, &query), 0);
	check(query.size == sizeof(buf), "%u", query.size);
	query.data = (uintptr_t)buf;
	check_errno(call(gpu->drm, DRM_IOCTL_XE_DEVICE_QUERY, &query), 0);
	check(regions->num_mem_regions == 2);
	check(regions->mem_regions[1].mem_class == DRM_XE_MEM_REGION_CLASS_VRAM);
	check(regions->mem_regions[1].instance == 1);
	check(regions->mem_regions[1].cpu_visible_size == gpu->bar_size);
	query.size--;
	check_errno(call(gpu->drm, DRM_IOCTL_XE_DEVICE_QUERY, &query), -EINVAL);
	query.query = 999;
	check_errno(call(gpu->drm, DRM_IOCTL_XE_DEVICE_QUERY, &query), -EINVAL);
}

static int amdgpu_create(struct gpu *gpu, uint64_t size, uint64_t align, uint64_t domains,
			 uint64_t flags)
{
	union drm_amdgpu_gem_create args = {
		.in = { .bo_size = size, .alignment = align, .domains = domains,
			.domain_flags = flags },
	};
	int ret = call(gpu->drm, DRM_IOCTL_AMDGPU_GEM_CREATE, &args);

	if (!ret)
		close_handle(gpu, args.out.handle);
	return ret;
}

static void test_amdgpu_create(struct gpu *gpu)
{
	const uint64_t vram = AMDGPU_GEM_DOMAIN_VRAM, gtt = AMDGPU_GEM_DOMAIN_GTT;
	union drm_amdgpu_gem_create hidden = {
		.in = { .bo_size = 4096, .domains = vram,
			.domain_flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS },
	};
	union drm_amdgpu_gem_create private = {
		.in = { .bo_size = 4096, .domains = vram,
			.domain_flags = AMDGPU_GEM_CREATE_VM_ALWAYS_VALID },
	};
	union drm_amdgpu_gem_mmap mm;

	check_errno(amdgpu_create(gpu, 4096, 0, vram, 0), 0);
	check_errno(amdgpu_create(gpu, 4096, 1 << 21, vram, 0), 0);
	check_errno(amdgpu_create(gpu, 4096, 0, vram | gtt, 0), 0);
	check_errno(amdgpu_create(gpu, 4096, 0, 1 << 20, 0), -EINVAL);
	check_errno(amdgpu_create(gpu, 4096, 0, AMDGPU_GEM_DOMAIN_DOORBELL, 0), -EINVAL);
	check_errno(amdgpu_create(gpu, 4096, 0, vram | AMDGPU_GEM_DOMAIN_GDS, 0), -EINVAL);
	check_errno(amdgpu_create(gpu, 4096, 0, vram, 1ULL << 40), -EINVAL);
	check_errno(amdgpu_create(gpu, 4096, 0, vram, AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS), -EINVAL);
	check_errno(amdgpu_create(gpu, 4096, 0, vram, AMDGPU_GEM_CREATE_ENCRYPTED), -EINVAL);
	check_errno(amdgpu_create(gpu, 1ULL << 50, 0, vram, 0), -ENOMEM);
	/* Larger than VRAM, not than GTT: amdgpu makes it in GTT. */
	check_errno(amdgpu_create(gpu, gpu->bar_size + 4096, 0, vram, 0), 0);

	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_GEM_CREATE, &hidden), 0);
	mm.in.handle = hidden.out.handle;
	mm.in._pad = 0;
	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_GEM_MMAP, &mm), -EPERM);
	close_handle(gpu, hidden.out.handle);

	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_GEM_CREATE, &private), 0);
	check_errno(buffer_export(gpu, private.out.handle), -EPERM);
	close_handle(gpu, private.out.handle);
}

static void test_amdgpu_info(struct gpu *gpu)
{
	struct drm_amdgpu_memory_info mem = {};
	struct drm_amdgpu_info info = {
		.query = AMDGPU_INFO_MEMORY, .return_size = sizeof(mem),
		.return_pointer = (uintptr_t)&mem,
	};

	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_INFO, &info), 0);
	check(mem.vram.total_heap_size >= gpu->bar_size);
	check(mem.cpu_accessible_vram.total_heap_size == gpu->bar_size);
	check(mem.gtt.total_heap_size > 0);
	info.query = 0xffff;
	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_INFO, &info), -EINVAL);
	info.return_size = 0;
	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_INFO, &info), -EINVAL);
}

static void test_ioctls(struct gpu *gpu)
{
	if (!strcmp(gpu->personality, "i915")) {
		test_i915_create(gpu);
		test_i915_query(gpu);
	} else if (!strcmp(gpu->personality, "xe")) {
		test_xe_create(gpu);
		test_xe_query(gpu);
	} else {
		test_amdgpu_create(gpu);
		test_amdgpu_info(gpu);
	}
	check(!gpu_buffers(gpu), "buffers are left");
}

const struct test ioctl_tests[] = {
	{ .name = "name", .run = test_name },
	{ .name = "ioctls", .run = test_ioctls },
	{}
};
