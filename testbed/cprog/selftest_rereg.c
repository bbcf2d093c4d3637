// SPDX-License-Identifier: Apache-2.0
/* Re-registration, and what needs its rights: memory windows and FLUSH. */
#include "selftest_internal.h"
#include "flush.h"

#include <errno.h>
#include <string.h>

/* rereg_mr came to rxe after 6.1, and refuses dma-bufs from 7.3 on. */
static bool no_rereg(int err)
{
	return err == EOPNOTSUPP;
}

static int set_access(struct env *e, struct mr *mr, unsigned int access)
{
	return mr_reregister(e->lb.ctx, mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
			     NULL, access);
}

static enum result expect_write(struct env *e, struct place remote,
				enum ibv_wc_status want, const char *what)
{
	enum ibv_wc_status status;

	CHECK_OK(e, what, loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE,
					loopback_host(&e->lb, 0), remote, 64,
					&status));
	CHECK(e, status == want, "write %s: %s", what, ibv_wc_status_str(status));
	if (status != IBV_WC_SUCCESS)
		CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));
	return PASS;
}

static enum result rereg_access(struct env *e)
{
	enum result r;
	struct mr mr;
	int err;

	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	err = set_access(e, &mr, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	if (no_rereg(err))
		return result(e, ABSENT, "driver without rereg_mr");
	CHECK_OK(e, "drop the right to write", err);
	r = expect_write(e, env_remote(&mr, 0), IBV_WC_REM_ACCESS_ERR,
			 "without the right");
	if (r != PASS)
		return r;
	CHECK_OK(e, "give it back", set_access(e, &mr, ACCESS_ALL));
	r = env_round_trip(e, &mr, 0, e->b.size);
	if (r != PASS)
		return r;

	err = set_access(e, &mr, ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(e, err == EOPNOTSUPP, "on demand: %s", errname(err));
	err = set_access(e, &mr, ACCESS_ALL | ACCESS_FLUSH_PERSISTENT);
	CHECK(e, err == EOPNOTSUPP, "flush persistent: %s", errname(err));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));

	/* Re-registration cannot make a read-only MR writable. */
	CHECK_OK(e, "register", env_register(e, 0, e->b.size,
					     IBV_ACCESS_REMOTE_READ, &mr));
	err = set_access(e, &mr, ACCESS_ALL);
	CHECK(e, err == EACCES, "read-only to writable: %s", errname(err));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result rereg_pd(struct env *e)
{
	struct ibv_pd *other = ibv_alloc_pd(e->lb.ctx);
	enum result r;
	struct mr mr;
	int err;

	CHECK(e, other, "alloc_pd: %s", errname(errno));
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	err = mr_reregister(e->lb.ctx, &mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0);
	if (no_rereg(err)) {
		CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
		ibv_dealloc_pd(other);
		return result(e, ABSENT, "driver without rereg_mr");
	}
	CHECK_OK(e, "to another PD", err);
	r = expect_write(e, env_remote(&mr, 0), IBV_WC_REM_ACCESS_ERR,
			 "from a foreign PD");
	if (r != PASS)
		return r;
	err = ibv_dealloc_pd(other);
	CHECK(e, err == EBUSY, "freeing the MR's PD: %s", errname(err));
	CHECK_OK(e, "back", mr_reregister(e->lb.ctx, &mr, IBV_REREG_MR_CHANGE_PD,
					  e->lb.pd, NULL, 0));
	r = env_round_trip(e, &mr, 0, e->b.size);
	if (r != PASS)
		return r;
	CHECK_OK(e, "dealloc_pd", ibv_dealloc_pd(other));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

/* The call has an address and no dma-buf: the driver must refuse a new range. */
static enum result rereg_translation(struct env *e)
{
	struct range to = { .length = e->page };
	enum result r;
	struct mr mr;
	int err;

	to.iova = (uintptr_t)e->lb.host;
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	err = mr_reregister(e->lb.ctx, &mr, IBV_REREG_MR_CHANGE_TRANSLATION,
			    NULL, &to, 0);
	CHECK(e, err == EOPNOTSUPP, "change of translation: %s", errname(err));
	r = env_round_trip(e, &mr, 0, e->b.size);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

/* Moves the MR to the buffer's second half and back, under the same keys. */
static enum result rereg_in_place(struct env *e)
{
	const uint64_t half = e->b.size / 2 / e->page * e->page;
	struct range to = { .offset = half, .length = half, .iova = IOVA_BASE + half };
	struct mr mr, keys;
	enum result r;
	uint64_t length, iova;
	int err;

	CHECK_OK(e, "register", env_register(e, 0, half, ACCESS_ALL, &mr));
	err = mr_move(e->lb.ctx, &mr, e->b.fd, &to);
	if (err == EPROTONOSUPPORT || err == EOPNOTSUPP) {
		CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
		return result(e, ABSENT, "kernel without kernel/patches/rdma-rereg");
	}
	CHECK_OK(e, "to the second half", err);
	CHECK_OK(e, "query", mr_query(e->lb.ctx, &mr, &keys, &length, &iova));
	CHECK(e, keys.lkey == mr.lkey && keys.rkey == mr.rkey && length == half &&
	      iova == to.iova, "keys %#x %#x, %#llx bytes at %#llx", keys.lkey, keys.rkey,
	      (unsigned long long)length, (unsigned long long)iova);
	r = env_round_trip(e, &mr, half, half);
	if (r != PASS)
		return r;
	to.offset = 0;
	to.iova = IOVA_BASE;
	CHECK_OK(e, "back", mr_move(e->lb.ctx, &mr, e->b.fd, &to));
	r = env_round_trip(e, &mr, 0, half);
	if (r != PASS)
		return r;
	to.length = e->b.size + 1;
	err = mr_move(e->lb.ctx, &mr, e->b.fd, &to);
	CHECK(e, err == EINVAL, "past the end: %s", errname(err));
	err = mr_move(e->lb.ctx, &mr, -1, &to);
	CHECK(e, err == EBADF || err == EINVAL, "without a descriptor: %s", errname(err));
	r = env_round_trip(e, &mr, 0, half);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

/*
 * Binds the window to length bytes of the buffer from offset on; *rkey is its
 * new key. A window of type 2 serves only the queue pair that bound it, and
 * requests arrive at the responder, so the responder binds.
 */
static int bind(struct env *e, const struct mr *mr, uint64_t offset,
		uint64_t length, unsigned int access, uint32_t *rkey,
		enum ibv_wc_status *status)
{
	/* The provider passes on no more of an MR than its key. */
	struct ibv_mr ibmr = {
		.context = e->lb.ctx, .pd = e->lb.pd, .handle = mr->handle,
		.lkey = mr->lkey, .rkey = mr->rkey,
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {
			.mw = e->mw,
			.rkey = ibv_inc_rkey(e->mw->rkey),
			.bind_info = {
				.mr = &ibmr,
				.addr = IOVA_BASE + offset,
				.length = length,
				.mw_access_flags = access,
			},
		},
	};
	int err = loopback_post(&e->lb, e->lb.resp, &wr, status);

	*rkey = wr.bind_mw.rkey;
	return err;
}

/* rxe completes a refused bind with its own error, or as flushed. */
static bool bind_refused(enum ibv_wc_status status)
{
	return status == IBV_WC_MW_BIND_ERR || status == IBV_WC_WR_FLUSH_ERR;
}

static int new_window(struct env *e)
{
	e->mw = ibv_alloc_mw(e->lb.pd, IBV_MW_TYPE_2);
	return e->mw ? 0 : errno;
}

static int free_window(struct env *e)
{
	int err = ibv_dealloc_mw(e->mw);

	e->mw = NULL;
	return err;
}

/* A registration cannot ask for the right to bind windows. */
static enum result window_without_right(struct env *e)
{
	enum ibv_wc_status status;
	uint32_t rkey;
	struct mr mr;

	CHECK_OK(e, "alloc_mw", new_window(e));
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	CHECK_OK(e, "bind", bind(e, &mr, 0, e->page, IBV_ACCESS_REMOTE_WRITE,
				 &rkey, &status));
	CHECK(e, bind_refused(status), "bind: %s", ibv_wc_status_str(status));
	CHECK_OK(e, "dealloc_mw", free_window(e));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result window(struct env *e)
{
	const uint64_t mr_from = e->page, mr_length = e->b.size - e->page;
	const uint64_t from = 3 * e->page - 16, length = e->page + 32;
	enum ibv_wc_status status;
	struct mr mr, win;
	enum result r;
	int err;

	CHECK_OK(e, "register", env_register(e, mr_from, mr_length, ACCESS_ALL, &mr));
	err = set_access(e, &mr, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	if (no_rereg(err))
		return result(e, ABSENT, "driver without rereg_mr, nothing else gives the right to bind");
	CHECK_OK(e, "give the right to bind", err);

	CHECK_OK(e, "alloc_mw", new_window(e));
	win = mr;
	CHECK_OK(e, "bind", bind(e, &mr, from, length,
				 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
				 &win.rkey, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "bind: %s", ibv_wc_status_str(status));

	r = env_round_trip(e, &win, from, length);
	if (r != PASS)
		return r;

	err = mr_deregister(e->lb.ctx, &mr);
	CHECK(e, err == EINVAL, "deregistration of a bound MR: %s", errname(err));
	err = mr_move(e->lb.ctx, &mr, e->b.fd,
		      &(struct range){ .offset = mr_from, .length = mr_length, .iova = IOVA_BASE + mr_from });
	CHECK(e, err == EBUSY || err == EPROTONOSUPPORT || err == EOPNOTSUPP,
	      "re-registration of a bound MR: %s", errname(err));
	r = env_round_trip(e, &mr, mr_from, mr_length);
	if (r != PASS)
		return r;

	/*
	 * In front of the MR, not only of the window: rxe never checks the
	 * range of a window, on any memory.
	 */
	CHECK_OK(e, "write", loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE,
					   loopback_host(&e->lb, 0),
					   env_remote(&win, mr_from - 1), 64, &status));
	CHECK(e, status == IBV_WC_REM_ACCESS_ERR,
	      "write in front of the MR by a window: %s",
	      ibv_wc_status_str(status));

	CHECK_OK(e, "dealloc_mw", free_window(e));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

static enum result window_outside(struct env *e)
{
	enum ibv_wc_status status;
	uint32_t rkey;
	struct mr mr;
	int err;

	CHECK_OK(e, "register", env_register(e, e->page, e->page, ACCESS_ALL, &mr));
	err = set_access(e, &mr, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	if (no_rereg(err))
		return result(e, ABSENT, "driver without rereg_mr, nothing else gives the right to bind");
	CHECK_OK(e, "give the right to bind", err);
	CHECK_OK(e, "alloc_mw", new_window(e));
	CHECK_OK(e, "bind", bind(e, &mr, e->page + 1, e->page,
				 IBV_ACCESS_REMOTE_WRITE, &rkey, &status));
	CHECK(e, bind_refused(status), "bind past the end: %s",
	      ibv_wc_status_str(status));
	CHECK_OK(e, "dealloc_mw", free_window(e));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

#if HAVE_FLUSH
static int flush(struct env *e, struct place remote, size_t length,
		 uint8_t placement, uint8_t level, enum ibv_wc_status *status)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->lb.req);
	int err;

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(qp, remote.key, remote.addr, length, placement, level);
	err = ibv_wr_complete(qp);
	return err ? err : loopback_wait(&e->lb, status);
}

static enum result flushes(struct env *e)
{
	enum ibv_wc_status status;
	struct mr mr, win;
	int err;

	if (!e->lb.newer_ops)
		return result(e, ABSENT, "provider without FLUSH");
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	err = set_access(e, &mr, ACCESS_ALL | IBV_ACCESS_MW_BIND |
			 ACCESS_FLUSH_GLOBAL);
	if (no_rereg(err))
		return result(e, ABSENT, "driver without rereg_mr, nothing else gives the right to flush");
	CHECK_OK(e, "give the right to flush", err);

	CHECK_OK(e, "flush", flush(e, env_remote(&mr, 5), e->page, IBV_FLUSH_GLOBAL,
				   IBV_FLUSH_RANGE, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "global flush of a range: %s",
	      ibv_wc_status_str(status));
	CHECK_OK(e, "flush", flush(e, env_remote(&mr, 0), 0, IBV_FLUSH_GLOBAL,
				   IBV_FLUSH_MR, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "global flush of the MR: %s",
	      ibv_wc_status_str(status));

	CHECK_OK(e, "flush", flush(e, env_remote(&mr, 0), e->page,
				   IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, &status));
	CHECK(e, status == IBV_WC_REM_ACCESS_ERR, "persistent flush: %s",
	      ibv_wc_status_str(status));
	CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));

	/* rxe lets a window claim a right that its MR does not have. */
	CHECK_OK(e, "alloc_mw", new_window(e));
	win = mr;
	CHECK_OK(e, "bind", bind(e, &mr, 0, e->page,
				 IBV_ACCESS_REMOTE_WRITE |
				 ACCESS_FLUSH_PERSISTENT, &win.rkey, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "bind: %s", ibv_wc_status_str(status));
	CHECK_OK(e, "flush", flush(e, env_remote(&win, 0), e->page,
				   IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, &status));
	CHECK(e, status == IBV_WC_REM_ACCESS_ERR,
	      "persistent flush through a window: %s", ibv_wc_status_str(status));

	CHECK_OK(e, "dealloc_mw", free_window(e));
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

#else
static enum result flushes(struct env *e)
{
	return result(e, ABSENT, "built with a libibverbs without FLUSH");
}
#endif

const struct test rereg_tests[] = {
	{ "rereg-access", rereg_access },
	{ "rereg-pd", rereg_pd },
	{ "rereg-translation", rereg_translation },
	{ "rereg-in-place", rereg_in_place },
	{ "window-without-right", window_without_right },
	{ "window", window },
	{ "window-outside", window_outside },
	{ "flushes", flushes },
	{ 0 },
};
