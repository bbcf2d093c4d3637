// SPDX-License-Identifier: Apache-2.0
/* Bytes arrive where they belong and nowhere else. */
#include "selftest_internal.h"

#include <string.h>

static enum result whole_buffer(struct env *e)
{
	enum result r;
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	r = env_round_trip(e, &mr, 0, e->b.size);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

/* MRs that begin and end at any byte; each transfer moves a whole MR. */
static enum result unaligned_regions(struct env *e)
{
	const uint64_t p = e->page, size = e->b.size;
	const struct range cases[] = {
		{ .offset = 0, .length = 1 },
		{ .offset = size - 1, .length = 1 },
		{ .offset = 1, .length = 1 },
		{ .offset = p - 1, .length = 2 },
		{ .offset = p, .length = p },
		{ .offset = p + 123, .length = 3 * p + 77 },
		{ .offset = 3, .length = size - 3 },
		{ .offset = 0, .length = size - 5 },
		{ .offset = 2 * p - 7, .length = 14 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct range *c = &cases[i];
		enum result r;
		struct mr mr;

		CHECK_OK(e, "register", env_register(e, c->offset, c->length,
						     ACCESS_ALL, &mr));
		r = env_round_trip(e, &mr, c->offset, c->length);
		if (r != PASS)
			return r;
		CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	}
	return PASS;
}

/* One MR, transfers of any shape inside it. */
static enum result unaligned_transfers(struct env *e)
{
	const size_t p = e->page, size = e->b.size;
	const size_t cases[][2] = {
		{ 0, 1 }, { size - 1, 1 }, { p - 1, 1 }, { p, 1 }, { p - 1, 2 },
		{ p - 3, 7 }, { 5, 2 * p }, { p + 1, p - 1 }, { 7, size - 14 },
		{ 4 * p - 1, 4 * p + 2 },
	};
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, 0, size, ACCESS_ALL, &mr));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum result r = env_round_trip(e, &mr, cases[i][0], cases[i][1]);

		if (r != PASS)
			return r;
	}
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result refused_transfer(struct env *e, enum ibv_wr_opcode op,
				    struct place remote, size_t length,
				    const char *what)
{
	enum ibv_wc_status status;
	size_t bad = 0;
	bool same;

	CHECK_OK(e, "guard", env_guard(e));
	CHECK_OK(e, what, loopback_rdma(&e->lb, op, loopback_host(&e->lb, 0),
					remote, length, &status));
	CHECK(e, status == IBV_WC_REM_ACCESS_ERR, "%s: %s", what,
	      ibv_wc_status_str(status));
	CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));

	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	same = guard_intact(e->b.map, 0, e->b.size, &bad);
	CHECK(e, same, "%s changed byte %zu", what, bad);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	return PASS;
}

/* The MR is in the middle of the buffer: beside it is memory, but not the MR's. */
static enum result out_of_range(struct env *e)
{
	const size_t p = e->page, from = 2 * p + 16, length = 3 * p;
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	const size_t cases[][2] = {
		{ from - 1, 1 }, { from - 1, 2 }, { from + length, 1 },
		{ from + length - 1, 2 }, { from, length + 1 }, { 0, 8 },
	};
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, from, length, ACCESS_ALL, &mr));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t k = 0; k < 2; k++) {
			enum result r = refused_transfer(e, ops[k],
				env_remote(&mr, cases[i][0]), cases[i][1],
				k ? "read outside" : "write outside");

			if (r != PASS)
				return r;
		}
	}
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result rights(struct env *e)
{
	enum result r;
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, 0, e->page,
					     IBV_ACCESS_REMOTE_READ, &mr));
	r = refused_transfer(e, IBV_WR_RDMA_WRITE, env_remote(&mr, 0), 64,
			     "write to a read-only MR");
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));

	CHECK_OK(e, "register", env_register(e, 0, e->page,
					     IBV_ACCESS_LOCAL_WRITE |
					     IBV_ACCESS_REMOTE_WRITE, &mr));
	r = refused_transfer(e, IBV_WR_RDMA_READ, env_remote(&mr, 0), 64,
			     "read from a write-only MR");
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result stale_key(struct env *e)
{
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, 0, e->page, ACCESS_ALL, &mr));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return refused_transfer(e, IBV_WR_RDMA_WRITE, env_remote(&mr, 0), 64,
				"write with the key of a deregistered MR");
}

/* The MR at the requester's end: it is the source, then the sink. */
static enum result local_end(struct env *e)
{
	const size_t off = e->page - 9, length = 2 * e->page + 18;
	struct place host = loopback_host(&e->lb, 0), dmabuf;
	enum ibv_wc_status status;
	size_t bad = 0;
	struct mr mr;
	bool same;

	host.key = e->lb.host_mr->rkey;
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	dmabuf = (struct place){ .addr = IOVA_BASE + off, .key = mr.lkey };

	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	pattern_random(e->b.map + off, length);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	memset(e->lb.host, 0, length);
	CHECK_OK(e, "write", loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE, dmabuf,
					   host, length, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "write: %s", ibv_wc_status_str(status));
	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	same = bytes_equal(e->lb.host, e->b.map + off, length, &bad);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	CHECK(e, same, "write from the dma-buf: byte %zu differs", bad);

	CHECK_OK(e, "guard", env_guard(e));
	pattern_random(e->lb.host, length);
	CHECK_OK(e, "read", loopback_rdma(&e->lb, IBV_WR_RDMA_READ, dmabuf,
					  host, length, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "read: %s", ibv_wc_status_str(status));
	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	same = bytes_equal(e->b.map + off, e->lb.host, length, &bad) &&
	       guard_intact(e->b.map, 0, off, &bad) &&
	       guard_intact(e->b.map, off + length, e->b.size, &bad);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	CHECK(e, same, "read into the dma-buf: byte %zu", bad);

	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

/* A message lands in a receive buffer on the dma-buf. */
static enum result send_receive(struct env *e)
{
	const size_t off = 3 * e->page - 11, length = e->page + 30;
	struct ibv_sge to = { .addr = IOVA_BASE + off, .length = (uint32_t)length };
	struct ibv_sge from = {
		.addr = (uintptr_t)e->lb.host, .length = (uint32_t)length,
		.lkey = e->lb.host_mr->lkey,
	};
	struct ibv_recv_wr rwr = { .sg_list = &to, .num_sge = 1 }, *rbad;
	struct ibv_send_wr swr = {
		.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1,
	};
	enum ibv_wc_status status;
	size_t bad = 0;
	struct mr mr;
	bool same;

	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	CHECK_OK(e, "guard", env_guard(e));
	pattern_random(e->lb.host, length);
	to.lkey = mr.lkey;
	CHECK_OK(e, "post receive", ibv_post_recv(e->lb.resp, &rwr, &rbad));

	/* Both ends complete on the same CQ. */
	CHECK_OK(e, "send", loopback_post(&e->lb, e->lb.req, &swr, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(status));
	CHECK_OK(e, "receive", loopback_wait(&e->lb, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(status));

	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	same = bytes_equal(e->b.map + off, e->lb.host, length, &bad) &&
	       guard_intact(e->b.map, 0, off, &bad) &&
	       guard_intact(e->b.map, off + length, e->b.size, &bad);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	CHECK(e, same, "byte %zu", bad);
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

/* uverbs sets length and IOVA of no dma-buf MR: the driver has to. */
static enum result query(struct env *e)
{
	const uint64_t offset = e->page + 24, length = 2 * e->page + 1;
	struct mr mr, keys = { 0 };
	uint64_t seen_length = 0, seen_iova = 0;

	CHECK_OK(e, "register", env_register(e, offset, length, ACCESS_ALL, &mr));
	CHECK_OK(e, "query", mr_query(e->lb.ctx, &mr, &keys, &seen_length,
				      &seen_iova));
	CHECK(e, keys.lkey == mr.lkey && keys.rkey == mr.rkey, "other keys");
	CHECK(e, seen_length == length, "length %llu",
	      (unsigned long long)seen_length);
	CHECK(e, seen_iova == IOVA_BASE + offset, "iova %#llx",
	      (unsigned long long)seen_iova);
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

const struct test transfer_tests[] = {
	{ "whole-buffer", whole_buffer },
	{ "unaligned-regions", unaligned_regions },
	{ "unaligned-transfers", unaligned_transfers },
	{ "out-of-range", out_of_range },
	{ "rights", rights },
	{ "stale-key", stale_key },
	{ "local-end", local_end },
	{ "send-receive", send_receive },
	{ "query", query },
	{ 0 },
};
