/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting and polling in batches. The arrays are allocated once and filled and
 * read by Go; C sees no Go memory. The functions are pointers so that a test
 * or a benchmark can put others in their place.
 */
#ifndef GPURDMA_VERBS_QUEUE_H
#define GPURDMA_VERBS_QUEUE_H

#include "verbs_abi.h"

struct vb_send_queue {
	vb_post_send_fn *post;
	struct vb_qp *qp;
	struct vb_qp_ex *ex;	/* of qp, for ibv_wr_post(3); NULL without */
	uint32_t room;		/* work requests in the array */
	uint32_t sges;		/* of one work request */
	struct vb_send_wr *wr;	/* chained by next for the queue's life */
	struct vb_sge *sge;	/* room * sges */
};

/* Of a queue pair (post and qp are set), or of an SRQ (post_srq and srq are). */
struct vb_recv_queue {
	vb_post_recv_fn *post;
	struct vb_qp *qp;
	vb_post_srq_recv_fn *post_srq;
	struct vb_srq *srq;
	uint32_t room;
	uint32_t sges;
	struct vb_recv_wr *wr;
	struct vb_sge *sge;
};

struct vb_completion_queue {
	vb_poll_cq_fn *poll;
	struct vb_cq *cq;
	uint32_t room;
	struct vb_wc *wc;
};

struct vb_posted {
	uint32_t n;	/* taken by the provider */
	int32_t err;	/* the errno with which the provider refused wr[n], or 0 */
};

struct vb_send_queue *vb_send_queue_new(struct vb_qp *, vb_post_send_fn *,
					uint32_t room, uint32_t sges);
struct vb_recv_queue *vb_recv_queue_new(struct vb_qp *, vb_post_recv_fn *,
					uint32_t room, uint32_t sges);
struct vb_recv_queue *vb_shared_queue_new(struct vb_srq *,
					  vb_post_srq_recv_fn *, uint32_t room,
					  uint32_t sges);
struct vb_completion_queue *vb_completion_queue_new(struct vb_cq *,
						    vb_poll_cq_fn *,
						    uint32_t room);
void vb_send_queue_free(struct vb_send_queue *);
void vb_recv_queue_free(struct vb_recv_queue *);
void vb_completion_queue_free(struct vb_completion_queue *);

/*
 * Post the first n work requests of the array. The queues' addresses are numbers, because
 * cgo checks each pointer that a call passes, and these lead to C's memory only.
 */
struct vb_posted vb_post_send(uintptr_t send_queue, uint32_t n);
struct vb_posted vb_post_recv(uintptr_t recv_queue, uint32_t n);
/* Fill the array with up to n completions; return how many, negative on failure. */
int vb_poll(uintptr_t completion_queue, uint32_t n);

#endif
