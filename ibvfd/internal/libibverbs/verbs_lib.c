// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vb_open(const struct vb_lib *lib, const char *name, struct vb_context **out)
{
	struct vb_device **list;
	int n = 0, err = ENODEV;

	errno = 0;
	list = lib->get_device_list(&n);
	if (!list)
		return vb_failure();
	for (int i = 0; i < n; i++) {
		if (strcmp(lib->get_device_name(list[i]), name))
			continue;
		errno = 0;
		*out = lib->open_device(list[i]);
		err = *out ? 0 : vb_failure();
		break;
	}
	lib->free_device_list(list);
	return err;
}

int vb_close(const struct vb_lib *lib, struct vb_context *ctx)
{
	errno = 0;
	return vb_status(lib->close_device(ctx));
}

const char *vb_context_name(const struct vb_lib *lib,
			    const struct vb_context *ctx)
{
	return lib->get_device_name(ctx->device);
}

int vb_query_device(const struct vb_lib *lib, struct vb_context *ctx,
		    struct vb_device_attr *attr)
{
	errno = 0;
	return vb_status(lib->query_device(ctx, attr));
}

int vb_query_port(const struct vb_lib *lib, struct vb_context *ctx,
		  uint8_t port, struct vb_port_attr *attr)
{
	errno = 0;
	return vb_status(lib->query_port(ctx, port, attr));
}

/* More than any table holds; the kernel's ABI has room for 2047 in one answer. */
#define MAX_GIDS 2047

int vb_query_gid_table(const struct vb_lib *lib, struct vb_context *ctx,
		       struct vb_gid_entry **out)
{
	ssize_t n;

	*out = NULL;
	if (!lib->query_gid_table)
		return -ENOSYS;
	*out = calloc(MAX_GIDS, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	n = lib->query_gid_table(ctx, *out, MAX_GIDS, 0, sizeof(**out));
	return (int)n;
}

int vb_alloc_pd(const struct vb_lib *lib, struct vb_context *ctx,
		struct vb_pd **out)
{
	errno = 0;
	*out = lib->alloc_pd(ctx);
	return *out ? 0 : vb_failure();
}

int vb_dealloc_pd(const struct vb_lib *lib, struct vb_pd *pd)
{
	errno = 0;
	return vb_status(lib->dealloc_pd(pd));
}

int vb_reg_mr(const struct vb_lib *lib, struct vb_pd *pd, uint64_t addr,
	      uint64_t length, uint64_t iova, uint32_t access,
	      struct vb_mr **out)
{
	void *p = (void *)(uintptr_t)addr;

	errno = 0;
	if (lib->reg_mr_iova2)
		*out = lib->reg_mr_iova2(pd, p, length, iova, access);
	else if (iova == addr)
		/* a library this old does not know that it may ignore these */
		*out = lib->reg_mr(pd, p, length,
				   (int)(access & ~VB_ACCESS_OPTIONAL_RANGE));
	else
		return ENOSYS;
	return *out ? 0 : vb_failure();
}

int vb_rereg_mr(const struct vb_lib *lib, struct vb_mr *mr, struct vb_pd *pd,
		int change_access, uint32_t access)
{
	int flags = 0;

	if (pd)
		flags |= VB_REREG_MR_CHANGE_PD;
	if (change_access)
		flags |= VB_REREG_MR_CHANGE_ACCESS;
	errno = 0;
	/* Negative results are enum ibv_rereg_mr_err_code, with errno set. */
	if (lib->rereg_mr(mr, flags, pd, NULL, 0, change_access ? (int)access : 0))
		return vb_failure();
	return 0;
}

int vb_dereg_mr(const struct vb_lib *lib, struct vb_mr *mr)
{
	errno = 0;
	return vb_status(lib->dereg_mr(mr));
}

int vb_create_cq(const struct vb_lib *lib, struct vb_context *ctx, int cqe,
		 struct vb_comp_channel *channel, int comp_vector,
		 struct vb_cq **out)
{
	errno = 0;
	*out = lib->create_cq(ctx, cqe, NULL, channel, comp_vector);
	return *out ? 0 : vb_failure();
}

int vb_destroy_cq(const struct vb_lib *lib, struct vb_cq *cq)
{
	errno = 0;
	return vb_status(lib->destroy_cq(cq));
}

int vb_create_qp(const struct vb_lib *lib, struct vb_pd *pd,
		 struct vb_qp_init_attr *attr, struct vb_qp **out)
{
	errno = 0;
	*out = lib->create_qp(pd, attr);
	return *out ? 0 : vb_failure();
}

int vb_modify_qp(const struct vb_lib *lib, struct vb_qp *qp,
		 struct vb_qp_attr *attr, int mask)
{
	errno = 0;
	return vb_status(lib->modify_qp(qp, attr, mask));
}

int vb_qp_state(const struct vb_lib *lib, struct vb_qp *qp, int *state)
{
	struct vb_qp_attr attr = { 0 };
	struct vb_qp_init_attr init = { 0 };
	int err;

	errno = 0;
	err = vb_status(lib->query_qp(qp, &attr, VB_QP_STATE, &init));
	*state = attr.qp_state;
	return err;
}

int vb_destroy_qp(const struct vb_lib *lib, struct vb_qp *qp)
{
	errno = 0;
	return vb_status(lib->destroy_qp(qp));
}
