// SPDX-License-Identifier: GPL-2.0
/* Buffers as the CPU sees them, in each place. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <drm/amdgpu_drm.h>
#include <drm/drm.h>
#include <linux/dma-buf.h>

#include "testlib.h"

/* Both mappings show the same bytes before and after every move. */
static void test_migration(struct gpu *gpu)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM | VISIBLE);
	unsigned char bytes[64], *second;
	size_t i;

	second = mmap(NULL, buf->size, PROT_READ | PROT_WRITE, MAP_SHARED, buf->fd, 0);
	check(second != MAP_FAILED, "mmap of the dma-buf: %s", strerror(errno));
	for (i = 0; i < buf->size; i++)
		check(!buf->map[i], "memory is not zero at the start");
	check_place(buf, "vram");
	nonce(bytes, sizeof(bytes));
	memcpy(buf->map + 70000, bytes, sizeof(bytes));
	check(bar_holds(gpu, bytes, sizeof(bytes)));
	check(!memcmp(second + 70000, bytes, sizeof(bytes)));

	check_errno(gpu_put(gpu, "evict", "%llu", (unsigned long long)buf->inode), 0);
	check_place(buf, "system");
	check(!bar_holds(gpu, bytes, sizeof(bytes)), "VRAM was not wiped");
	check(!memcmp(second + 70000, bytes, sizeof(bytes)));
	check(!memcmp(buf->map + 70000, bytes, sizeof(bytes)));
	nonce(bytes, sizeof(bytes));
	memcpy(second + 80000, bytes, sizeof(bytes));
	check(!bar_holds(gpu, bytes, sizeof(bytes)));

	check_errno(gpu_put(gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	check_place(buf, "vram");
	check(bar_holds(gpu, bytes, sizeof(bytes)));
	check(!memcmp(buf->map + 80000, bytes, sizeof(bytes)));
	munmap(second, buf->size);
	buffer_free(buf);
	check(!bar_holds(gpu, bytes, sizeof(bytes)), "freed VRAM was not wiped");
}

/* A CPU access bracket for reading moves amdgpu's and xe's buffers. */
static void test_cpu_access(struct gpu *gpu)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	struct dma_buf_sync sync = { .flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE };
	bool moves = strcmp(gpu->personality, "i915");

	buf->map[0] = 1;
	check_place(buf, "vram");
	check_errno(call(buf->fd, DMA_BUF_IOCTL_SYNC, &sync), 0);
	check_place(buf, "vram");
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE;
	check_errno(call(buf->fd, DMA_BUF_IOCTL_SYNC, &sync), 0);
	sync.flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ;
	check_errno(call(buf->fd, DMA_BUF_IOCTL_SYNC, &sync), 0);
	check_place(buf, moves ? "system" : "vram");
	check(buf->map[0] == 1);
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ;
	check_errno(call(buf->fd, DMA_BUF_IOCTL_SYNC, &sync), 0);
	buffer_free(buf);
}

/* When VRAM is full, the buffer used longest ago moves out of it. */
static void test_pressure(struct gpu *gpu)
{
	uint64_t size = gpu->bar_size / 4;
	struct buffer *bufs[6];
	unsigned int i, in_vram = 0;
	char place[32];

	for (i = 0; i < 6; i++) {
		bufs[i] = buffer_new(gpu, size, SYSTEM | VRAM);
		memset(bufs[i]->map, i + 1, 4096);
	}
	for (i = 0; i < 6; i++) {
		buffer_place(bufs[i], place);
		in_vram += !strcmp(place, "vram");
	}
	check(in_vram == 4, "%u of 6 buffers are in VRAM", in_vram);
	check_place(bufs[0], "system");
	check_place(bufs[5], "vram");
	for (i = 0; i < 6; i++)
		check(bufs[i]->map[4095] == i + 1);
	for (i = 0; i < 6; i++)
		buffer_free(bufs[i]);
}

static void test_many(struct gpu *gpu)
{
	const unsigned int n = 10000;
	struct drm_gem_close args;
	uint32_t *handles = calloc(n, sizeof(*handles));
	unsigned int i;
	int fd;

	for (i = 0; i < n; i++) {
		check_errno(buffer_create(gpu, 4096, SYSTEM, &handles[i]), 0);
		if (i % 100)
			continue;
		fd = buffer_export(gpu, handles[i]);
		check(fd >= 0);
		close(fd);
	}
	check(gpu_buffers(gpu) == (int)n);
	for (i = 0; i < n; i++) {
		args = (struct drm_gem_close){ .handle = handles[i] };
		check_errno(call(gpu->drm, DRM_IOCTL_GEM_CLOSE, &args), 0);
	}
	free(handles);
	check(!gpu_buffers(gpu));
}

/* A handle, an fd and the handle that comes back from it are one buffer. */
static void test_prime(struct gpu *gpu)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	struct drm_prime_handle args = { .fd = buf->fd };

	check_errno(call(gpu->drm, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args), 0);
	check(args.handle == buf->handle);
	check(lseek(buf->fd, 0, SEEK_END) == (off_t)buf->size);
	buffer_free(buf);
}

/* softgpu moves a buffer out of VRAM beyond the BAR for the CPU and peers. */
static void test_hidden(struct gpu *gpu)
{
	struct drm_amdgpu_memory_info mem = {};
	struct drm_amdgpu_info info = {
		.query = AMDGPU_INFO_MEMORY, .return_size = sizeof(mem),
		.return_pointer = (uintptr_t)&mem,
	};
	unsigned char bytes[64];
	struct buffer *buf;
	int imp, id;

	if (strcmp(gpu->personality, "amdgpu"))
		not_here("the test asks amdgpu for the size of VRAM");
	check_errno(call(gpu->drm, DRM_IOCTL_AMDGPU_INFO, &info), 0);
	if (mem.vram.total_heap_size == gpu->bar_size)
		not_here("all VRAM is in the BAR");
	check_errno(gpu_put(gpu, "behaviour", "amdgpu"), 0);
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);

	buf = buffer_new(gpu, MIB, VRAM);
	check_place(buf, "vram-hidden");
	nonce(bytes, sizeof(bytes));
	memcpy(buf->map, bytes, sizeof(bytes));
	check_place(buf, "vram");
	check(bar_holds(gpu, bytes, sizeof(bytes)));
	check_errno(gpu_put(gpu, "evict", "all"), 0);
	check_errno(gpu_put(gpu, "restore", "all"), 0);
	check_place(buf, "vram-hidden");
	check(!bar_holds(gpu, bytes, sizeof(bytes)));
	check(!memcmp(buf->map, bytes, sizeof(bytes)), "the way through hidden VRAM lost bytes");
	buffer_free(buf);

	imp = importer_open();
	if (kernel_has_p2p(imp, gpu)) {
		buf = buffer_new(gpu, MIB, VRAM);
		check_place(buf, "vram-hidden");
		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
		check(id > 0 && importer_map(imp, id, NULL, 0) == 1);
		check_place(buf, "vram");
		check_errno(importer_detach(imp, id), 0);
		buffer_free(buf);
	}
	/* softgpu maps a buffer larger than the BAR in system memory. */
	buf = buffer_new(gpu, gpu->bar_size + MIB, VRAM);
	check_place(buf, "vram-hidden");
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
	check_place(buf, "system");
	close(imp);
	buffer_free(buf);
}

/* Each device has its own memory. */
static void test_several(struct gpu *gpu)
{
	struct buffer *bufs[8];
	unsigned char bytes[8][64];
	struct dirent *e;
	int n = 0, i, k;
	DIR *d;

	d = opendir("/sys/bus/pci/drivers/softgpu");
	check(d);
	while ((e = readdir(d)))
		if (strchr(e->d_name, ':') && strcmp(e->d_name, gpu->bdf) && n < 7)
			bufs[n++] = buffer_new(gpu_open(e->d_name), MIB, SYSTEM | VRAM);
	closedir(d);
	if (!n)
		not_here("there is one software GPU only");
	bufs[n++] = buffer_new(gpu, MIB, SYSTEM | VRAM);
	for (i = 0; i < n; i++) {
		nonce(bytes[i], sizeof(bytes[i]));
		memcpy(bufs[i]->map, bytes[i], sizeof(bytes[i]));
	}
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			check(bar_holds(bufs[i]->gpu, bytes[k], sizeof(bytes[k])) == (i == k),
			      "buffer %d and the BAR of device %d", k, i);
	for (i = 0; i < n; i++)
		buffer_free(bufs[i]);
}

static unsigned char *map_bar(struct gpu *gpu)
{
	unsigned char *bar;
	int fd;

	fd = open(gpu->bar_file, O_RDWR | O_CLOEXEC);
	check(fd >= 0, "%s: %s", gpu->bar_file, strerror(errno));
	bar = mmap(NULL, gpu->bar_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(bar != MAP_FAILED, "%s: %s", gpu->bar_file, strerror(errno));
	close(fd);
	return bar;
}

static bool all_zero(const unsigned char *bytes, size_t size)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, size - 1);
}

/* Ways to look at a new buffer for the first time. */
static void look_by_mapping(struct buffer *buf, unsigned char *bytes)
{
	memcpy(bytes, buf->map, buf->size);
	check_place(buf, "vram");
}

static void look_by_dmabuf(struct buffer *buf, unsigned char *bytes)
{
	unsigned char *map = mmap(NULL, buf->size, PROT_READ, MAP_SHARED, buf->fd, 0);

	check(map != MAP_FAILED, "mmap of the dma-buf: %s", strerror(errno));
	memcpy(bytes, map, buf->size);
	munmap(map, buf->size);
	check_place(buf, "vram");
}

/* By the kernel's own mapping. */
static void look_by_vmap(struct buffer *buf, unsigned char *bytes)
{
	int imp = importer_open(), id;

	id = importer_attach(imp, TESTIMPORTER_SOFT, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(id > 0);
	check_errno(importer_transfer(imp, false, id, false, 0, bytes, buf->size), 0);
	check_place(buf, "vram");
	close(imp);
}

/* By a device, which reads only 2048 bytes at the start and at the end. */
static void look_by_dma(struct buffer *buf, unsigned char *bytes)
{
	uint64_t end = buf->size - 2048;
	int imp = importer_open(), id;
	unsigned char *bar;

	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
	check_errno(importer_transfer(imp, true, id, false, 0, bytes, 2048), 0);
	check_errno(importer_transfer(imp, true, id, false, end, bytes + end, 2048), 0);
	if (kernel_has_p2p(imp, buf->gpu)) {
		/* The device could read all that is mapped: look at all. */
		check_place(buf, "vram");
		bar = map_bar(buf->gpu);
		memcpy(bytes, bar + buffer_count(buf, "offset"), buf->size);
		munmap(bar, buf->gpu->bar_size);
	}
	close(imp);
}

/* After a move out of VRAM, with no access before. */
static void look_by_moving(struct buffer *buf, unsigned char *bytes)
{
	check_errno(gpu_put(buf->gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	check_place(buf, "vram");
	check_errno(gpu_put(buf->gpu, "evict", "%llu", (unsigned long long)buf->inode), 0);
	memcpy(bytes, buf->map, buf->size);
	check_place(buf, "system");
}

static void (*const looks[])(struct buffer *buf, unsigned char *bytes) = {
	look_by_mapping, look_by_dmabuf, look_by_vmap, look_by_dma, look_by_moving,
};

static void check_no_stale(struct gpu *gpu, const char *whose)
{
	unsigned char *bytes = malloc(MIB);
	unsigned int i;

	for (i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
		struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);

		memset(bytes, 0, MIB);
		looks[i](buf, bytes);
		check(all_zero(bytes, MIB), "look %u shows what %s left", i, whose);
		/* softgpu must not wipe the buffer's own bytes. */
		memset(buf->map, 0x3c, MIB);
		check_errno(gpu_put(gpu, "restore", "all"), 0);
		check(buf->map[0] == 0x3c && !memcmp(buf->map, buf->map + 1, MIB - 1));
		buffer_free(buf);
	}
	free(bytes);
}

#define WIPE "/sys/module/softgpu/parameters/wipe"

/* No buffer shows earlier bytes of VRAM, nor those from before the driver. */
static void test_stale(struct gpu *old)
{
	struct gpu *gpu = gpu_open(old->bdf);
	unsigned char *bar = map_bar(gpu), mark[64];
	struct buffer *buf;
	char bdf[32];

	strcpy(bdf, gpu->bdf);
	gpu_close(gpu);
	check_errno(put("/sys/bus/pci/drivers/softgpu/unbind", "%s", bdf), 0);
	memset(bar, 0xa5, old->bar_size);
	check_errno(put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf), 0);
	munmap(bar, old->bar_size);
	gpu = gpu_open(bdf);
	check_errno(gpu_put(gpu, "behaviour", "amdgpu"), 0);
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
	check_no_stale(gpu, "the time before the driver");

	/* Freed without a wipe, the bytes must not show in the next buffer. */
	check_errno(put(WIPE, "N"), 0);
	buf = buffer_new(gpu, 8 * MIB, SYSTEM | VRAM);
	memset(buf->map, 0x5a, buf->size);
	check_place(buf, "vram");
	memset(mark, 0x5a, sizeof(mark));
	buffer_free(buf);
	check(bar_holds(gpu, mark, sizeof(mark)), "VRAM was wiped in spite of wipe=N");
	check_errno(put(WIPE, "Y"), 0);
	check_no_stale(gpu, "another buffer");
	gpu_close(gpu);
}

const struct test memory_tests[] = {
	{ .name = "hidden", .run = test_hidden },
	{ .name = "several", .run = test_several },
	{ .name = "migration", .run = test_migration },
	{ .name = "cpu-access", .run = test_cpu_access },
	{ .name = "stale", .run = test_stale },
	{ .name = "pressure", .run = test_pressure },
	{ .name = "many", .run = test_many },
	{ .name = "prime", .run = test_prime },
	{}
};
