// SPDX-License-Identifier: GPL-2.0
/* Buffers as the CPU sees them, wherever they are. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
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

/* Reading through the brackets brings amdgpu's and xe's buffers to system memory. */
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

/* When VRAM is full, what was used longest ago makes room. */
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

/* VRAM beyond the BAR: nobody sees it, and what is to be seen comes out of it. */
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
		not_here("amdgpu's way to ask for the size of VRAM");
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
	/* Too large for the BAR: VRAM is no use to anybody outside. */
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

const struct test memory_tests[] = {
	{ .name = "hidden", .run = test_hidden },
	{ .name = "several", .run = test_several },
	{ .name = "migration", .run = test_migration },
	{ .name = "cpu-access", .run = test_cpu_access },
	{ .name = "pressure", .run = test_pressure },
	{ .name = "many", .run = test_many },
	{ .name = "prime", .run = test_prime },
	{}
};
