// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
#include "mr.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* Enough for the largest method used here. */
#define MAX_ATTRS 9

struct request {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[MAX_ATTRS];
};

static void request_init(struct request *r, uint16_t method)
{
	memset(r, 0, sizeof(*r));
	r->hdr.object_id = UVERBS_OBJECT_MR;
	r->hdr.method_id = method;
	/*
	 * The kernel answers EINVAL to any other driver's number. libibverbs
	 * does not export the number, and the test bed has rxe devices only.
	 */
	r->hdr.driver_id = RDMA_DRIVER_RXE;
}

/*
 * Objects have a length of 0. Input of up to 8 bytes lies in data itself; longer
 * input and all output are pointers.
 */
static struct ib_uverbs_attr *attr(struct request *r, uint16_t id,
				   uint16_t len, uint64_t data)
{
	struct ib_uverbs_attr *a = &r->attrs[r->hdr.num_attrs++];

	a->attr_id = id;
	a->len = len;
	a->flags = UVERBS_ATTR_F_MANDATORY;
	a->data = data;
	return a;
}

static void attr_out(struct request *r, uint16_t id, void *to, uint16_t len)
{
	attr(r, id, len, (uintptr_t)to);
}

static int submit(struct ibv_context *ctx, struct request *r)
{
	r->hdr.length = (uint16_t)(sizeof(r->hdr) +
				   r->hdr.num_attrs * sizeof(r->attrs[0]));
	return ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &r->hdr) ? errno : 0;
}

const char *route_name(enum route r)
{
	switch (r) {
	case ROUTE_PROVIDER:
		return "provider";
	case ROUTE_IOCTL:
		return "ioctl";
	default:
		return "auto";
	}
}

static int register_ioctl(struct ibv_pd *pd, int fd, const struct range *rg,
			  unsigned int access, struct mr *out)
{
	struct ib_uverbs_attr *handle;
	struct request r;
	int err;

	request_init(&r, UVERBS_METHOD_REG_DMABUF_MR);
	handle = attr(&r, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	attr(&r, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, pd->handle);
	attr(&r, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8, rg->offset);
	attr(&r, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8, rg->length);
	attr(&r, UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8, rg->iova);
	attr(&r, UVERBS_ATTR_REG_DMABUF_MR_FD, 4, (uint32_t)fd);
	attr(&r, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, 4, access);
	attr_out(&r, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &out->lkey, 4);
	attr_out(&r, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &out->rkey, 4);

	err = submit(pd->context, &r);
	if (err)
		return err;
	out->route = ROUTE_IOCTL;
	out->handle = (uint32_t)handle->data;
	return 0;
}

static int register_provider(struct ibv_pd *pd, int fd, const struct range *rg,
			     unsigned int access, struct mr *out)
{
	errno = 0;
	out->ibv = ibv_reg_dmabuf_mr(pd, rg->offset, rg->length, rg->iova, fd,
				     (int)access);
	if (!out->ibv)
		return errno ? errno : EIO;
	out->route = ROUTE_PROVIDER;
	out->lkey = out->ibv->lkey;
	out->rkey = out->ibv->rkey;
	out->handle = out->ibv->handle;
	return 0;
}

int mr_register(struct ibv_pd *pd, enum route want, int fd,
		const struct range *r, unsigned int access, struct mr *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	if (want != ROUTE_IOCTL) {
		err = register_provider(pd, fd, r, access, out);
		if (want == ROUTE_PROVIDER || err != EOPNOTSUPP)
			return err;
	}
	return register_ioctl(pd, fd, r, access, out);
}

int mr_deregister(struct ibv_context *ctx, struct mr *mr)
{
	struct request r;

	if (mr->ibv)
		return ibv_dereg_mr(mr->ibv);

	request_init(&r, UVERBS_METHOD_MR_DESTROY);
	attr(&r, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, mr->handle);
	return submit(ctx, &r);
}

int mr_query(struct ibv_context *ctx, const struct mr *mr, struct mr *keys,
	     uint64_t *length, uint64_t *iova)
{
	struct request r;

	request_init(&r, UVERBS_METHOD_QUERY_MR);
	attr(&r, UVERBS_ATTR_QUERY_MR_HANDLE, 0, mr->handle);
	attr_out(&r, UVERBS_ATTR_QUERY_MR_RESP_LKEY, &keys->lkey, 4);
	attr_out(&r, UVERBS_ATTR_QUERY_MR_RESP_RKEY, &keys->rkey, 4);
	attr_out(&r, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, length, 8);
	attr_out(&r, UVERBS_ATTR_QUERY_MR_RESP_IOVA, iova, 8);
	return submit(ctx, &r);
}

int mr_reregister(struct ibv_context *ctx, struct mr *mr, unsigned int flags,
		  struct ibv_pd *pd, const struct range *rg,
		  unsigned int access)
{
	struct ib_uverbs_rereg_mr_resp resp = { 0 };
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_rereg_mr cmd;
	} req = {
		.hdr.command = IB_USER_VERBS_CMD_REREG_MR,
		.hdr.in_words = sizeof(req) / 4,
		.hdr.out_words = sizeof(resp) / 4,
		.cmd.response = (uintptr_t)&resp,
		.cmd.mr_handle = mr->handle,
		.cmd.flags = flags,
		.cmd.access_flags = access,
	};

	if (pd)
		req.cmd.pd_handle = pd->handle;
	if (rg) {
		req.cmd.start = rg->iova;
		req.cmd.hca_va = rg->iova;
		req.cmd.length = rg->length;
	}
	if (write(ctx->cmd_fd, &req, sizeof(req)) != sizeof(req))
		return errno;
	mr->lkey = resp.lkey;
	mr->rkey = resp.rkey;
	return 0;
}

int mr_prefetch(struct ibv_pd *pd, uint32_t lkey, uint64_t addr, uint32_t length,
		bool wait)
{
	struct ib_uverbs_sge sge = { .addr = addr, .length = length, .lkey = lkey };
	struct request r;

	request_init(&r, UVERBS_METHOD_ADVISE_MR);
	attr(&r, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, pd->handle);
	attr(&r, UVERBS_ATTR_ADVISE_MR_ADVICE, 8, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH);
	attr(&r, UVERBS_ATTR_ADVISE_MR_FLAGS, 4,
	     wait ? IB_UVERBS_ADVISE_MR_FLAG_FLUSH : 0);
	attr(&r, UVERBS_ATTR_ADVISE_MR_SGE_LIST, sizeof(sge), (uintptr_t)&sge);
	return submit(pd->context, &r);
}

/* include/uapi/rdma/ib_user_ioctl_cmds.h with kernel/patches/rdma-rereg */
enum {
	METHOD_REREG_DMABUF_MR = 20,
	REREG_HANDLE = 0,
	REREG_OFFSET = 2,
	REREG_LENGTH,
	REREG_IOVA,
	REREG_FD,
};

/* NULL if libibverbs has no such function. */
extern int ibv_rereg_dmabuf_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			       uint64_t offset, size_t length, uint64_t iova,
			       int fd, int access) __attribute__((weak));

int mr_move(struct ibv_context *ctx, struct mr *mr, int fd, const struct range *rg)
{
	struct request r;

	if (mr->ibv && ibv_rereg_dmabuf_mr)
		return ibv_rereg_dmabuf_mr(mr->ibv, IBV_REREG_MR_CHANGE_TRANSLATION,
					   NULL, rg->offset, rg->length,
					   rg->iova, fd, 0);

	request_init(&r, METHOD_REREG_DMABUF_MR);
	attr(&r, REREG_HANDLE, 0, mr->handle);
	attr(&r, REREG_OFFSET, 8, rg->offset);
	attr(&r, REREG_LENGTH, 8, rg->length);
	attr(&r, REREG_IOVA, 8, rg->iova);
	attr(&r, REREG_FD, 0, (uint64_t)(int64_t)fd);
	return submit(ctx, &r);
}
