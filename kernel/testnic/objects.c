// SPDX-License-Identifier: GPL-2.0
/*
 * The objects that user space makes on the test NIC. Each takes its memory by the RDMA
 * core's functions, as the drivers of real NICs do, and carries no data.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>
#include <rdma/uverbs_std_types.h>

#include "testnic.h"

#define UVERBS_MODULE_NAME testnic
#include <rdma/uverbs_named_ioctl.h>

#define QP_BUFFERS 3
#define ENTRY 64 /* bytes of a CQ entry */

struct testnic_cq {
	struct ib_cq ibcq;
	struct ib_umem *umem;
};

struct testnic_qp {
	struct ib_qp ibqp;
	struct ib_umem *umem[QP_BUFFERS];
};

struct testnic_counter {
	struct ib_comp_cntr ibcc;
	struct ib_umem *comp;
	struct ib_umem *err;
};

struct testnic_mr {
	struct ib_mr ibmr;
	struct ib_umem_dmabuf *umem;
};

static atomic_t numbers;

static u32 number(void)
{
	return atomic_inc_return(&numbers);
}

/* umem: of ib_umem_get_attr() or ib_umem_get_cq_buf(), NULL without buffer. */
static void put_umem(struct ib_umem *umem)
{
	if (!IS_ERR_OR_NULL(umem))
		ib_umem_release(umem);
}

static int create_user_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
			  struct uverbs_attr_bundle *attrs)
{
	struct testnic_cq *cq = container_of(ibcq, struct testnic_cq, ibcq);

	cq->umem = ib_umem_get_cq_buf(ibcq->device, attrs, attr->cqe * ENTRY,
				      IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cq->umem))
		return PTR_ERR(cq->umem);
	ibcq->cqe = attr->cqe;
	return 0;
}

static int create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		     struct uverbs_attr_bundle *attrs)
{
	ibcq->cqe = attr->cqe;
	return 0;
}

static int destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	put_umem(container_of(ibcq, struct testnic_cq, ibcq)->umem);
	return 0;
}

static int create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		     struct ib_udata *udata)
{
	static const u16 ids[QP_BUFFERS] = {
		UVERBS_ATTR_CREATE_QP_BUF_UMEM,
		UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM,
		UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM,
	};
	struct testnic_qp *qp = container_of(ibqp, struct testnic_qp, ibqp);
	struct uverbs_attr_bundle *attrs;
	int i, ret;

	if (!udata)
		return -EOPNOTSUPP;
	attrs = rdma_udata_to_uverbs_attr_bundle(udata);
	for (i = 0; i < QP_BUFFERS; i++) {
		qp->umem[i] = ib_umem_get_attr(ibqp->device, attrs, ids[i], PAGE_SIZE,
					       IB_ACCESS_LOCAL_WRITE);
		if (IS_ERR(qp->umem[i]))
			goto err;
	}
	ibqp->qp_num = number();
	return 0;

err:
	ret = PTR_ERR(qp->umem[i]);
	while (--i >= 0)
		put_umem(qp->umem[i]);
	return ret;
}

static int modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct testnic_qp *qp = container_of(ibqp, struct testnic_qp, ibqp);
	int i;

	for (i = 0; i < QP_BUFFERS; i++)
		put_umem(qp->umem[i]);
	return 0;
}

static int create_comp_cntr(struct ib_comp_cntr *ibcc, struct uverbs_attr_bundle *attrs)
{
	struct testnic_counter *cc = container_of(ibcc, struct testnic_counter, ibcc);

	cc->comp = ib_umem_get_attr(ibcc->device, attrs, TESTNIC_COMP_BUFFER, sizeof(u64),
				    IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cc->comp))
		return PTR_ERR(cc->comp);
	cc->err = ib_umem_get_attr(ibcc->device, attrs, TESTNIC_ERR_BUFFER, sizeof(u64),
				   IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cc->err)) {
		put_umem(cc->comp);
		return PTR_ERR(cc->err);
	}
	return 0;
}

static int destroy_comp_cntr(struct ib_comp_cntr *ibcc)
{
	struct testnic_counter *cc = container_of(ibcc, struct testnic_counter, ibcc);

	put_umem(cc->comp);
	put_umem(cc->err);
	return 0;
}

static int qp_attach_comp_cntr(struct ib_qp *ibqp, struct ib_comp_cntr *ibcc,
			       struct ib_qp_attach_comp_cntr_attr *attr)
{
	return -EOPNOTSUPP;
}

static void invalidate(struct dma_buf_attachment *attach)
{
	ib_umem_dmabuf_unmap_pages(attach->importer_priv);
}

/* As mlx5: the buffer may move, and may be another device's memory. */
static const struct dma_buf_attach_ops mr_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = invalidate,
};

static struct ib_mr *reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova,
					int fd, int access, struct ib_dmah *dmah,
					struct uverbs_attr_bundle *attrs)
{
	struct testnic_mr *mr;
	int err;

	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->umem = ib_umem_dmabuf_get(pd->device, offset, length, fd, access, &mr_ops);
	if (IS_ERR(mr->umem)) {
		err = PTR_ERR(mr->umem);
		goto err_free;
	}
	dma_resv_lock(mr->umem->attach->dmabuf->resv, NULL);
	err = ib_umem_dmabuf_map_pages(mr->umem);
	dma_resv_unlock(mr->umem->attach->dmabuf->resv);
	if (err)
		goto err_release;
	mr->ibmr.lkey = number();
	mr->ibmr.rkey = mr->ibmr.lkey;
	mr->ibmr.length = length;
	mr->ibmr.iova = iova;
	return &mr->ibmr;

err_release:
	ib_umem_release(&mr->umem->umem);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

static struct ib_mr *reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				 struct ib_dmah *dmah, struct ib_udata *udata)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static int dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct testnic_mr *mr = container_of(ibmr, struct testnic_mr, ibmr);

	ib_umem_release(&mr->umem->umem);
	kfree(mr);
	return 0;
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(testnic_counter_create,
			     UVERBS_OBJECT_COMP_CNTR,
			     UVERBS_METHOD_COMP_CNTR_CREATE,
			     UVERBS_ATTR_UMEM(TESTNIC_COMP_BUFFER, UA_MANDATORY),
			     UVERBS_ATTR_UMEM(TESTNIC_ERR_BUFFER, UA_OPTIONAL));

const struct uapi_definition testnic_uapi[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_COMP_CNTR, &testnic_counter_create),
	{},
};

const struct ib_device_ops testnic_objects = {
	.create_comp_cntr = create_comp_cntr,
	.create_cq = create_cq,
	.create_qp = create_qp,
	.create_user_cq = create_user_cq,
	.dereg_mr = dereg_mr,
	.destroy_comp_cntr = destroy_comp_cntr,
	.destroy_cq = destroy_cq,
	.destroy_qp = destroy_qp,
	.modify_qp = modify_qp,
	.qp_attach_comp_cntr = qp_attach_comp_cntr,
	.reg_user_mr = reg_user_mr,
	.reg_user_mr_dmabuf = reg_user_mr_dmabuf,
	INIT_RDMA_OBJ_SIZE(ib_comp_cntr, testnic_counter, ibcc),
	INIT_RDMA_OBJ_SIZE(ib_cq, testnic_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_qp, testnic_qp, ibqp),
};
