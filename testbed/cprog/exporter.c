// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "exporter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include "../../kernel/testexporter/testexporter.h"

/*
 * The few DRM definitions that are needed, from include/uapi/drm/drm.h and
 * drm_mode.h: Debian ships those headers with libdrm, which is not needed
 * for anything else here.
 */
struct drm_version {
	int version_major;
	int version_minor;
	int version_patchlevel;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

struct drm_mode_create_dumb {
	uint32_t height;
	uint32_t width;
	uint32_t bpp;
	uint32_t flags;
	uint32_t handle;
	uint32_t pitch;
	uint64_t size;
};

struct drm_mode_destroy_dumb {
	uint32_t handle;
};

struct drm_prime_handle {
	uint32_t handle;
	uint32_t flags;
	int32_t fd;
};

#define DRM_IOCTL_VERSION		_IOWR('d', 0x00, struct drm_version)
#define DRM_IOCTL_PRIME_HANDLE_TO_FD	_IOWR('d', 0x2d, struct drm_prime_handle)
#define DRM_IOCTL_MODE_CREATE_DUMB	_IOWR('d', 0xb2, struct drm_mode_create_dumb)
#define DRM_IOCTL_MODE_DESTROY_DUMB	_IOWR('d', 0xb4, struct drm_mode_destroy_dumb)
#define DRM_CLOEXEC			O_CLOEXEC
#define DRM_RDWR			O_RDWR

/* Primary nodes have minors 0 to 63. */
#define DRM_MAX_CARDS 64

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static int open_dev(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd >= 0 ? fd : -errno;
}

/* The first primary node whose driver has this name; fd or -errno. */
static int open_driver(const char *driver)
{
	int err = ENODEV;

	for (int i = 0; i < DRM_MAX_CARDS; i++) {
		char path[32], name[64] = "";
		struct drm_version v = {
			.name = name, .name_len = sizeof(name) - 1,
		};
		int fd;

		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		fd = open_dev(path);
		if (fd < 0) {
			if (fd != -ENOENT)
				err = -fd;
			continue;
		}
		if (ioctl(fd, DRM_IOCTL_VERSION, &v) == 0 &&
		    strcmp(name, driver) == 0)
			return fd;
		close(fd);
	}
	return -err;
}

static int alloc_drm(struct buffer *b, const char *spec, size_t size,
		     const char **stage)
{
	size_t row = (size_t)sysconf(_SC_PAGESIZE);
	struct drm_mode_create_dumb dumb = {
		.bpp = 32,
		.width = (uint32_t)(row / 4),
		.height = (uint32_t)(round_up(size, row) / row),
	};
	struct drm_prime_handle prime = { .flags = DRM_CLOEXEC | DRM_RDWR };

	if (size / row > UINT32_MAX - 1)
		return EOVERFLOW;

	*stage = "open";
	b->owner_fd = spec[0] == '/' ? open_dev(spec) : open_driver(spec);
	if (b->owner_fd < 0) {
		int err = -b->owner_fd;

		b->owner_fd = -1;
		return err;
	}

	*stage = "allocate";
	if (ioctl(b->owner_fd, DRM_IOCTL_MODE_CREATE_DUMB, &dumb))
		return errno;
	b->dumb = dumb.handle;

	*stage = "export";
	prime.handle = dumb.handle;
	if (ioctl(b->owner_fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime))
		return errno;
	b->fd = prime.fd;
	return 0;
}

static int alloc_udmabuf(struct buffer *b, size_t size, const char **stage)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC };
	int dev, err = 0;

	size = round_up(size, (size_t)sysconf(_SC_PAGESIZE));

	*stage = "allocate";
	b->owner_fd = memfd_create("dmabuf-mr", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b->owner_fd < 0)
		return errno;
	if (ftruncate(b->owner_fd, (off_t)size))
		return errno;
	/* udmabuf refuses a memfd that can shrink under it. */
	if (fcntl(b->owner_fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return errno;

	*stage = "open";
	dev = open_dev("/dev/udmabuf");
	if (dev < 0)
		return -dev;

	*stage = "export";
	create.memfd = (uint32_t)b->owner_fd;
	create.size = size;
	b->fd = ioctl(dev, UDMABUF_CREATE, &create);
	if (b->fd < 0)
		err = errno;
	close(dev);
	return err;
}

static int alloc_heap(struct buffer *b, const char *name, size_t size,
		      const char **stage)
{
	struct dma_heap_allocation_data data = {
		.len = size, .fd_flags = O_RDWR | O_CLOEXEC,
	};
	char path[PATH_MAX];
	int dev, err = 0;

	*stage = "open";
	if (strchr(name, '/') ||
	    snprintf(path, sizeof(path), "/dev/dma_heap/%s", name) >= (int)sizeof(path))
		return EINVAL;
	dev = open_dev(path);
	if (dev < 0)
		return -dev;

	*stage = "allocate";
	if (ioctl(dev, DMA_HEAP_IOCTL_ALLOC, &data))
		err = errno;
	else
		b->fd = (int)data.fd;
	close(dev);
	return err;
}

static int alloc_test(struct buffer *b, const char *mode, size_t size,
		      const char **stage)
{
	static const char *const modes[TESTEXPORTER_MODES] = {
		[TESTEXPORTER_OK] = "ok",
		[TESTEXPORTER_NO_VMAP] = "no-vmap",
		[TESTEXPORTER_IOMEM] = "iomem",
		[TESTEXPORTER_ATTACH] = "attach",
		[TESTEXPORTER_PIN] = "pin",
		[TESTEXPORTER_MAP] = "map",
		[TESTEXPORTER_BEGIN_CPU] = "begin-cpu",
		[TESTEXPORTER_NO_PAGES] = "no-pages",
	};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct testexporter_create c = {
		.pages = (uint32_t)(round_up(size, page) / page),
	};
	int dev, err = 0;

	*stage = "open";
	while (c.mode < TESTEXPORTER_MODES &&
	       (!modes[c.mode] || strcmp(modes[c.mode], mode)))
		c.mode++;
	dev = open_dev("/dev/testexporter");
	if (dev < 0)
		return -dev;

	*stage = "allocate";
	b->fd = ioctl(dev, TESTEXPORTER_CREATE, &c);
	if (b->fd < 0)
		err = errno;
	close(dev);
	return err;
}

/* A dma-buf of another process, inherited open. */
static int borrow(struct buffer *b, const char *number, const char **stage)
{
	char *end;
	long fd = strtol(number, &end, 10);

	*stage = "open";
	if (end == number || *end || fd < 0 || fd > INT_MAX)
		return EINVAL;
	b->fd = fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
	return b->fd < 0 ? errno : 0;
}

int buffer_alloc(struct buffer *b, const char *spec, size_t size,
		 const char **stage)
{
	off_t end;
	void *map;
	int err;

	*b = (struct buffer){ .fd = -1, .owner_fd = -1 };

	if (strcmp(spec, "udmabuf") == 0)
		err = alloc_udmabuf(b, size, stage);
	else if (strncmp(spec, "heap:", 5) == 0)
		err = alloc_heap(b, spec + 5, size, stage);
	else if (strncmp(spec, "test:", 5) == 0)
		err = alloc_test(b, spec + 5, size, stage);
	else if (strncmp(spec, "fd:", 3) == 0)
		err = borrow(b, spec + 3, stage);
	else
		err = alloc_drm(b, spec, size, stage);
	if (err)
		goto fail;

	*stage = "size";
	end = lseek(b->fd, 0, SEEK_END);
	if (end < 0) {
		err = errno;
		goto fail;
	}
	b->size = (size_t)end;

	*stage = "map";
	map = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (map == MAP_FAILED) {
		err = errno;
		goto fail;
	}
	b->map = map;
	return 0;

fail:
	buffer_free(b);
	return err;
}

void buffer_orphan(struct buffer *b)
{
	if (b->map)
		munmap(b->map, b->size);
	b->map = NULL;

	if (b->dumb) {
		struct drm_mode_destroy_dumb d = { .handle = b->dumb };

		ioctl(b->owner_fd, DRM_IOCTL_MODE_DESTROY_DUMB, &d);
	}
	b->dumb = 0;

	if (b->owner_fd >= 0)
		close(b->owner_fd);
	b->owner_fd = -1;
}

void buffer_free(struct buffer *b)
{
	buffer_orphan(b);
	if (b->fd >= 0)
		close(b->fd);
	b->fd = -1;
}

static int cpu_sync(const struct buffer *b, uint64_t flags)
{
	struct dma_buf_sync s = { .flags = DMA_BUF_SYNC_RW | flags };
	int r;

	do {
		r = ioctl(b->fd, DMA_BUF_IOCTL_SYNC, &s);
	} while (r && (errno == EINTR || errno == EAGAIN));
	return r ? errno : 0;
}

int buffer_begin_cpu(const struct buffer *b)
{
	return cpu_sync(b, DMA_BUF_SYNC_START);
}

int buffer_end_cpu(const struct buffer *b)
{
	return cpu_sync(b, DMA_BUF_SYNC_END);
}
