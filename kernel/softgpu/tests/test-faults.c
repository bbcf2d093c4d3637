// SPDX-License-Identifier: GPL-2.0
/* Operations that fail on request, and fences that signal late. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <drm/drm.h>
#include <linux/dma-buf.h>

#include "testlib.h"

static void fail(struct gpu *gpu, const char *op, int err)
{
	char file[64];

	snprintf(file, sizeof(file), "fail/%s", op);
	check_errno(gpu_put(gpu, file, "%d", err), 0);
}

static int sync_buffer(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags };

	return call(fd, DMA_BUF_IOCTL_SYNC, &sync);
}

static int map_dmabuf(struct buffer *buf)
{
	void *map = mmap(NULL, buf->size, PROT_READ, MAP_SHARED, buf->fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	munmap(map, buf->size);
	return 0;
}

static void test_injection(struct gpu *gpu)
{
	int imp = importer_open(), id;
	struct drm_gem_close close_args;
	struct buffer *buf;
	uint32_t handle;

	check_errno(gpu_put(gpu, "behaviour", "amdgpu"), 0);
	fail(gpu, "create", ENOSPC);
	check_errno(buffer_create(gpu, MIB, VRAM, &handle), -ENOSPC);
	fail(gpu, "create", 0);
	check_errno(buffer_create(gpu, MIB, VRAM, &handle), 0);
	fail(gpu, "export", EPERM);
	check_errno(buffer_export(gpu, handle), -EPERM);
	fail(gpu, "export", 0);
	close_args = (struct drm_gem_close){ .handle = handle };
	check_errno(call(gpu->drm, DRM_IOCTL_GEM_CLOSE, &close_args), 0);

	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	fail(gpu, "attach", 524);
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true), -524);
	fail(gpu, "attach", 0);
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(id > 0);
	fail(gpu, "pin", ENOMEM);
	check_errno(importer_map(imp, id, NULL, 0), -ENOMEM);
	fail(gpu, "pin", 0);
	fail(gpu, "map", EIO);
	check_errno(importer_map(imp, id, NULL, 0), -EIO);
	check(!buffer_count(buf, "pins"), "a failed map leaves its pin");
	fail(gpu, "map", 0);
	check(importer_map(imp, id, NULL, 0) > 0);
	check_errno(importer_detach(imp, id), 0);

	fail(gpu, "mmap", ENODEV);
	check_errno(map_dmabuf(buf), -ENODEV);
	fail(gpu, "mmap", 0);
	check_errno(map_dmabuf(buf), 0);
	fail(gpu, "begin_cpu_access", EIO);
	check_errno(sync_buffer(buf->fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), -EIO);
	fail(gpu, "begin_cpu_access", 0);
	fail(gpu, "end_cpu_access", EIO);
	check_errno(sync_buffer(buf->fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ), -EIO);
	fail(gpu, "end_cpu_access", 0);
	check_errno(gpu_put(gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	fail(gpu, "move", EIO);
	check_errno(gpu_put(gpu, "evict", "%llu", (unsigned long long)buf->inode), -EIO);
	check_place(buf, "vram");
	fail(gpu, "move", 0);
	check_errno(gpu_put(gpu, "evict", "%llu", (unsigned long long)buf->inode), 0);
	close(imp);
	buffer_free(buf);
}

static void test_vmap_failure(struct gpu *gpu)
{
	int imp = importer_open(), id;
	struct buffer *buf;
	char byte;

	check_errno(gpu_put(gpu, "behaviour", "amdgpu"), 0);
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(id > 0);
	fail(gpu, "vmap", EOPNOTSUPP);
	expect_vmap_warning();
	check_errno(importer_transfer(imp, false, id, false, 0, &byte, 1), -EOPNOTSUPP);
	forget_warnings();
	fail(gpu, "vmap", 0);
	check_errno(importer_transfer(imp, false, id, false, 0, &byte, 1), 0);
	close(imp);
	buffer_free(buf);
}

static int ready(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, ms);
}

static long module_users(void)
{
	char text[32];

	get("/sys/module/softgpu/refcnt", text, sizeof(text));
	return atol(text);
}

static bool no_more_users(void *before)
{
	return module_users() <= *(long *)before;
}

/* The usage of a fence decides which operations wait for it. */
static void test_usages(struct gpu *gpu)
{
	static const struct {
		const char *usage;
		bool reader, writer;	/* POLLIN, POLLOUT wait for it */
	} rows[] = {
		{ "kernel", true, true },
		{ "write", true, true },
		{ "read", false, true },
		{ "bookkeep", false, false },
	};
	struct buffer *buf, *other;
	int imp = importer_open(), id;
	long users = module_users();
	unsigned int i;

	check_errno(gpu_put(gpu, "behaviour", "amdgpu"), 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		check_errno(gpu_put(gpu, "fence", "%llu 3000 %s",
				    (unsigned long long)buf->inode, rows[i].usage), 0);
		check(ready(buf->fd, POLLIN, 0) == !rows[i].reader, "a reader and a %s fence",
		      rows[i].usage);
		check(ready(buf->fd, POLLOUT, 0) == !rows[i].writer, "a writer and a %s fence",
		      rows[i].usage);
		buffer_free(buf);
	}
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	other = buffer_new(gpu, MIB, SYSTEM | VRAM);
	buf->map[0] = 1;
	check_errno(gpu_put(gpu, "fence", "%llu 1 strange", (unsigned long long)buf->inode),
		    -EINVAL);

	/* A map waits until the kernel's own work on the buffer is done. */
	check_errno(gpu_put(gpu, "fence", "%llu 1000 kernel", (unsigned long long)buf->inode), 0);
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
	check(ready(buf->fd, POLLIN, 0) == 1, "mapped too early");
	check_errno(importer_detach(imp, id), 0);

	/*
	 * A move waits for fences of all usages. The other buffer's shorter
	 * fence is over by then.
	 */
	check_errno(gpu_put(gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	check_place(buf, "vram");
	check_errno(gpu_put(gpu, "fence", "%llu 300 write", (unsigned long long)other->inode), 0);
	check_errno(gpu_put(gpu, "fence", "%llu 2000 bookkeep", (unsigned long long)buf->inode), 0);
	check_errno(gpu_put(gpu, "evict", "%llu", (unsigned long long)buf->inode), 0);
	check(ready(other->fd, POLLIN, 0) == 1, "moved too early");
	buffer_free(other);
	buffer_free(buf);
	close(imp);
	/* Each fence holds a reference to the module. */
	eventually(no_more_users, &users, "a fence does not signal");
}

/* poll() sees a fence, CPU access waits for it, and it outlives its buffer. */
static void test_fences(struct gpu *gpu)
{
	struct dma_buf_export_sync_file export = { .flags = DMA_BUF_SYNC_READ, .fd = -1 };
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);

	buf->map[0] = 1;
	check(ready(buf->fd, POLLIN, 0) == 1);
	check_errno(gpu_put(gpu, "fence", "%llu 500 write", (unsigned long long)buf->inode), 0);
	check(ready(buf->fd, POLLIN, 0) == 0, "there is a writer");
	check_errno(sync_buffer(buf->fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), 0);
	check(ready(buf->fd, POLLIN, 0) == 1, "the bracket did not wait");
	check_errno(sync_buffer(buf->fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ), 0);

	check_errno(gpu_put(gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	check_errno(gpu_put(gpu, "fence_delay_ms", "500"), 0);
	check_errno(gpu_put(gpu, "evict", "%llu", (unsigned long long)buf->inode), 0);
	check_errno(gpu_put(gpu, "fence_delay_ms", "0"), 0);
	check(ready(buf->fd, POLLIN, 0) == 0, "the move left no fence");
	/* The page fault waits for the fence of the move. */
	check(buf->map[0] == 1);
	check(ready(buf->fd, POLLIN, 0) == 1);

	check_errno(gpu_put(gpu, "fence", "%llu 300 write", (unsigned long long)buf->inode), 0);
	check_errno(call(buf->fd, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, &export), 0);
	buffer_free(buf);
	check(ready(export.fd, POLLIN, 10000) == 1, "the fence never signals");
	close(export.fd);
	check_errno(gpu_put(gpu, "fence", "1"), -EINVAL);
}

const struct test fault_tests[] = {
	{ .name = "injection", .run = test_injection },
	{ .name = "fences", .run = test_fences },
	{ .name = "fence-usages", .run = test_usages },
	{ .name = "vmap-failure", .run = test_vmap_failure },
	{}
};
