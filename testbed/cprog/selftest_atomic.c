// SPDX-License-Identifier: Apache-2.0
/* Operations on 64 bits: FETCH ADD, COMPARE SWAP and ATOMIC WRITE. */
#include "selftest_internal.h"

#include <inttypes.h>
#include <string.h>

/* Not ibv_post_send(): that refuses a misaligned address by itself. */
static int atomic(struct env *e, enum ibv_wr_opcode op, struct place remote,
		  uint64_t compare_add, uint64_t swap, enum ibv_wc_status *status)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->lb.req);
	int err;

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		ibv_wr_atomic_fetch_add(qp, remote.key, remote.addr, compare_add);
	else
		ibv_wr_atomic_cmp_swp(qp, remote.key, remote.addr, compare_add, swap);
	ibv_wr_set_sge(qp, e->lb.host_mr->lkey, (uintptr_t)e->lb.host, 8);
	err = ibv_wr_complete(qp);
	return err ? err : loopback_wait(&e->lb, status);
}

static int peek(struct env *e, uint64_t offset, uint64_t *value)
{
	int err = buffer_begin_cpu(&e->b);

	if (err)
		return err;
	memcpy(value, e->b.map + offset, sizeof(*value));
	return buffer_end_cpu(&e->b);
}

static int poke(struct env *e, uint64_t offset, uint64_t value)
{
	int err = buffer_begin_cpu(&e->b);

	if (err)
		return err;
	memcpy(e->b.map + offset, &value, sizeof(value));
	return buffer_end_cpu(&e->b);
}

/* One operation at offset: what it returns and what it leaves. */
static enum result step(struct env *e, const char *what, enum ibv_wr_opcode op,
			const struct mr *mr, uint64_t offset, uint64_t before,
			uint64_t compare_add, uint64_t swap, uint64_t after)
{
	enum ibv_wc_status status;
	uint64_t old, now;

	CHECK_OK(e, "cpu access", poke(e, offset, before));
	CHECK_OK(e, what, atomic(e, op, env_remote(mr, offset), compare_add,
				 swap, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "%s: %s", what, ibv_wc_status_str(status));
	memcpy(&old, e->lb.host, sizeof(old));
	CHECK_OK(e, "cpu access", peek(e, offset, &now));
	CHECK(e, old == before, "%s returned %#" PRIx64, what, old);
	CHECK(e, now == after, "%s left %#" PRIx64, what, now);
	return PASS;
}

static enum result atomics(struct env *e)
{
	const uint64_t places[] = { 0, 8, e->page - 8, e->page, e->b.size - 8 };
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		enum result r;

		r = step(e, "fetch add", IBV_WR_ATOMIC_FETCH_AND_ADD, &mr, places[i],
			 0xffffffff00000005, 7, 0, 0xffffffff0000000c);
		if (r == PASS)
			r = step(e, "swap of an equal", IBV_WR_ATOMIC_CMP_AND_SWP,
				 &mr, places[i], 42, 42, 1ull << 63, 1ull << 63);
		if (r == PASS)
			r = step(e, "swap of another", IBV_WR_ATOMIC_CMP_AND_SWP,
				 &mr, places[i], 42, 43, 99, 42);
		if (r != PASS)
			return r;
	}
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result refused(struct env *e, const char *what, struct place remote,
			   enum ibv_wc_status want)
{
	enum ibv_wc_status status;
	size_t bad = 0;
	bool same;

	CHECK_OK(e, "guard", env_guard(e));
	CHECK_OK(e, what, atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, remote, 1, 0,
				 &status));
	CHECK(e, status == want, "%s: %s", what, ibv_wc_status_str(status));
	CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));
	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	same = guard_intact(e->b.map, 0, e->b.size, &bad);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	CHECK(e, same, "%s changed byte %zu", what, bad);
	return PASS;
}

static enum result bad_atomics(struct env *e)
{
	const uint64_t from = e->page, length = e->page + 4;
	enum result r;
	struct mr mr;

	CHECK_OK(e, "register", env_register(e, from, length, ACCESS_ALL, &mr));
	r = refused(e, "misaligned", env_remote(&mr, from + 4),
		    IBV_WC_REM_INV_REQ_ERR);
	if (r == PASS)
		r = refused(e, "half outside", env_remote(&mr, from + length - 4),
			    IBV_WC_REM_ACCESS_ERR);
	if (r == PASS)
		r = refused(e, "before the MR", env_remote(&mr, from - 8),
			    IBV_WC_REM_ACCESS_ERR);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));

	CHECK_OK(e, "register", env_register(e, 0, e->page,
					     ACCESS_ALL & ~IBV_ACCESS_REMOTE_ATOMIC,
					     &mr));
	r = refused(e, "no right to", env_remote(&mr, 0), IBV_WC_REM_ACCESS_ERR);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static int atomic_write(struct env *e, struct place remote, uint64_t value,
			enum ibv_wc_status *status)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->lb.req);
	int err;

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, remote.key, remote.addr, &value);
	err = ibv_wr_complete(qp);
	return err ? err : loopback_wait(&e->lb, status);
}

static enum result atomic_writes(struct env *e)
{
	const uint64_t places[] = { 0, e->page - 8, e->b.size - 8 };
	enum ibv_wc_status status;
	struct mr mr;
	size_t bad = 0;
	bool same;

	if (!e->lb.newer_ops)
		return result(e, ABSENT, "provider without ATOMIC WRITE");
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t want = 0x1122334455667788 + i, now;

		CHECK_OK(e, "guard", env_guard(e));
		CHECK_OK(e, "atomic write", atomic_write(e, env_remote(&mr, places[i]),
							 want, &status));
		if (i == 0 && status == IBV_WC_LOC_QP_OP_ERR)
			return result(e, ABSENT, "kernel without ATOMIC WRITE");
		CHECK(e, status == IBV_WC_SUCCESS, "atomic write: %s",
		      ibv_wc_status_str(status));
		CHECK_OK(e, "cpu access", peek(e, places[i], &now));
		CHECK(e, now == want, "atomic write left %#" PRIx64, now);
		CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
		same = guard_intact(e->b.map, 0, places[i], &bad) &&
		       guard_intact(e->b.map, places[i] + 8, e->b.size, &bad);
		CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
		CHECK(e, same, "atomic write changed byte %zu", bad);
	}

	CHECK_OK(e, "atomic write", atomic_write(e, env_remote(&mr, 4), 1, &status));
	CHECK(e, status == IBV_WC_REM_INV_REQ_ERR, "misaligned atomic write: %s",
	      ibv_wc_status_str(status));
	CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));
	CHECK_OK(e, "atomic write", atomic_write(e, env_remote(&mr, e->b.size), 1,
						 &status));
	CHECK(e, status == IBV_WC_REM_ACCESS_ERR, "atomic write outside: %s",
	      ibv_wc_status_str(status));
	CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

const struct test atomic_tests[] = {
	{ "atomics", atomics },
	{ "bad-atomics", bad_atomics },
	{ "atomic-writes", atomic_writes },
	{ 0 },
};
