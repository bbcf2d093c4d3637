// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

#include <fcntl.h>

static int unblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return vb_failure();
	return 0;
}

int vb_create_comp_channel(const struct vb_lib *lib, struct vb_context *ctx,
			   struct vb_comp_channel **out)
{
	int err;

	errno = 0;
	*out = lib->create_comp_channel(ctx);
	if (!*out)
		return vb_failure();
	err = unblock((*out)->fd);
	if (err)
		lib->destroy_comp_channel(*out);
	return err;
}

int vb_destroy_comp_channel(const struct vb_lib *lib, struct vb_comp_channel *ch)
{
	errno = 0;
	return vb_status(lib->destroy_comp_channel(ch));
}

int vb_req_notify_cq(struct vb_cq *cq, int solicited_only)
{
	errno = 0;
	return vb_status(cq->context->ops.req_notify_cq(cq, solicited_only));
}

int vb_get_cq_event(const struct vb_lib *lib, struct vb_comp_channel *ch)
{
	struct vb_cq *cq;
	void *cq_context;

	errno = 0;
	return vb_status(lib->get_cq_event(ch, &cq, &cq_context));
}

void vb_ack_cq_events(const struct vb_lib *lib, struct vb_cq *cq, unsigned int n)
{
	lib->ack_cq_events(cq, n);
}

int vb_unblock_async(struct vb_context *ctx)
{
	return unblock(ctx->async_fd);
}

int vb_get_async_event(const struct vb_lib *lib, struct vb_context *ctx,
		       struct vb_async_event *event)
{
	errno = 0;
	return vb_status(lib->get_async_event(ctx, event));
}

void vb_ack_async_event(const struct vb_lib *lib, struct vb_async_event *event)
{
	lib->ack_async_event(event);
}
