// SPDX-License-Identifier: Apache-2.0
/*
 * alloc-loop: the C side of the allocation part of `make bench`. Each round
 * allocates a buffer, exports it as a dma-buf, and frees both. Standard input gives
 * the numbers of rounds; standard output gets the nanoseconds of each round as
 * native 64-bit integers.
 *
 *   alloc-loop KIND DEVICE SIZE [touch]
 *
 * KIND is udmabuf, heap, dumb, amdgpu, i915 or xe, DEVICE the exporter's node. With
 * "touch", each round also maps the dma-buf and writes a byte of each page: many
 * exporters allocate no memory before that.
 * It shares no code with the Go packages, asks for the same memory and places,
 * and checks only the results of the calls.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <drm/amdgpu_drm.h>
#include <drm/drm.h>
#include <drm/drm_mode.h>
#include <drm/i915_drm.h>
#if __has_include(<drm/xe_drm.h>) /* not before Linux 6.8 */
#include <drm/xe_drm.h>
#define HAVE_XE
#endif
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include "rounds.h"

static const char *device;
static int node;
static uint64_t size;
static int touching;

/* Where a GPU's buffers may be: VRAM first, and system memory. */
static struct drm_i915_gem_memory_class_instance i915_places[16];
static uint32_t i915_num_places;
#ifdef HAVE_XE
static uint32_t xe_places; /* bits by instance */
#endif

/* Restarts calls as libdrm's drmIoctl() does: GPU drivers may ask for it. */
static void call(int fd, unsigned long request, void *arg, const char *what)
{
	int status;

	do
		status = ioctl(fd, request, arg);
	while (status && (errno == EINTR || errno == EAGAIN));
	if (status)
		err(1, "%s", what);
}

/* Touches the dma-buf if so asked, and closes it. */
static void done(int buf)
{
	if (touching) {
		size_t page = (size_t)sysconf(_SC_PAGESIZE);
		volatile char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 0);

		if (p == MAP_FAILED)
			err(1, "mmap");
		for (size_t at = 0; at < size; at += page)
			p[at] = 1;
		if (munmap((void *)p, size))
			err(1, "munmap");
	}
	close(buf);
}

static int export(uint32_t handle)
{
	struct drm_prime_handle prime = { .handle = handle, .flags = DRM_CLOEXEC | DRM_RDWR };

	call(node, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime, "PRIME_HANDLE_TO_FD");
	return prime.fd;
}

/* A GPU's buffer keeps its handle while it lives: its owner maps it by that. */
static void with_handle(uint32_t handle)
{
	struct drm_gem_close gem = { .handle = handle };

	done(export(handle));
	call(node, DRM_IOCTL_GEM_CLOSE, &gem, "GEM_CLOSE");
}

static void once_udmabuf(void)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = size };
	int mem = memfd_create("alloc-loop", MFD_CLOEXEC | MFD_ALLOW_SEALING | 8 /* MFD_NOEXEC_SEAL */);
	int dev, buf;
	void *pages;

	if (mem < 0 || ftruncate(mem, (off_t)size) || fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK))
		err(1, "memfd");
	pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	if (pages == MAP_FAILED || (madvise(pages, size, MADV_NOHUGEPAGE) && errno != EINVAL) ||
	    madvise(pages, size, 23 /* MADV_POPULATE_WRITE */) || munmap(pages, size))
		err(1, "pages");
	dev = open(device, O_RDWR | O_CLOEXEC);
	if (dev < 0)
		err(1, "%s", device);
	create.memfd = (uint32_t)mem;
	buf = ioctl(dev, UDMABUF_CREATE, &create);
	if (buf < 0)
		err(1, "UDMABUF_CREATE");
	close(dev);
	close(mem);
	done(buf);
}

static void once_heap(void)
{
	struct dma_heap_allocation_data data = { .len = size, .fd_flags = O_RDWR | O_CLOEXEC };

	call(node, DMA_HEAP_IOCTL_ALLOC, &data, "DMA_HEAP_IOCTL_ALLOC");
	done((int)data.fd);
}

/* Each line of 32-bit pixels is a page. */
static void once_dumb(void)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct drm_mode_create_dumb create = {
		.width = (uint32_t)page / 4, .height = (uint32_t)(size / page), .bpp = 32,
	};
	struct drm_mode_destroy_dumb destroy = { 0 };
	int buf;

	call(node, DRM_IOCTL_MODE_CREATE_DUMB, &create, "CREATE_DUMB");
	destroy.handle = create.handle;
	buf = export(create.handle);
	call(node, DRM_IOCTL_MODE_DESTROY_DUMB, &destroy, "DESTROY_DUMB");
	done(buf);
}

static void once_amdgpu(void)
{
	union drm_amdgpu_gem_create create = {
		.in = {
			.bo_size = size,
			.domains = AMDGPU_GEM_DOMAIN_VRAM,
			.domain_flags = AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_VRAM_CLEARED,
		},
	};

	call(node, DRM_IOCTL_AMDGPU_GEM_CREATE, &create, "AMDGPU_GEM_CREATE");
	with_handle(create.out.handle);
}

static void once_i915(void)
{
	struct drm_i915_gem_create_ext_memory_regions regions = {
		.base = { .name = I915_GEM_CREATE_EXT_MEMORY_REGIONS },
		.num_regions = i915_num_places,
		.regions = (uintptr_t)i915_places,
	};
	struct drm_i915_gem_create_ext create = { .size = size, .extensions = (uintptr_t)&regions };

	call(node, DRM_IOCTL_I915_GEM_CREATE_EXT, &create, "I915_GEM_CREATE_EXT");
	with_handle(create.handle);
}

#ifdef HAVE_XE
static void once_xe(void)
{
	struct drm_xe_gem_create create = {
		.size = size,
		.placement = xe_places,
		.flags = DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM,
		.cpu_caching = DRM_XE_GEM_CPU_CACHING_WC,
	};

	call(node, DRM_IOCTL_XE_GEM_CREATE, &create, "XE_GEM_CREATE");
	with_handle(create.handle);
}

static void find_xe_places(void)
{
	struct drm_xe_device_query query = { .query = DRM_XE_DEVICE_QUERY_MEM_REGIONS };
	struct drm_xe_query_mem_regions *all;

	call(node, DRM_IOCTL_XE_DEVICE_QUERY, &query, "XE_DEVICE_QUERY");
	all = calloc(1, query.size);
	query.data = (uintptr_t)all;
	call(node, DRM_IOCTL_XE_DEVICE_QUERY, &query, "XE_DEVICE_QUERY");
	for (uint32_t i = 0; i < all->num_mem_regions; i++)
		xe_places |= 1u << all->mem_regions[i].instance;
	free(all);
}
#endif

static void i915_add(const struct drm_i915_query_memory_regions *all, uint16_t class)
{
	for (uint32_t i = 0; i < all->num_regions && i915_num_places < 16; i++)
		if (all->regions[i].region.memory_class == class)
			i915_places[i915_num_places++] = all->regions[i].region;
}

static void find_i915_places(void)
{
	struct drm_i915_query_item item = { .query_id = DRM_I915_QUERY_MEMORY_REGIONS };
	struct drm_i915_query query = { .num_items = 1, .items_ptr = (uintptr_t)&item };
	struct drm_i915_query_memory_regions *all;

	call(node, DRM_IOCTL_I915_QUERY, &query, "I915_QUERY");
	all = calloc(1, (size_t)item.length);
	item.data_ptr = (uintptr_t)all;
	call(node, DRM_IOCTL_I915_QUERY, &query, "I915_QUERY");
	i915_add(all, I915_MEMORY_CLASS_DEVICE);
	i915_add(all, I915_MEMORY_CLASS_SYSTEM);
	free(all);
}

int main(int argc, char **argv)
{
	static const struct kind {
		const char *name;
		void (*once)(void);
		void (*find_places)(void); /* asks the driver for the GPU's memory regions */
	} kinds[] = {
		{ "udmabuf", once_udmabuf, NULL },
		{ "heap", once_heap, NULL },
		{ "dumb", once_dumb, NULL },
		{ "amdgpu", once_amdgpu, NULL },
		{ "i915", once_i915, find_i915_places },
#ifdef HAVE_XE
		{ "xe", once_xe, find_xe_places },
#endif
	};
	const struct kind *kind = NULL;

	touching = argc == 5 && !strcmp(argv[4], "touch");
	if (argc != 4 + touching)
		errx(2, "usage: alloc-loop KIND DEVICE SIZE [touch]");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name))
			kind = &kinds[i];
	if (!kind)
		errx(2, "no kind %s", argv[1]);
	device = argv[2];
	size = strtoull(argv[3], NULL, 0);
	if (kind->once != once_udmabuf) { /* opens the node in each round */
		node = open(device, O_RDWR | O_CLOEXEC);
		if (node < 0)
			err(1, "%s", device);
	}
	if (kind->find_places)
		kind->find_places();
	return rounds(kind->once);
}
