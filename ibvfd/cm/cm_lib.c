// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "cm_lib.h"
#include "verbs_status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

int cm_create_event_channel(const struct cm_lib *lib,
			    struct cm_event_channel **out)
{
	int flags, err;

	errno = 0;
	*out = lib->create_event_channel();
	if (!*out)
		return vb_failure();
	flags = fcntl((*out)->fd, F_GETFL);
	if (flags >= 0 && !fcntl((*out)->fd, F_SETFL, flags | O_NONBLOCK))
		return 0;
	err = vb_failure();
	lib->destroy_event_channel(*out);
	return err;
}

void cm_destroy_event_channel(const struct cm_lib *lib,
			      struct cm_event_channel *channel)
{
	lib->destroy_event_channel(channel);
}

int cm_create_id(const struct cm_lib *lib, struct cm_event_channel *channel,
		 struct cm_id **out)
{
	errno = 0;
	return vb_status(lib->create_id(channel, out, NULL, CM_PS_TCP));
}

int cm_destroy_id(const struct cm_lib *lib, struct cm_id *id)
{
	errno = 0;
	return vb_status(lib->destroy_id(id));
}

int cm_migrate_id(const struct cm_lib *lib, struct cm_id *id,
		  struct cm_event_channel *channel)
{
	errno = 0;
	return vb_status(lib->migrate_id(id, channel));
}

/* to_sockaddr returns NULL for no address. */
static struct sockaddr *to_sockaddr(const struct cm_ip *ip,
				    struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	switch (ip->family) {
	case 4:
		in->sin_family = AF_INET;
		in->sin_port = htons(ip->port);
		memcpy(&in->sin_addr, ip->ip, 4);
		return (struct sockaddr *)ss;
	case 6:
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(ip->port);
		in6->sin6_scope_id = ip->scope;
		memcpy(&in6->sin6_addr, ip->ip, 16);
		return (struct sockaddr *)ss;
	}
	return NULL;
}

static void from_sockaddr(const struct sockaddr_storage *ss, struct cm_ip *ip)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;

	memset(ip, 0, sizeof(*ip));
	switch (ss->ss_family) {
	case AF_INET:
		ip->family = 4;
		ip->port = ntohs(in->sin_port);
		memcpy(ip->ip, &in->sin_addr, 4);
		break;
	case AF_INET6:
		ip->family = 6;
		ip->port = ntohs(in6->sin6_port);
		ip->scope = in6->sin6_scope_id;
		memcpy(ip->ip, &in6->sin6_addr, 16);
		break;
	}
}

int cm_bind_addr(const struct cm_lib *lib, struct cm_id *id,
		 const struct cm_ip *ip)
{
	struct sockaddr_storage ss;

	errno = 0;
	return vb_status(lib->bind_addr(id, to_sockaddr(ip, &ss)));
}

int cm_resolve_addr(const struct cm_lib *lib, struct cm_id *id,
		    const struct cm_ip *src, const struct cm_ip *dst,
		    int timeout_ms)
{
	struct sockaddr_storage from, to;

	errno = 0;
	return vb_status(lib->resolve_addr(id, to_sockaddr(src, &from),
					   to_sockaddr(dst, &to), timeout_ms));
}

int cm_resolve_route(const struct cm_lib *lib, struct cm_id *id, int timeout_ms)
{
	errno = 0;
	return vb_status(lib->resolve_route(id, timeout_ms));
}

int cm_listen(const struct cm_lib *lib, struct cm_id *id, int backlog)
{
	errno = 0;
	return vb_status(lib->listen(id, backlog));
}

int cm_connect(const struct cm_lib *lib, struct cm_id *id,
	       const struct cm_conn_param *p, const void *private_data, uint8_t len)
{
	struct cm_conn_param with = *p;

	with.private_data = private_data;
	with.private_data_len = len;
	errno = 0;
	return vb_status(lib->connect(id, &with));
}

int cm_accept(const struct cm_lib *lib, struct cm_id *id,
	      const struct cm_conn_param *p, const void *private_data, uint8_t len)
{
	struct cm_conn_param with = *p;

	with.private_data = private_data;
	with.private_data_len = len;
	errno = 0;
	return vb_status(lib->accept(id, &with));
}

int cm_reject(const struct cm_lib *lib, struct cm_id *id,
	      const void *private_data, uint8_t len)
{
	errno = 0;
	return vb_status(lib->reject(id, private_data, len));
}

int cm_establish(const struct cm_lib *lib, struct cm_id *id)
{
	errno = 0;
	return vb_status(lib->establish(id));
}

int cm_disconnect(const struct cm_lib *lib, struct cm_id *id)
{
	errno = 0;
	return vb_status(lib->disconnect(id));
}

int cm_init_qp_attr(const struct cm_lib *lib, struct cm_id *id, int state,
		    struct vb_qp_attr *attr)
{
	int mask = 0;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	errno = 0;
	return vb_status(lib->init_qp_attr(id, attr, &mask));
}

int cm_take_event(const struct cm_lib *lib, struct cm_event_channel *channel,
		  struct cm_taken *out)
{
	struct cm_event *e;
	int err;

	errno = 0;
	err = vb_status(lib->get_cm_event(channel, &e));
	if (err)
		return err;
	memset(out, 0, sizeof(*out));
	out->id = e->id;
	out->event = e->event;
	out->status = e->status;
	/* The library's own steps on an event fail with -1 and errno. */
	if (e->status == -1 && errno)
		out->status = -errno;
	/* param.conn is for all but datagrams, of which no id is here: cm_create_id(). */
	out->responder_resources = e->param.conn.responder_resources;
	out->initiator_depth = e->param.conn.initiator_depth;
	if (e->param.conn.private_data) {
		out->private_len = e->param.conn.private_data_len;
		memcpy(out->private_data, e->param.conn.private_data,
		       out->private_len);
	}
	lib->ack_cm_event(e);
	return 0;
}

void cm_addrs(const struct cm_id *id, struct cm_ip *src, struct cm_ip *dst)
{
	from_sockaddr(&id->route.addr.src_storage, src);
	from_sockaddr(&id->route.addr.dst_storage, dst);
}
