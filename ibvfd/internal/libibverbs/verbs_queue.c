// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_queue.h"

#include <errno.h>
#include <stdlib.h>

struct vb_send_queue *vb_send_queue_new(struct vb_qp *qp, vb_post_send_fn *post,
					uint32_t room, uint32_t sges)
{
	struct vb_send_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->post = post;
	q->qp = qp;
	q->room = room;
	q->sges = sges;
	q->wr = calloc(room, sizeof(*q->wr));
	q->sge = calloc((size_t)room * sges, sizeof(*q->sge));
	if (!q->wr || !q->sge) {
		vb_send_queue_free(q);
		return NULL;
	}
	for (uint32_t i = 0; i < room; i++) {
		q->wr[i].next = i + 1 < room ? &q->wr[i + 1] : NULL;
		q->wr[i].sg_list = &q->sge[(size_t)i * sges];
	}
	return q;
}

static struct vb_recv_queue *recv_queue_new(uint32_t room, uint32_t sges)
{
	struct vb_recv_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->room = room;
	q->sges = sges;
	q->wr = calloc(room, sizeof(*q->wr));
	q->sge = calloc((size_t)room * sges, sizeof(*q->sge));
	if (!q->wr || !q->sge) {
		vb_recv_queue_free(q);
		return NULL;
	}
	for (uint32_t i = 0; i < room; i++) {
		q->wr[i].next = i + 1 < room ? &q->wr[i + 1] : NULL;
		q->wr[i].sg_list = &q->sge[(size_t)i * sges];
	}
	return q;
}

struct vb_recv_queue *vb_recv_queue_new(struct vb_qp *qp, vb_post_recv_fn *post,
					uint32_t room, uint32_t sges)
{
	struct vb_recv_queue *q = recv_queue_new(room, sges);

	if (q) {
		q->post = post;
		q->qp = qp;
	}
	return q;
}

struct vb_recv_queue *vb_shared_queue_new(struct vb_srq *srq,
					  vb_post_srq_recv_fn *post,
					  uint32_t room, uint32_t sges)
{
	struct vb_recv_queue *q = recv_queue_new(room, sges);

	if (q) {
		q->post_srq = post;
		q->srq = srq;
	}
	return q;
}

struct vb_completion_queue *vb_completion_queue_new(struct vb_cq *cq,
						    vb_poll_cq_fn *poll,
						    uint32_t room)
{
	struct vb_completion_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->poll = poll;
	q->cq = cq;
	q->room = room;
	q->wc = calloc(room, sizeof(*q->wc));
	if (!q->wc) {
		free(q);
		return NULL;
	}
	return q;
}

void vb_send_queue_free(struct vb_send_queue *q)
{
	free(q->wr);
	free(q->sge);
	free(q);
}

void vb_recv_queue_free(struct vb_recv_queue *q)
{
	free(q->wr);
	free(q->sge);
	free(q);
}

void vb_completion_queue_free(struct vb_completion_queue *q)
{
	free(q->wc);
	free(q);
}

/* Providers return the errno, some negated, some as -1 with errno set. A -1
 * without errno is a refusal, too. */
static int32_t refusal(int rc)
{
	if (rc == -1 && errno)
		return errno;
	return rc < 0 ? -rc : rc;
}

/* Posts the work requests from first to end - 1. */
static struct vb_posted post_send(struct vb_send_queue *q, uint32_t first,
				  uint32_t end)
{
	struct vb_send_wr *bad = NULL, *last = &q->wr[end - 1], *next = last->next;
	struct vb_posted p = { .n = end };
	int rc;

	last->next = NULL;
	errno = 0;
	rc = q->post(q->qp, &q->wr[first], &bad);
	last->next = next;
	if (rc) {
		p.err = refusal(rc);
		p.n = bad ? (uint32_t)(bad - q->wr) : first;
	}
	return p;
}

/* ibv_post_send(3) knows neither of these: ibv_wr_post(3) does. */
static int one_by_one(int opcode)
{
	return opcode == VB_WR_ATOMIC_WRITE || opcode == VB_WR_FLUSH;
}

static struct vb_posted post_one(struct vb_send_queue *q, uint32_t at)
{
	const struct vb_send_wr *wr = &q->wr[at];
	struct vb_posted p = { .n = at + 1 };
	int rc;

	q->ex->wr_start(q->ex);
	q->ex->wr_id = wr->wr_id;
	q->ex->wr_flags = wr->send_flags;
	if (wr->opcode == VB_WR_FLUSH) /* operands: see encode() in queue.go */
		q->ex->wr_flush(q->ex, wr->wr.atomic.rkey,
				wr->wr.atomic.remote_addr,
				wr->wr.atomic.compare_add,
				(uint8_t)wr->wr.atomic.swap,
				wr->wr.atomic.compare_add ? VB_FLUSH_RANGE :
							    VB_FLUSH_MR);
	else
		q->ex->wr_atomic_write(q->ex, wr->wr.atomic.rkey,
				       wr->wr.atomic.remote_addr,
				       &wr->wr.atomic.compare_add);
	errno = 0;
	rc = q->ex->wr_complete(q->ex);
	if (rc) {
		p.err = refusal(rc);
		p.n = at;
	}
	return p;
}

struct vb_posted vb_post_send(uintptr_t send_queue, uint32_t n)
{
	struct vb_send_queue *q = (void *)send_queue;
	struct vb_posted p = { 0 };

	if (!q->ex)
		return post_send(q, 0, n);
	while (p.n < n && !p.err) {
		uint32_t end = p.n;

		while (end < n && !one_by_one(q->wr[end].opcode))
			end++;
		p = end > p.n ? post_send(q, p.n, end) : post_one(q, end);
	}
	return p;
}

struct vb_posted vb_post_recv(uintptr_t recv_queue, uint32_t n)
{
	struct vb_recv_queue *q = (void *)recv_queue;
	struct vb_recv_wr *bad = NULL, *last = &q->wr[n - 1], *next = last->next;
	struct vb_posted p = { .n = n };
	int rc;

	last->next = NULL;
	errno = 0;
	if (q->srq)
		rc = q->post_srq(q->srq, q->wr, &bad);
	else
		rc = q->post(q->qp, q->wr, &bad);
	last->next = next;
	if (rc) {
		p.err = refusal(rc);
		p.n = bad ? (uint32_t)(bad - q->wr) : 0;
	}
	return p;
}

int vb_poll(uintptr_t completion_queue, uint32_t n)
{
	struct vb_completion_queue *q = (void *)completion_queue;

	return q->poll(q->cq, (int)n, q->wc);
}
