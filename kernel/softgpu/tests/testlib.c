// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <drm/drm.h>
#include <drm/amdgpu_drm.h>
#include <drm/i915_drm.h>
#include <drm/xe_drm.h>

#include "testlib.h"

const char *near_edu, *far_edu;

void failed(const char *file, int line, const char *what, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: not true: %s", file, line, what);
	if (*fmt) {
		fprintf(stderr, ": ");
		va_start(ap, fmt);
		vfprintf(stderr, fmt, ap);
		va_end(ap);
	}
	fprintf(stderr, "\n");
	exit(1);
}

void failed_unless_errno(const char *file, int line, const char *what, int got, int want)
{
	if (got == want)
		return;
	fprintf(stderr, "%s:%d: %s gave %d (%s), not %d (%s)\n", file, line, what, got,
		strerror(got < 0 ? -got : 0), want, strerror(want < 0 ? -want : 0));
	exit(1);
}

void not_here(const char *why)
{
	printf("n/a: %s: ", why);
	fflush(stdout);
	_exit(NOT_HERE);
}

int call(int fd, unsigned long request, void *arg)
{
	int ret;

	do
		ret = ioctl(fd, request, arg);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

static int put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

int put(const char *path, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return put_text(path, text);
}

/* Lets each WARN_ON_ONCE() of the kernel warn again. */
void forget_warnings(void)
{
	check_errno(put("/sys/kernel/debug/clear_warn_once", "1"), 0);
}

/*
 * The dma-buf core warns in the kernel log when an exporter's vmap fails, and
 * the caller provokes that. run.sh compares the warnings with these lines.
 */
void expect_vmap_warning(void)
{
	forget_warnings();
	printf("provoked: a vmap that fails\n");
	fflush(stdout); /* a test ends by _exit() */
}

void get(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	check(n >= 0, "%s: %s", path, strerror(errno));
	close(fd);
	text[n] = 0;
	text[strcspn(text, "\n")] = 0;
}

static void open_render_node(struct gpu *gpu)
{
	char path[512];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/drm", gpu->bdf);
	d = opendir(path);
	check(d, "%s", path);
	gpu->drm = -1;
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, "renderD", 7))
			continue;
		snprintf(path, sizeof(path), "/dev/dri/%s", e->d_name);
		gpu->drm = open(path, O_RDWR | O_CLOEXEC);
	}
	closedir(d);
	check(gpu->drm >= 0, "no render node of %s", gpu->bdf);
}

/* The BAR that is VRAM: 2 of ivshmem, 0 of bochs-display. */
static void find_bar(struct gpu *gpu)
{
	char path[128], text[64];
	unsigned long long start, end;
	FILE *f;
	int nr, i;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", gpu->bdf);
	get(path, text, sizeof(text));
	nr = strcmp(text, "0x1af4") ? 0 : 2;
	snprintf(gpu->bar_file, sizeof(gpu->bar_file), "/sys/bus/pci/devices/%s/resource%d",
		 gpu->bdf, nr);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", gpu->bdf);
	f = fopen(path, "r");
	check(f, "%s", path);
	for (i = 0; i <= nr; i++)
		check(fscanf(f, "%llx %llx %*x", &start, &end) == 2);
	fclose(f);
	gpu->bar = start;
	gpu->bar_size = end - start + 1;
}

struct gpu *gpu_open(const char *bdf)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	char path[128];

	snprintf(gpu->bdf, sizeof(gpu->bdf), "%s", bdf);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/personality", bdf);
	get(path, gpu->personality, sizeof(gpu->personality));
	open_render_node(gpu);
	find_bar(gpu);
	return gpu;
}

void gpu_close(struct gpu *gpu)
{
	close(gpu->drm);
	free(gpu);
}

int gpu_put(struct gpu *gpu, const char *file, const char *fmt, ...)
{
	char path[256], text[256];
	va_list ap;

	snprintf(path, sizeof(path), "/sys/kernel/debug/softgpu/%s/%s", gpu->bdf, file);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return put_text(path, text);
}

static int create_i915(struct gpu *gpu, uint64_t size, unsigned int places, uint32_t *handle)
{
	struct drm_i915_gem_memory_class_instance regions[2];
	struct drm_i915_gem_create_ext_memory_regions ext = {
		.base.name = I915_GEM_CREATE_EXT_MEMORY_REGIONS,
		.regions = (uintptr_t)regions,
	};
	struct drm_i915_gem_create_ext args = {
		.size = size,
		.extensions = (uintptr_t)&ext,
	};
	int ret;

	memset(regions, 0, sizeof(regions));
	if (places & VRAM)
		regions[ext.num_regions++].memory_class = I915_MEMORY_CLASS_DEVICE;
	if (places & SYSTEM)
		regions[ext.num_regions++].memory_class = I915_MEMORY_CLASS_SYSTEM;
	if (places & VISIBLE)
		args.flags = I915_GEM_CREATE_EXT_FLAG_NEEDS_CPU_ACCESS;
	ret = call(gpu->drm, DRM_IOCTL_I915_GEM_CREATE_EXT, &args);
	*handle = args.handle;
	return ret;
}

static int create_xe(struct gpu *gpu, uint64_t size, unsigned int places, uint32_t *handle)
{
	struct drm_xe_gem_create args = {
		.size = size,
		.placement = (places & SYSTEM ? 1 : 0) | (places & VRAM ? 2 : 0),
		.flags = places & VISIBLE ? DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM : 0,
		.cpu_caching = DRM_XE_GEM_CPU_CACHING_WC,
	};
	int ret = call(gpu->drm, DRM_IOCTL_XE_GEM_CREATE, &args);

	*handle = args.handle;
	return ret;
}

static int create_amdgpu(struct gpu *gpu, uint64_t size, unsigned int places, uint32_t *handle)
{
	union drm_amdgpu_gem_create args = {
		.in.bo_size = size,
		.in.domains = (places & SYSTEM ? AMDGPU_GEM_DOMAIN_GTT : 0) |
			      (places & VRAM ? AMDGPU_GEM_DOMAIN_VRAM : 0),
		.in.domain_flags = places & VISIBLE ?
				   AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED : 0,
	};
	int ret = call(gpu->drm, DRM_IOCTL_AMDGPU_GEM_CREATE, &args);

	*handle = args.out.handle;
	return ret;
}

int buffer_create(struct gpu *gpu, uint64_t size, unsigned int places, uint32_t *handle)
{
	if (!strcmp(gpu->personality, "i915"))
		return create_i915(gpu, size, places, handle);
	if (!strcmp(gpu->personality, "xe"))
		return create_xe(gpu, size, places, handle);
	return create_amdgpu(gpu, size, places, handle);
}

int buffer_offset(struct gpu *gpu, uint32_t handle, uint64_t *offset)
{
	int ret;

	if (!strcmp(gpu->personality, "i915")) {
		struct drm_i915_gem_mmap_offset args = {
			.handle = handle, .flags = I915_MMAP_OFFSET_FIXED,
		};

		ret = call(gpu->drm, DRM_IOCTL_I915_GEM_MMAP_OFFSET, &args);
		*offset = args.offset;
	} else if (!strcmp(gpu->personality, "xe")) {
		struct drm_xe_gem_mmap_offset args = { .handle = handle };

		ret = call(gpu->drm, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &args);
		*offset = args.offset;
	} else {
		union drm_amdgpu_gem_mmap args = { .in.handle = handle };

		ret = call(gpu->drm, DRM_IOCTL_AMDGPU_GEM_MMAP, &args);
		*offset = args.out.addr_ptr;
	}
	return ret;
}

int buffer_export(struct gpu *gpu, uint32_t handle)
{
	struct drm_prime_handle args = { .handle = handle, .flags = DRM_CLOEXEC | DRM_RDWR };
	int ret = call(gpu->drm, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args);

	return ret ? ret : args.fd;
}

struct buffer *buffer_new(struct gpu *gpu, uint64_t size, unsigned int places)
{
	struct buffer *buf = calloc(1, sizeof(*buf));
	struct stat st;
	uint64_t offset;

	buf->gpu = gpu;
	buf->size = size;
	check_errno(buffer_create(gpu, size, places, &buf->handle), 0);
	buf->fd = buffer_export(gpu, buf->handle);
	check(buf->fd >= 0, "export: %s", strerror(-buf->fd));
	check(!fstat(buf->fd, &st));
	buf->inode = st.st_ino;
	check_errno(buffer_offset(gpu, buf->handle, &offset), 0);
	buf->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->drm, offset);
	check(buf->map != MAP_FAILED);
	return buf;
}

void buffer_free(struct buffer *buf)
{
	struct drm_gem_close args = { .handle = buf->handle };

	munmap(buf->map, buf->size);
	close(buf->fd);
	check_errno(call(buf->gpu->drm, DRM_IOCTL_GEM_CLOSE, &args), 0);
	free(buf);
}

/* Finds the buffer's line in debugfs; returns the number of lines. */
static int buffers_line(struct gpu *gpu, uint64_t inode, char *line, size_t size)
{
	char path[128], text[512];
	unsigned long long found;
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/softgpu/%s/buffers", gpu->bdf);
	f = fopen(path, "r");
	check(f, "%s", path);
	*line = 0;
	while (fgets(text, sizeof(text), f)) {
		n++;
		if (sscanf(text, "inode=%llu", &found) == 1 && found == inode)
			snprintf(line, size, "%s", text);
	}
	fclose(f);
	return n;
}

int gpu_buffers(struct gpu *gpu)
{
	char line[512];

	return buffers_line(gpu, 0, line, sizeof(line));
}

void buffer_place(struct buffer *buf, char *place)
{
	char line[512], *at;

	buffers_line(buf->gpu, buf->inode, line, sizeof(line));
	at = strstr(line, "place=");
	check(at, "no buffer %llu", (unsigned long long)buf->inode);
	check(sscanf(at, "place=%31s", place) == 1);
}

long buffer_count(struct buffer *buf, const char *key)
{
	char line[512], *at, text[32];

	buffers_line(buf->gpu, buf->inode, line, sizeof(line));
	snprintf(text, sizeof(text), " %s=", key);
	at = strstr(line, text);
	check(at, "%s in %s", key, line);
	return strtol(at + strlen(text), NULL, 0);
}

void check_place(struct buffer *buf, const char *want)
{
	char place[32];

	buffer_place(buf, place);
	check(!strcmp(place, want), "the buffer is in %s, not in %s", place, want);
}

void nonce(unsigned char *bytes, size_t size)
{
	check(getrandom(bytes, size, 0) == (ssize_t)size);
}

bool bar_holds(struct gpu *gpu, const unsigned char *bytes, size_t size)
{
	unsigned char *bar;
	bool found;
	int fd;

	fd = open(gpu->bar_file, O_RDONLY | O_CLOEXEC);
	check(fd >= 0, "%s: %s", gpu->bar_file, strerror(errno));
	bar = mmap(NULL, gpu->bar_size, PROT_READ, MAP_SHARED, fd, 0);
	check(bar != MAP_FAILED, "%s: %s", gpu->bar_file, strerror(errno));
	close(fd);
	found = memmem(bar, gpu->bar_size, bytes, size);
	munmap(bar, gpu->bar_size);
	return found;
}

int importer_open(void)
{
	int fd = open("/dev/testimporter", O_RDWR | O_CLOEXEC);

	check(fd >= 0, "/dev/testimporter: %s", strerror(errno));
	return fd;
}

int importer_attach(int imp, const char *device, int fd, unsigned int kind, bool p2p)
{
	struct testimporter_attach args = {
		.fd = fd, .kind = kind, .flags = p2p ? TESTIMPORTER_PEER2PEER : 0,
	};
	int ret;

	snprintf(args.device, sizeof(args.device), "%s", device);
	ret = call(imp, TESTIMPORTER_IOC_ATTACH, &args);
	return ret ? ret : (int)args.id;
}

int importer_map(int imp, int id, struct testimporter_segment *segs, uint32_t max)
{
	struct testimporter_map args = { .id = id, .segments = (uintptr_t)segs, .max = max };
	int ret = call(imp, TESTIMPORTER_IOC_MAP, &args);

	return ret ? ret : (int)args.count;
}

int importer_unmap(int imp, int id)
{
	uint32_t arg = id;

	return call(imp, TESTIMPORTER_IOC_UNMAP, &arg);
}

int importer_detach(int imp, int id)
{
	uint32_t arg = id;

	return call(imp, TESTIMPORTER_IOC_DETACH, &arg);
}

int importer_transfer(int imp, bool dma, int id, bool write, uint64_t offset, void *data,
		      uint64_t size)
{
	struct testimporter_transfer args = {
		.id = id, .write = write, .offset = offset, .length = size,
		.data = (uintptr_t)data,
	};

	return call(imp, dma ? TESTIMPORTER_IOC_DMA : TESTIMPORTER_IOC_COPY, &args);
}

struct testimporter_state importer_state(int imp, int id)
{
	struct testimporter_state args = { .id = id };

	check_errno(call(imp, TESTIMPORTER_IOC_STATE, &args), 0);
	return args;
}

int importer_distance(int imp, const char *provider, const char *client)
{
	struct testimporter_distance args = {};

	snprintf(args.provider, sizeof(args.provider), "%s", provider);
	snprintf(args.client, sizeof(args.client), "%s", client);
	check_errno(call(imp, TESTIMPORTER_IOC_DISTANCE, &args), 0);
	return args.distance;
}

bool translated(const char *device)
{
	char path[128], type[32];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group/type", device);
	if (access(path, R_OK))
		return false;
	get(path, type, sizeof(type));
	return !strncmp(type, "DMA", 3);
}

bool kernel_has_p2p(int imp, struct gpu *gpu)
{
	bool has = importer_distance(imp, gpu->bdf, near_edu) >= 0;

	check(has || !getenv("SOFTGPU_HAS_P2PDMA"), "this kernel should have peer-to-peer DMA");
	return has;
}

void eventually(bool (*so)(void *arg), void *arg, const char *what)
{
	const char *slow = getenv("GPURDMA_SLOW");
	int i, limit = 1000 * (slow ? atoi(slow) : 1);

	for (i = 0; i < limit; i++) {
		if (so(arg))
			return;
		usleep(10000);
	}
	check(false, "%s", what);
}

bool no_buffers(void *gpu)
{
	return !gpu_buffers(gpu);
}

bool unbound(void *bdf)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/softgpu/%s", (char *)bdf);
	return access(path, F_OK);
}

bool bound(void *bdf)
{
	return !unbound(bdf);
}
