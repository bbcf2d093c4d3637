// SPDX-License-Identifier: Apache-2.0
/*
 * reg-loop: the C side of `make bench`. Each round registers the dma-buf that it
 * inherits as fd 3 by the REG_DMABUF_MR ioctl and deregisters it. Standard input
 * gives the numbers of rounds; standard output gets the nanoseconds of each round
 * as native 64-bit integers.
 *
 *   reg-loop DEVICE LENGTH
 *
 * It shares no code with the Go packages. The context and the PD come from
 * libibverbs, as in an application.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "rounds.h"

#define DMABUF_FD 3

static struct ibv_pd *pd;
static uint64_t length;

struct request {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[9];
};

static void in(struct request *r, uint16_t id, uint16_t len, uint64_t data)
{
	r->attrs[r->hdr.num_attrs++] = (struct ib_uverbs_attr){
		.attr_id = id,
		.len = len,
		.flags = UVERBS_ATTR_F_MANDATORY,
		.data = data,
	};
	r->hdr.length = sizeof(r->hdr) + r->hdr.num_attrs * sizeof(r->attrs[0]);
}

static uint32_t driver_id; /* enum rdma_driver_id, which every request names */

static void header(struct request *r, uint16_t method)
{
	memset(r, 0, sizeof(*r));
	r->hdr.driver_id = driver_id;
	r->hdr.object_id = UVERBS_OBJECT_MR;
	r->hdr.method_id = method;
}

static uint32_t reg(void)
{
	uint32_t lkey = 0, rkey = 0;
	struct request r;

	header(&r, UVERBS_METHOD_REG_DMABUF_MR);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, pd->handle);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8, 0);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8, length);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8, 0);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_FD, 4, DMABUF_FD);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, 4,
	   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4, (uintptr_t)&lkey);
	in(&r, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4, (uintptr_t)&rkey);
	if (ioctl(pd->context->cmd_fd, RDMA_VERBS_IOCTL, &r))
		err(1, "REG_DMABUF_MR");
	return (uint32_t)r.attrs[0].data;
}

static void dereg(uint32_t handle)
{
	struct request r;

	header(&r, UVERBS_METHOD_MR_DESTROY);
	in(&r, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, handle);
	if (ioctl(pd->context->cmd_fd, RDMA_VERBS_IOCTL, &r))
		err(1, "MR_DESTROY");
}

/*
 * The kernel answers EINVAL to the number of another driver before it looks at
 * anything else, and ENOENT to an MR that does not exist.
 */
static void find_driver(const struct ibv_context *ctx)
{
	struct request r;

	for (driver_id = 0; driver_id < 64; driver_id++) {
		header(&r, UVERBS_METHOD_MR_DESTROY);
		in(&r, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, INT32_MAX);
		if (ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &r) && errno != EINVAL)
			return;
	}
	errx(1, "no driver number is accepted");
}

static void open_pd(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	for (int i = 0; list && list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		ctx = ibv_open_device(list[i]);
		if (!ctx)
			err(1, "ibv_open_device");
		pd = ibv_alloc_pd(ctx);
		if (!pd)
			err(1, "ibv_alloc_pd");
		find_driver(ctx);
		return;
	}
	errx(1, "no RDMA device %s", name);
}

static void once(void)
{
	dereg(reg());
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: reg-loop DEVICE LENGTH 3<dma-buf");
	length = strtoull(argv[2], NULL, 0);
	open_pd(argv[1]);
	return rounds(once);
}
