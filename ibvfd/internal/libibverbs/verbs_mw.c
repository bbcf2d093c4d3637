// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

/* verbs.h has these three as inline functions around the provider's own. */

int vb_alloc_mw(struct vb_pd *pd, int type, struct vb_mw **out)
{
	struct vb_mw *mw;

	if (!pd->context->ops.alloc_mw)
		return EOPNOTSUPP;
	errno = 0;
	mw = pd->context->ops.alloc_mw(pd, type);
	if (!mw)
		return vb_failure();
	*out = mw;
	return 0;
}

int vb_dealloc_mw(struct vb_mw *mw)
{
	errno = 0;
	return vb_status(mw->context->ops.dealloc_mw(mw));
}

/* The owner chooses the low byte of a window's key; the rest is its number. */
static uint32_t next_key(uint32_t rkey)
{
	return (rkey & ~0xffu) | ((rkey + 1) & 0xff);
}

int vb_bind_mw(struct vb_qp *qp, struct vb_mw *mw, struct vb_mw_bind *bind)
{
	struct vb_send_wr wr = { 0 }, *bad;
	int err;

	errno = 0;
	if (mw->type == VB_MW_TYPE_1) { /* the provider chooses the key */
		if (!mw->context->ops.bind_mw)
			return EOPNOTSUPP;
		return vb_status(mw->context->ops.bind_mw(qp, mw, bind));
	}
	wr.wr_id = bind->wr_id;
	wr.opcode = VB_WR_BIND_MW;
	wr.send_flags = bind->send_flags;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = next_key(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	err = vb_status(qp->context->ops.post_send(qp, &wr, &bad));
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}
