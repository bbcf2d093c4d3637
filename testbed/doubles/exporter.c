// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "exporter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/udmabuf.h>

#include "core.h"
#include "drm_abi.h"

#define MAX_RANGES 256

/* The node of the driver named vgem, opened; -1 if there is none. */
static int open_vgem(void)
{
	for (int i = 0; i < 16; i++) {
		char path[32], name[16] = "";
		struct drm_version v = { .name_len = sizeof(name) - 1, .name = name };
		int fd;

		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!ioctl(fd, DRM_IOCTL_VERSION, &v) && !strcmp(name, "vgem"))
			return fd;
		close(fd);
	}
	return -1;
}

static bool want_vgem(void)
{
	const char *e = getenv("DOUBLE_EXPORTER");

	if (e && *e)
		return !strcmp(e, "vgem");
	if (!access("/dev/udmabuf", R_OK | W_OK))
		return false;
	return !access("/dev/dri/card0", F_OK);
}

bool core_parts(void) { return !want_vgem(); }

static int make_vgem(struct block *b)
{
	struct drm_mode_create_dumb make = { .bpp = 8, .width = (unsigned int)sysconf(_SC_PAGESIZE) };
	struct drm_mode_map_dumb map = { 0 };
	struct drm_gem_close gone = { 0 };

	b->drm = open_vgem();
	if (b->drm < 0)
		return -ENODEV;
	make.height = (unsigned int)(b->size / make.width);
	if (ioctl(b->drm, DRM_IOCTL_MODE_CREATE_DUMB, &make))
		goto close;
	b->handle = gone.handle = map.handle = make.handle;
	if (ioctl(b->drm, DRM_IOCTL_MODE_MAP_DUMB, &map))
		goto destroy;
	b->host = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, b->drm, (off_t)map.offset);
	if (b->host != MAP_FAILED)
		return 0;
destroy:
	ioctl(b->drm, DRM_IOCTL_GEM_CLOSE, &gone);
close:
	close(b->drm);
	return -ENOMEM;
}

/* udmabuf wants a memfd that is sealed against shrinking, and writable. */
static int make_memfd(struct block *b)
{
	b->memfd = memfd_create("double", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b->memfd < 0)
		return -errno;
	if (ftruncate(b->memfd, (off_t)b->size) || fcntl(b->memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		goto close;
	b->host = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, b->memfd, 0);
	if (b->host != MAP_FAILED)
		return 0;
close:
	close(b->memfd);
	return -ENOMEM;
}

int exporter_make(struct block *b)
{
	b->memfd = b->drm = -1;
	return want_vgem() ? make_vgem(b) : make_memfd(b);
}

void exporter_free(struct block *b)
{
	munmap(b->host, b->size);
	if (b->memfd >= 0)
		close(b->memfd);
	if (b->drm >= 0) {
		struct drm_gem_close gone = { .handle = b->handle };

		ioctl(b->drm, DRM_IOCTL_GEM_CLOSE, &gone);
		close(b->drm);
	}
}

static int export_vgem(const struct block *b)
{
	struct drm_prime_handle prime = { .handle = b->handle, .flags = DRM_CLOEXEC | DRM_RDWR, .fd = -1 };

	return ioctl(b->drm, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) ? -errno : prime.fd;
}

static int export_list(struct udmabuf_create_list *list)
{
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;

	if (dev < 0)
		return -errno;
	list->flags = UDMABUF_FLAGS_CLOEXEC;
	fd = ioctl(dev, UDMABUF_CREATE_LIST, list);
	if (fd < 0)
		fd = -errno;
	close(dev);
	return fd;
}

int core_export_range(uint64_t addr, size_t n)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct udmabuf_create_list *list;
	int fd = -EINVAL;

	if (addr & (page - 1) || n & (page - 1) || !n)
		return -EINVAL;
	list = calloc(1, sizeof(*list) + MAX_RANGES * sizeof(list->list[0]));
	if (!list)
		return -ENOMEM;
	while (n) {
		struct area *a = core_find(addr);
		struct block *b;
		size_t in, part;

		/* The first page can begin in front of the allocation. */
		for (uint64_t at = addr; !a && at < addr + page; at += 512)
			a = core_find(at);
		if (!a || list->count == MAX_RANGES)
			goto out;
		b = a->block;
		in = (size_t)(addr - (a->addr - a->offset)); /* unsigned: addr may be below a->addr */
		part = b->size - in < n ? b->size - in : n;
		if (b->memfd < 0) {
			fd = !list->count && !in && n == b->size ? export_vgem(b) : -EOPNOTSUPP;
			goto out;
		}
		list->list[list->count].memfd = (unsigned int)b->memfd;
		list->list[list->count].offset = in;
		list->list[list->count++].size = part;
		addr += part;
		n -= part;
	}
	fd = export_list(list);
out:
	free(list);
	return fd;
}

int core_export_block(const struct area *a)
{
	struct udmabuf_create_list *list;
	int fd;

	if (a->block->memfd < 0)
		return export_vgem(a->block);
	list = calloc(1, sizeof(*list) + sizeof(list->list[0]));
	if (!list)
		return -ENOMEM;
	list->count = 1;
	list->list[0].memfd = (unsigned int)a->block->memfd;
	list->list[0].size = a->block->size;
	fd = export_list(list);
	free(list);
	return fd;
}
