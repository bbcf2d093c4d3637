// SPDX-License-Identifier: Apache-2.0
/*
 * A double of libibverbs of rdma-core 65 and, with MLX5, of libmlx5. The newer functions
 * return their arguments in the keys of the MR. The descriptor chooses the answer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_abi.h"

enum { REFUSED = 90, BAD = 91 }; /* descriptors */

static struct vb_mr *keys(struct vb_pd *pd, uint32_t lkey, uint32_t rkey, uint32_t handle)
{
	struct vb_mr *mr = calloc(1, sizeof(*mr));

	mr->context = pd->context;
	mr->pd = pd;
	mr->lkey = lkey;
	mr->rkey = rkey;
	mr->handle = handle;
	return mr;
}

static struct vb_mr *none(int err)
{
	errno = err;
	return NULL;
}

#ifdef MLX5

struct vb_mr *mlx5dv_reg_dmabuf_mr(struct vb_pd *pd, uint64_t offset, size_t length,
				   uint64_t iova, int fd, int access, int mlx5_access)
{
	if (fd == BAD)
		return none(EBADF);
	return keys(pd, access, offset + length + iova, fd << 8 | mlx5_access);
}

int mlx5dv_get_data_direct_sysfs_path(struct vb_context *ctx, char *buf, size_t size)
{
	static const char path[] = "/sys/devices/pci0008:00/0008:03:00.0";

	if (size < sizeof(path))
		return ENOSPC;
	memcpy(buf, path, sizeof(path));
	return 0;
}

#else

static struct vb_device *devices[2];
static struct vb_context context;
static struct vb_pd pd = { .context = &context, .handle = 7 };

struct vb_device **ibv_get_device_list(int *n)
{
	static char device[256];

	devices[0] = (void *)device;
	*n = 1;
	return devices;
}

void ibv_free_device_list(struct vb_device **list) {}
const char *ibv_get_device_name(struct vb_device *d) { return "double0"; }
struct vb_context *ibv_open_device(struct vb_device *d) { return &context; }
int ibv_close_device(struct vb_context *c) { return 0; }
struct vb_pd *ibv_alloc_pd(struct vb_context *c) { return &pd; }
int ibv_dealloc_pd(struct vb_pd *p) { return 0; }

int ibv_dereg_mr(struct vb_mr *mr)
{
	free(mr);
	return 0;
}

struct vb_mr *ibv_reg_mr_iova2(struct vb_pd *p, void *addr, size_t length, uint64_t iova,
			       unsigned int access)
{
	return keys(p, access, length, 1);
}

struct vb_mr *ibv_reg_dmabuf_mr(struct vb_pd *p, uint64_t offset, size_t length, uint64_t iova,
				int fd, int access)
{
	return keys(p, access, offset + length + iova, 2);
}

struct vb_mr *ibv_reg_mr_ex(struct vb_pd *p, struct vb_mr_init_attr *a)
{
	if (a->comp_mask != (VB_REG_MR_MASK_IOVA | VB_REG_MR_MASK_FD | VB_REG_MR_MASK_FD_OFFSET))
		return none(EINVAL);
	if (a->fd == REFUSED)
		return none(EOPNOTSUPP);
	if (a->fd == BAD)
		return none(EBADF);
	return keys(p, a->access, a->fd_offset + a->length + a->iova, a->fd);
}

struct vb_buf {
	void *mem;
	size_t size;
};

static int buffers;

void *ibv_alloc_buf(struct vb_pd *p, size_t size, struct vb_buf **buf)
{
	*buf = malloc(sizeof(**buf));
	if (posix_memalign(&(*buf)->mem, 4096, size))
		return NULL;
	memset((*buf)->mem, 0xff, size);
	(*buf)->size = size;
	buffers++;
	return (*buf)->mem;
}

void ibv_free_buf(struct vb_buf *buf)
{
	buffers--;
	free(buf->mem);
	free(buf);
}

struct vb_mr *ibv_reg_buf_mr(struct vb_pd *p, struct vb_buf *buf, void *addr, size_t length,
			     int access)
{
	size_t off = (char *)addr - (char *)buf->mem;

	if (off > buf->size || length > buf->size - off)
		return none(EINVAL);
	return keys(p, access, off + length, buffers);
}

#endif
