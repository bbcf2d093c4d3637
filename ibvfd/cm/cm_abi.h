/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of librdmacm's binary interface that this package uses, declared
 * anew so that its headers are not needed to build. Names and layouts follow
 * <rdma/rdma_cma.h> with the prefix cm_ for rdma_; abi_test.go compares every
 * structure, offset and constant with it.
 */
#ifndef GPURDMA_CM_ABI_H
#define GPURDMA_CM_ABI_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#include "verbs_abi.h"

/* enum rdma_port_space */
enum { CM_PS_TCP = 0x0106 };

/* struct rdma_event_channel */
struct cm_event_channel {
	int fd;
};

/* struct rdma_addr: the package does not read InfiniBand's own addresses */
struct cm_addr {
	union {
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	union {
		uint8_t raw[40];
		uint64_t align[5];
	} addr;
};

/* struct rdma_route */
struct cm_route {
	struct cm_addr addr;
	void *path_rec;
	int num_paths;
};

/* struct rdma_cm_id, as far as it is read */
struct cm_id {
	struct vb_context *verbs; /* NULL until the id is bound to a device */
	struct cm_event_channel *channel;
	void *context;
	struct vb_qp *qp;
	struct cm_route route;
	int ps;
	uint8_t port_num;
};

/* struct rdma_conn_param */
struct cm_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

/* struct rdma_cm_event, as far as it is read: datagrams have another param */
struct cm_event {
	struct cm_id *id;
	struct cm_id *listen_id;
	int event;
	int status;
	union {
		struct cm_conn_param conn;
	} param;
};

#endif
