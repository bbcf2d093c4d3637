// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
#define _GNU_SOURCE
#include "loopback.h"
#include "flush.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QP_DEPTH 64
#define WAIT_SECONDS 60

static int open_device(struct loopback *lb, const char *device)
{
	struct ibv_device **list;
	int n, err = ENODEV;

	list = ibv_get_device_list(&n);
	if (!list)
		return errno;
	for (int i = 0; i < n; i++) {
		if (device && strcmp(ibv_get_device_name(list[i]), device))
			continue;
		errno = 0;
		lb->ctx = ibv_open_device(list[i]);
		if (lb->ctx)
			err = 0;
		else
			err = errno ? errno : EIO;
		break;
	}
	ibv_free_device_list(list);
	return err;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static int choose_gid(struct loopback *lb, int index)
{
	struct ibv_gid_entry e;
	struct ibv_port_attr port;
	int found = -1;

	if (ibv_query_port(lb->ctx, lb->port, &port))
		return errno;
	lb->mtu = port.active_mtu;

	if (index >= 0) {
		if (ibv_query_gid_ex(lb->ctx, lb->port, (uint32_t)index, &e, 0))
			return errno;
		lb->gid_index = (uint8_t)index;
		lb->gid = e.gid;
		return 0;
	}
	for (int i = 0; i < port.gid_tbl_len && i < 256; i++) {
		bool v4;

		if (ibv_query_gid_ex(lb->ctx, lb->port, (uint32_t)i, &e, 0) ||
		    e.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		v4 = is_ipv4(&e.gid);
		if (found >= 0 && !v4)
			continue;
		found = i;
		lb->gid_index = (uint8_t)i;
		lb->gid = e.gid;
		if (v4)
			break;
	}
	return found < 0 ? EADDRNOTAVAIL : 0;
}

static struct ibv_qp *create_qp(struct loopback *lb)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_RC,
		.send_cq = lb->cq,
		.recv_cq = lb->cq,
		.pd = lb->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = {
			.max_send_wr = QP_DEPTH,
			.max_recv_wr = QP_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				  IBV_QP_EX_WITH_BIND_MW |
				  IBV_QP_EX_WITH_LOCAL_INV |
				  QP_EX_WITH_FLUSH |
				  IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(lb->ctx, &a);

	lb->newer_ops = qp != NULL;
	/* A provider without the newer operations may have all others. */
	if (!qp && (errno == EOPNOTSUPP || errno == EINVAL)) {
		a.send_ops_flags &= ~(uint64_t)(QP_EX_WITH_FLUSH |
						IBV_QP_EX_WITH_ATOMIC_WRITE);
		qp = ibv_create_qp_ex(lb->ctx, &a);
	}
	return qp;
}

static int connect_qp(struct loopback *lb, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = lb->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	int err;

	/* Only kernels that know these flags take them. */
	a.qp_access_flags |= ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT;
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err) {
		a.qp_access_flags &= ~(unsigned int)(ACCESS_FLUSH_GLOBAL |
						     ACCESS_FLUSH_PERSISTENT);
		err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	}
	if (err)
		return err;

	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = lb->mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = lb->port,
			.grh = {
				.dgid = lb->gid,
				.sgid_index = lb->gid_index,
				.hop_limit = 1,
			},
		},
	};
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return err;

	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		/*
		 * Two seconds: on a busy machine rxe answers late, and after a
		 * retry that was not needed it sometimes stops answering.
		 */
		.timeout = 19,
		.retry_cnt = 3,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void drop_pair(struct loopback *lb)
{
	if (lb->req)
		ibv_destroy_qp(lb->req);
	if (lb->resp)
		ibv_destroy_qp(lb->resp);
	lb->req = NULL;
	lb->resp = NULL;
	/* The new pair must not see completions of the old one. */
	for (struct ibv_wc wc; lb->cq && ibv_poll_cq(lb->cq, 1, &wc) > 0;)
		;
}

int loopback_reconnect(struct loopback *lb)
{
	int err;

	drop_pair(lb);
	lb->req = create_qp(lb);
	if (!lb->req)
		return errno;
	lb->resp = create_qp(lb);
	if (!lb->resp)
		return errno;
	err = connect_qp(lb, lb->req, lb->resp->qp_num);
	if (!err)
		err = connect_qp(lb, lb->resp, lb->req->qp_num);
	return err;
}

int loopback_open(struct loopback *lb, const char *device, uint8_t port,
		  int gid_index, size_t host_size, const char **stage)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int err;

	memset(lb, 0, sizeof(*lb));
	lb->port = port;

	*stage = "open-device";
	err = open_device(lb, device);
	if (err)
		return err;

	*stage = "choose-gid";
	err = choose_gid(lb, gid_index);
	if (err)
		goto fail;

	*stage = "alloc-pd";
	lb->pd = ibv_alloc_pd(lb->ctx);
	if (!lb->pd)
		goto fail_errno;

	*stage = "create-cq";
	lb->cq = ibv_create_cq(lb->ctx, 4 * QP_DEPTH, NULL, NULL, 0);
	if (!lb->cq)
		goto fail_errno;

	*stage = "host-memory";
	lb->host_size = (host_size + page - 1) / page * page;
	lb->host = aligned_alloc(page, lb->host_size);
	if (!lb->host) {
		err = ENOMEM;
		goto fail;
	}
	memset(lb->host, 0, lb->host_size);
	lb->host_mr = ibv_reg_mr(lb->pd, lb->host, lb->host_size,
				 IBV_ACCESS_LOCAL_WRITE |
				 IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_READ);
	if (!lb->host_mr)
		goto fail_errno;

	*stage = "connect";
	err = loopback_reconnect(lb);
	if (err)
		goto fail;
	return 0;

fail_errno:
	err = errno;
fail:
	loopback_close(lb);
	return err;
}

void loopback_close(struct loopback *lb)
{
	drop_pair(lb);
	if (lb->host_mr)
		ibv_dereg_mr(lb->host_mr);
	free(lb->host);
	if (lb->cq)
		ibv_destroy_cq(lb->cq);
	if (lb->pd)
		ibv_dealloc_pd(lb->pd);
	if (lb->ctx)
		ibv_close_device(lb->ctx);
	memset(lb, 0, sizeof(*lb));
}

struct place loopback_host(const struct loopback *lb, size_t offset)
{
	return (struct place){
		.addr = (uintptr_t)lb->host + offset, .key = lb->host_mr->lkey,
	};
}

static time_t seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

int loopback_wait(struct loopback *lb, enum ibv_wc_status *status)
{
	time_t end = seconds() + WAIT_SECONDS;
	struct ibv_wc wc;
	unsigned int empty = 0;
	int n;

	for (;;) {
		n = ibv_poll_cq(lb->cq, 1, &wc);
		if (n < 0)
			return EIO;
		if (n > 0) {
			*status = wc.status;
			return 0;
		}
		/* rxe may need this processor, if it is the only one. */
		if (++empty % 64 == 0)
			sched_yield();
		if (seconds() > end)
			return ETIMEDOUT;
	}
}

int loopback_post(struct loopback *lb, struct ibv_qp *qp,
		  struct ibv_send_wr *wr, enum ibv_wc_status *status)
{
	struct ibv_send_wr *bad;
	int err;

	wr->send_flags |= IBV_SEND_SIGNALED;
	err = ibv_post_send(qp, wr, &bad);
	return err ? err : loopback_wait(lb, status);
}

int loopback_rdma(struct loopback *lb, enum ibv_wr_opcode op,
		  struct place local, struct place remote, size_t length,
		  enum ibv_wc_status *status)
{
	*status = IBV_WC_SUCCESS;
	for (size_t done = 0; done < length && *status == IBV_WC_SUCCESS;) {
		size_t left = length - done;
		struct ibv_sge sge = {
			.addr = local.addr + done,
			.length = left < LOOPBACK_MAX_MSG ? (uint32_t)left :
							    LOOPBACK_MAX_MSG,
			.lkey = local.key,
		};
		struct ibv_send_wr wr = {
			.opcode = op,
			.sg_list = &sge,
			.num_sge = 1,
			.wr.rdma.remote_addr = remote.addr + done,
			.wr.rdma.rkey = remote.key,
		};
		int err = loopback_post(lb, lb->req, &wr, status);

		if (err)
			return err;
		done += sge.length;
	}
	return 0;
}
