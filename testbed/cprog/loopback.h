/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Two RC queue pairs on one port, connected to each other. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* Largest piece of a transfer that goes into one work request. */
#define LOOPBACK_MAX_MSG (1u << 20)

struct loopback {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *req;	/* posts */
	struct ibv_qp *resp;	/* answers */
	uint8_t port;
	uint8_t gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu;
	bool newer_ops;		/* the pair can post ATOMIC WRITE and FLUSH */

	/* host memory for the other end of transfers */
	uint8_t *host;
	size_t host_size;
	struct ibv_mr *host_mr;
};

/* A place in registered memory, local or remote. */
struct place {
	uint64_t addr;
	uint32_t key;
};

/*
 * device NULL is the first one that there is. gid_index < 0 picks the first RoCE v2
 * entry of the table that has an IPv4 address, or else the first RoCE v2 entry.
 * Returns 0 or an errno with the failed step in *stage.
 */
int loopback_open(struct loopback *lb, const char *device, uint8_t port,
		  int gid_index, size_t host_size, const char **stage);
void loopback_close(struct loopback *lb);

/*
 * Makes and connects the pair anew. Needed after each error completion, which
 * leaves a queue pair in the error state.
 */
int loopback_reconnect(struct loopback *lb);

/*
 * loopback_post() posts one signalled request to one end and waits for a
 * completion; loopback_wait() only waits. Both return 0 or an errno, and how the
 * request ended in *status. After a minute without a completion it is ETIMEDOUT.
 */
int loopback_post(struct loopback *lb, struct ibv_qp *qp,
		  struct ibv_send_wr *wr, enum ibv_wc_status *status);
int loopback_wait(struct loopback *lb, enum ibv_wc_status *status);

/* RDMA WRITE or READ of up to 4 GiB in pieces of LOOPBACK_MAX_MSG. */
int loopback_rdma(struct loopback *lb, enum ibv_wr_opcode op,
		  struct place local, struct place remote, size_t length,
		  enum ibv_wc_status *status);

/* The place at an offset of the host memory. */
struct place loopback_host(const struct loopback *lb, size_t offset);

#endif
