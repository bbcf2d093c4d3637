// SPDX-License-Identifier: Apache-2.0
/*
 * alloc-loop: the C side of the allocation part of `make bench`. Allocates a
 * buffer, exports it as a dma-buf, and frees both, as often as it is told on
 * standard input, and writes the nanoseconds of each round to standard output
 * as native 64-bit integers.
 *
 *   alloc-loop KIND DEVICE SIZE
 *
 * KIND is udmabuf, heap, dumb, amdgpu, i915 or xe, DEVICE the exporter's node.
 * It shares no code with the Go packages, asks for the same memory and places,
 * and checks nothing but the answers of the calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <drm/amdgpu_drm.h>
#include <drm/drm.h>
#include <drm/drm_mode.h>
#include <drm/i915_drm.h>
#include <drm/xe_drm.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#define MAX_LOOPS 65536

static int node;
static uint64_t size;

/* Where a GPU's buffers may be: VRAM first, and system memory. */
static struct drm_i915_gem_memory_class_instance i915_places[16];
static uint32_t i915_num_places;
static uint32_t xe_places; /* bits by instance */

static void die(const char *what)
{
	fprintf(stderr, "alloc-loop: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* A GPU driver's code asks for a restart, as libdrm's drmIoctl knows. */
static void call(int fd, unsigned long request, void *arg, const char *what)
{
	int status;

	do
		status = ioctl(fd, request, arg);
	while (status && (errno == EINTR || errno == EAGAIN));
	if (status)
		die(what);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int export(uint32_t handle)
{
	struct drm_prime_handle prime = { .handle = handle, .flags = DRM_CLOEXEC | DRM_RDWR };

	call(node, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime, "PRIME_HANDLE_TO_FD");
	return prime.fd;
}

/* A GPU's buffer keeps its handle as long as it lives: its owner maps it. */
static void with_handle(uint32_t handle)
{
	struct drm_gem_close gem = { .handle = handle };

	close(export(handle));
	call(node, DRM_IOCTL_GEM_CLOSE, &gem, "GEM_CLOSE");
}

static void once_udmabuf(const char *device)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = size };
	int mem = memfd_create("alloc-loop", MFD_CLOEXEC | MFD_ALLOW_SEALING | 8 /* MFD_NOEXEC_SEAL */);
	int dev, buf;
	void *pages;

	if (mem < 0 || ftruncate(mem, (off_t)size) || fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK))
		die("memfd");
	pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	if (pages == MAP_FAILED || (madvise(pages, size, MADV_NOHUGEPAGE) && errno != EINVAL) ||
	    madvise(pages, size, 23 /* MADV_POPULATE_WRITE */) || munmap(pages, size))
		die("pages");
	dev = open(device, O_RDWR | O_CLOEXEC);
	if (dev < 0)
		die(device);
	create.memfd = (uint32_t)mem;
	buf = ioctl(dev, UDMABUF_CREATE, &create);
	if (buf < 0)
		die("UDMABUF_CREATE");
	close(dev);
	close(mem);
	close(buf);
}

static void once_heap(void)
{
	struct dma_heap_allocation_data data = { .len = size, .fd_flags = O_RDWR | O_CLOEXEC };

	call(node, DMA_HEAP_IOCTL_ALLOC, &data, "DMA_HEAP_IOCTL_ALLOC");
	close((int)data.fd);
}

/* As a line of 32-bit pixels; the driver rounds up to pages. */
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
	close(buf);
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

static void i915_add(const struct drm_i915_query_memory_regions *all, uint16_t class)
{
	for (uint32_t i = 0; i < all->num_regions && i915_num_places < 16; i++)
		if (all->regions[i].region.memory_class == class)
			i915_places[i915_num_places++] = all->regions[i].region;
}

/* Asks the GPU for its memory's numbers, once. */
static void find_places(const char *kind)
{
	if (!strcmp(kind, "i915")) {
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
	} else if (!strcmp(kind, "xe")) {
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
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*once)(void);
	} kinds[] = {
		{ "heap", once_heap }, { "dumb", once_dumb }, { "amdgpu", once_amdgpu },
		{ "i915", once_i915 }, { "xe", once_xe },
	};
	static uint64_t ns[MAX_LOOPS];
	void (*once)(void) = NULL;
	unsigned int n;

	if (argc != 4) {
		fprintf(stderr, "usage: alloc-loop KIND DEVICE SIZE\n");
		return 2;
	}
	size = strtoull(argv[3], NULL, 0);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name))
			once = kinds[i].once;
	if (!once && strcmp(argv[1], "udmabuf")) {
		fprintf(stderr, "alloc-loop: no kind %s\n", argv[1]);
		return 2;
	}
	if (once) {
		node = open(argv[2], O_RDWR | O_CLOEXEC);
		if (node < 0)
			die(argv[2]);
		find_places(argv[1]);
	}

	while (scanf("%u", &n) == 1) {
		if (n == 0 || n > MAX_LOOPS) {
			fprintf(stderr, "alloc-loop: 1 to %d rounds at a time\n", MAX_LOOPS);
			return 2;
		}
		for (unsigned int i = 0; i < n; i++) {
			uint64_t start = now();

			if (once)
				once();
			else
				once_udmabuf(argv[2]);
			ns[i] = now() - start;
		}
		if (fwrite(ns, sizeof(ns[0]), n, stdout) != n || fflush(stdout))
			die("write");
	}
	return 0;
}
