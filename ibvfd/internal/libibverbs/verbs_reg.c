// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

#include <errno.h>

/* Errors that say that a function is not for this provider, kernel or memory. */
static int absent(int err)
{
	return err == EOPNOTSUPP || err == EPROTONOSUPPORT || err == ENOSYS || err == ENOTTY;
}

int vb_reg_dmabuf_mr(const struct vb_lib *lib, struct vb_pd *pd,
		     uint64_t offset, uint64_t length, uint64_t iova, int fd,
		     uint32_t access, struct vb_mr **out, int *ex)
{
	struct vb_mr_init_attr attr = {
		.length = length,
		.access = (int)access,
		.comp_mask = VB_REG_MR_MASK_IOVA | VB_REG_MR_MASK_FD |
			     VB_REG_MR_MASK_FD_OFFSET,
		.iova = iova,
		.fd = fd,
		.fd_offset = offset,
	};
	int err;

	*ex = 0;
	if (lib->reg_mr_ex) {
		errno = 0;
		*out = lib->reg_mr_ex(pd, &attr);
		*ex = *out != NULL;
		if (*out)
			return 0;
		err = vb_failure();
		if (!absent(err))
			return err;
	}
	if (!lib->reg_dmabuf_mr)
		return ENOSYS;
	errno = 0;
	*out = lib->reg_dmabuf_mr(pd, offset, length, iova, fd, (int)access);
	return *out ? 0 : vb_failure();
}

int vb_reg_data_direct(const struct vb_mlx5 *mlx5, struct vb_pd *pd,
		       uint64_t offset, uint64_t length, uint64_t iova, int fd,
		       uint32_t access, struct vb_mr **out)
{
	if (!mlx5->reg_dmabuf_mr)
		return ENOSYS;
	errno = 0;
	*out = mlx5->reg_dmabuf_mr(pd, offset, length, iova, fd, (int)access,
				   VB_MLX5_DATA_DIRECT);
	return *out ? 0 : vb_failure();
}

int vb_data_direct_path(const struct vb_mlx5 *mlx5, struct vb_context *ctx,
			char *buf, size_t size)
{
	if (!mlx5->data_direct_path)
		return ENOSYS;
	errno = 0;
	return vb_status(mlx5->data_direct_path(ctx, buf, size));
}

int vb_alloc_buf(const struct vb_lib *lib, struct vb_pd *pd, size_t size,
		 void **mem, struct vb_buf **out)
{
	if (!lib->alloc_buf || !lib->free_buf || !lib->reg_buf_mr)
		return ENOSYS;
	errno = 0;
	*mem = lib->alloc_buf(pd, size, out);
	return *mem ? 0 : vb_failure();
}

void vb_free_buf(const struct vb_lib *lib, struct vb_buf *buf)
{
	lib->free_buf(buf);
}

int vb_reg_buf_mr(const struct vb_lib *lib, struct vb_pd *pd,
		  struct vb_buf *buf, uint64_t addr, uint64_t length,
		  uint32_t access, struct vb_mr **out)
{
	errno = 0;
	*out = lib->reg_buf_mr(pd, buf, (void *)(uintptr_t)addr, length,
			       (int)access);
	return *out ? 0 : vb_failure();
}
