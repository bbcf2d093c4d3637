// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

#include <errno.h>

/* As verbs_get_ctx(): the context of a library that has only the first version
 * of the interface is in no struct verbs_context. */
static struct vb_verbs_context *extended(struct vb_context *ctx)
{
	struct vb_verbs_context *v;

	if (ctx->abi_compat != (void *)UINTPTR_MAX)
		return NULL;
	v = (void *)((char *)ctx - offsetof(struct vb_verbs_context, context));
	return v->sz < sizeof(*v) ? NULL : v;
}

/* Asks the device for the operations, because a provider creates the queue pair
 * even if the kernel's driver does not know them. */
static int has(struct vb_verbs_context *v, uint64_t ops)
{
	struct vb_device_attr_ex a = { 0 };

	if (!v->query_device_ex ||
	    v->query_device_ex(&v->context, NULL, &a, sizeof(a)))
		return 0;
	if (ops & VB_QP_EX_WITH_ATOMIC_WRITE &&
	    !(a.device_cap_flags_ex & VB_DEVICE_ATOMIC_WRITE))
		return 0;
	/* one placement is enough: a later request for the other is refused */
	return !(ops & VB_QP_EX_WITH_FLUSH) ||
	       a.device_cap_flags_ex &
		       (VB_DEVICE_FLUSH_GLOBAL | VB_DEVICE_FLUSH_PERSISTENT);
}

/* A provider that is too old for an operation refuses to create the queue pair.
 * One that created it has the operation's member, which posts() may read. */
static int posts(const struct vb_qp_ex *ex, uint64_t ops)
{
	return ex &&
	       (!(ops & VB_QP_EX_WITH_ATOMIC_WRITE) || ex->wr_atomic_write) &&
	       (!(ops & VB_QP_EX_WITH_FLUSH) || ex->wr_flush);
}

int vb_create_qp_ex(const struct vb_lib *lib, struct vb_pd *pd,
		    struct vb_qp_init_attr *attr, uint64_t ops,
		    struct vb_qp **out, struct vb_qp_ex **ex)
{
	struct vb_verbs_context *v = extended(pd->context);
	struct vb_qp_init_attr_ex a = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = VB_QP_INIT_ATTR_PD | VB_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = VB_QP_EX_WITH_CLASSIC | ops,
	};

	if (!v || !v->create_qp_ex || !lib->qp_to_qp_ex || !has(v, ops))
		return EOPNOTSUPP;
	errno = 0;
	*out = v->create_qp_ex(pd->context, &a);
	if (!*out)
		return vb_failure();
	*ex = lib->qp_to_qp_ex(*out);
	if (!posts(*ex, ops)) {
		lib->destroy_qp(*out);
		return EOPNOTSUPP;
	}
	attr->cap = a.cap;
	return 0;
}
