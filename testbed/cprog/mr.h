/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Memory regions on a dma-buf, by either of the two routes into the kernel. */
#ifndef MR_H
#define MR_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

enum route {
	ROUTE_AUTO,		/* provider first, ioctl if it lacks the call */
	ROUTE_PROVIDER,		/* ibv_reg_dmabuf_mr() */
	ROUTE_IOCTL,		/* REG_DMABUF_MR on the context's own fd */
};

const char *route_name(enum route r);

struct range {
	uint64_t offset;	/* into the dma-buf */
	uint64_t length;
	uint64_t iova;		/* address of offset in work requests */
};

struct mr {
	enum route route;	/* the way taken, never ROUTE_AUTO */
	uint32_t lkey;
	uint32_t rkey;
	uint32_t handle;	/* uverbs object */
	struct ibv_mr *ibv;	/* provider's, or NULL */
};

/* access is IBV_ACCESS_*, passed on as it is. 0 or an errno. */
int mr_register(struct ibv_pd *pd, enum route want, int fd,
		const struct range *r, unsigned int access, struct mr *out);

/* 0 or an errno; after an error the MR is still there. */
int mr_deregister(struct ibv_context *ctx, struct mr *mr);

/* The kernel's record of the MR (UVERBS_METHOD_QUERY_MR). */
int mr_query(struct ibv_context *ctx, const struct mr *mr, struct mr *keys,
	     uint64_t *length, uint64_t *iova);

/*
 * IB_USER_VERBS_CMD_REREG_MR. flags is IBV_REREG_MR_*; r only counts for a
 * change of translation. On success mr has the new keys.
 */
int mr_reregister(struct ibv_context *ctx, struct mr *mr, unsigned int flags,
		  struct ibv_pd *pd, const struct range *r,
		  unsigned int access);

/*
 * UVERBS_METHOD_REREG_DMABUF_MR of kernel/patches/rdma-rereg: another range of
 * a dma-buf under the same keys, by ibv_rereg_dmabuf_mr() where the MR is the
 * provider's and the library has it. EPROTONOSUPPORT without the patches.
 */
int mr_move(struct ibv_context *ctx, struct mr *mr, int fd, const struct range *r);

/*
 * Prefetches pages of an on-demand MR (ADVISE_MR). With wait the call returns when
 * they are there. 0 or an errno: other MRs have nothing to prefetch.
 */
int mr_prefetch(struct ibv_pd *pd, uint32_t lkey, uint64_t addr, uint32_t length,
		bool wait);

#endif
