/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls into librdmacm through addresses that were looked up at run time.
 * Every function returns 0 or an errno.
 */
#ifndef GPURDMA_CM_LIB_H
#define GPURDMA_CM_LIB_H

#include "cm_abi.h"

/* The library's functions. */
struct cm_lib {
	struct cm_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct cm_event_channel *);
	int (*create_id)(struct cm_event_channel *, struct cm_id **,
			 void *context, int ps);
	int (*destroy_id)(struct cm_id *);
	int (*migrate_id)(struct cm_id *, struct cm_event_channel *);
	int (*bind_addr)(struct cm_id *, struct sockaddr *);
	int (*resolve_addr)(struct cm_id *, struct sockaddr *src,
			    struct sockaddr *dst, int timeout_ms);
	int (*resolve_route)(struct cm_id *, int timeout_ms);
	int (*listen)(struct cm_id *, int backlog);
	int (*connect)(struct cm_id *, struct cm_conn_param *);
	int (*accept)(struct cm_id *, struct cm_conn_param *);
	int (*reject)(struct cm_id *, const void *private_data, uint8_t len);
	int (*establish)(struct cm_id *);
	int (*disconnect)(struct cm_id *);
	int (*init_qp_attr)(struct cm_id *, struct vb_qp_attr *, int *mask);
	int (*get_cm_event)(struct cm_event_channel *, struct cm_event **);
	int (*ack_cm_event)(struct cm_event *);
};

/* An IP address and a port. */
struct cm_ip {
	int family; /* 4, 6; 0: none */
	uint8_t ip[16]; /* in network byte order; the first 4 of family 4 */
	uint32_t scope; /* number of the interface */
	uint16_t port; /* in host byte order */
};

/* A copy of an event that has been acknowledged. */
struct cm_taken {
	struct cm_id *id;
	int event, status;
	uint8_t responder_resources, initiator_depth;
	uint8_t private_len;
	uint8_t private_data[255];
};

/* The channel's descriptor does not block. */
int cm_create_event_channel(const struct cm_lib *, struct cm_event_channel **);
void cm_destroy_event_channel(const struct cm_lib *, struct cm_event_channel *);
int cm_create_id(const struct cm_lib *, struct cm_event_channel *,
		 struct cm_id **);
int cm_destroy_id(const struct cm_lib *, struct cm_id *);
int cm_migrate_id(const struct cm_lib *, struct cm_id *,
		  struct cm_event_channel *);
int cm_bind_addr(const struct cm_lib *, struct cm_id *, const struct cm_ip *);
/* src may have family 0. */
int cm_resolve_addr(const struct cm_lib *, struct cm_id *,
		    const struct cm_ip *src, const struct cm_ip *dst,
		    int timeout_ms);
int cm_resolve_route(const struct cm_lib *, struct cm_id *, int timeout_ms);
int cm_listen(const struct cm_lib *, struct cm_id *, int backlog);
int cm_connect(const struct cm_lib *, struct cm_id *,
	       const struct cm_conn_param *, const void *private_data, uint8_t len);
int cm_accept(const struct cm_lib *, struct cm_id *,
	      const struct cm_conn_param *, const void *private_data, uint8_t len);
int cm_reject(const struct cm_lib *, struct cm_id *, const void *private_data,
	      uint8_t len);
int cm_establish(const struct cm_lib *, struct cm_id *);
int cm_disconnect(const struct cm_lib *, struct cm_id *);
/* Fills in the attributes that take a queue pair to state. */
int cm_init_qp_attr(const struct cm_lib *, struct cm_id *, int state,
		    struct vb_qp_attr *);
/* EAGAIN: there is no event. */
int cm_take_event(const struct cm_lib *, struct cm_event_channel *,
		  struct cm_taken *);
void cm_addrs(const struct cm_id *, struct cm_ip *src, struct cm_ip *dst);

#endif
