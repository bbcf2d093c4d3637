// SPDX-License-Identifier: Apache-2.0
/* What keeps the memory, for how long, and that the kernel frees it. */
#define _GNU_SOURCE
#include "selftest_internal.h"
#include "bufinfo.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static enum result held(struct env *e, struct held *h)
{
	const char *path;
	int err = held_now(h, &path);

	CHECK(e, !err, "%s: %s", path, errname(err));
	return PASS;
}

#define HELD(e, h) \
	do { \
		if (held(e, h) != PASS) \
			return FAIL; \
	} while (0)

/*
 * Waits until no more buffers and attachments are left than in want: the kernel
 * may drop the last reference of a dma-buf a moment after the call that gave it
 * up.
 */
static enum result back_to(struct env *e, const struct held *want)
{
	struct held now;

	for (int i = 0; i < 50; i++) {
		HELD(e, &now);
		if (now.buffers <= want->buffers &&
		    now.attachments <= want->attachments)
			return PASS;
		usleep(100000);
	}
	return result(e, FAIL, "%ld buffers and %ld attachments, there were %ld and %ld",
		      now.buffers, now.attachments, want->buffers,
		      want->attachments);
}

/* Reads the MR by RDMA and compares it with what it must hold. */
static enum result still_readable(struct env *e, const struct mr *mr,
				  const uint8_t *want, size_t length)
{
	enum ibv_wc_status status;
	size_t bad = 0;
	bool same;

	memset(e->lb.host, 0, length);
	CHECK_OK(e, "read", loopback_rdma(&e->lb, IBV_WR_RDMA_READ,
					  loopback_host(&e->lb, 0),
					  env_remote(mr, 0), length, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "read: %s", ibv_wc_status_str(status));
	same = bytes_equal(e->lb.host, want, length, &bad);
	CHECK(e, same, "byte %zu differs", bad);
	return PASS;
}

/* The test closes fd, mapping, GEM handle and node; the MR still works. */
static enum result outlives_fd(struct env *e)
{
	const size_t length = e->b.size;
	uint8_t *want = malloc(length);
	enum ibv_wc_status status;
	struct held before, during;
	enum result r;
	struct mr mr;

	CHECK(e, want, "out of memory");
	HELD(e, &before);
	CHECK_OK(e, "register", env_register(e, 0, length, ACCESS_ALL, &mr));
	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	pattern_random(e->b.map, length);
	memcpy(want, e->b.map, length);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));
	buffer_free(&e->b);

	r = still_readable(e, &mr, want, length);
	if (r != PASS)
		goto out;
	pattern_random(want, length);
	memcpy(e->lb.host, want, length);
	CHECK_OK(e, "write", loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE,
					   loopback_host(&e->lb, 0),
					   env_remote(&mr, 0), length, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "write: %s", ibv_wc_status_str(status));
	r = still_readable(e, &mr, want, length);
	if (r != PASS)
		goto out;

	HELD(e, &during);
	CHECK(e, during.attachments == before.attachments + 1 &&
	      during.buffers == before.buffers,
	      "%ld attachments and %ld buffers while the MR lives, %ld and %ld before",
	      during.attachments, during.buffers, before.attachments, before.buffers);
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	before.buffers--;	/* the one that only the MR held */
	r = back_to(e, &before);
out:
	free(want);
	return r;
}

/* Closing the context deregisters. */
static enum result context_close(struct env *e)
{
	struct held before;
	const char *stage;
	struct mr mr;

	HELD(e, &before);
	for (int i = 0; i < 8; i++)
		CHECK_OK(e, "register", env_register(e, (uint64_t)i * e->page,
						     e->page, ACCESS_ALL, &mr));
	/* The MRs keep the PD from being freed: only closing the context works. */
	loopback_close(&e->lb);
	if (back_to(e, &before) != PASS)
		return FAIL;
	CHECK_OK(e, "open", loopback_open(&e->lb, e->o->device, e->o->port,
					  e->o->gid_index, e->page, &stage));
	return PASS;
}

/* Never returns: transfers until it is killed. */
static void victim(struct env *e, int ready)
{
	enum ibv_wc_status status;
	const char *stage;
	struct mr mr;
	int err;

	err = loopback_open(&e->lb, e->o->device, e->o->port, e->o->gid_index,
			    e->b.size, &stage);
	if (!err)
		err = env_register(e, 0, e->b.size, ACCESS_ALL, &mr);
	if (!err)
		err = loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE,
				    loopback_host(&e->lb, 0),
				    env_remote(&mr, 0), e->b.size, &status);
	if (write(ready, &err, sizeof(err)) != sizeof(err) || err)
		_exit(1);
	for (;;)
		loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE, loopback_host(&e->lb, 0),
			      env_remote(&mr, 0), e->b.size, &status);
}

static enum result killed(struct env *e)
{
	for (int i = 0; i < 5; i++) {
		struct held before, during;
		int ready[2], err = EPIPE, status;
		ssize_t n;
		pid_t pid;

		HELD(e, &before);
		CHECK(e, pipe(ready) == 0, "pipe: %s", errname(errno));
		pid = fork();
		CHECK(e, pid >= 0, "fork: %s", errname(errno));
		if (pid == 0) {
			close(ready[0]);
			victim(e, ready[1]);
		}
		close(ready[1]);
		n = read(ready[0], &err, sizeof(err));
		close(ready[0]);
		/* Each round kills the child at another point of its transfers. */
		usleep(20000 + 7000 * (unsigned int)i);
		if (n == sizeof(err) && !err)
			HELD(e, &during);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		CHECK(e, n == sizeof(err) && !err, "child: %s", errname(err));
		CHECK(e, during.attachments == before.attachments + 1,
		      "no attachment while the child lived");
		CHECK(e, WIFSIGNALED(status), "child ended by itself");
		if (back_to(e, &before) != PASS)
			return FAIL;
	}
	return PASS;
}

/* All MRs of a buffer share one kernel mapping, which the core counts. */
static enum result two_regions(struct env *e)
{
	enum result r;
	struct mr a, b;

	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &a));
	CHECK_OK(e, "register", env_register(e, e->page, e->page, ACCESS_ALL, &b));
	CHECK(e, a.rkey != b.rkey && a.handle != b.handle, "same keys");
	r = env_round_trip(e, &b, e->page + 3, e->page - 3);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &a));
	r = env_round_trip(e, &b, e->page, e->page);
	if (r != PASS)
		return r;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &b));
	return PASS;
}

#define CHURN_WARM 200
#define CHURN 2000
/* Half of what a leak of 512 bytes per round would add. */
#define CHURN_SLACK_KIB (CHURN / 4)

static enum result churn(struct env *e)
{
	struct held before, after;
	struct mr mr;

	for (int i = 0; i < CHURN_WARM + CHURN; i++) {
		if (i == CHURN_WARM) {
			sleep(1);
			HELD(e, &before);
		}
		CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
		CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	}
	sleep(1);		/* RCU frees objects a moment later */
	HELD(e, &after);
	CHECK(e, after.attachments == before.attachments &&
	      after.buffers == before.buffers && after.fds == before.fds,
	      "attachments %ld to %ld, buffers %ld to %ld, fds %ld to %ld",
	      before.attachments, after.attachments, before.buffers,
	      after.buffers, before.fds, after.fds);
	CHECK(e, after.slab_kib - before.slab_kib < CHURN_SLACK_KIB,
	      "slab grew from %ld to %ld KiB", before.slab_kib, after.slab_kib);
	CHECK(e, after.vmalloc_kib - before.vmalloc_kib < CHURN_SLACK_KIB,
	      "vmalloc grew from %ld to %ld KiB", before.vmalloc_kib,
	      after.vmalloc_kib);
	return PASS;
}

struct worker {
	pthread_t thread;
	struct env e;
	unsigned int index;
	enum result r;
};

#define WORKERS 4

static void *work(void *arg)
{
	struct worker *w = arg;
	struct env *e = &w->e;
	const size_t part = e->b.size / WORKERS, from = w->index * part;
	uint8_t *sent = e->lb.host, *seen = e->lb.host + part;
	enum ibv_wc_status status;
	size_t bad = 0;
	struct mr mr;

	for (int i = 0; i < 50; i++) {
		int err = env_register(e, from, part, ACCESS_ALL, &mr);

		if (err) {
			w->r = result(e, FAIL, "register: %s", errname(err));
			return NULL;
		}
		pattern_random(sent, part);
		memset(seen, 0, part);
		err = loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE,
				    loopback_host(&e->lb, 0),
				    env_remote(&mr, from), part, &status);
		if (!err && status == IBV_WC_SUCCESS)
			err = loopback_rdma(&e->lb, IBV_WR_RDMA_READ,
					    loopback_host(&e->lb, part),
					    env_remote(&mr, from), part, &status);
		mr_deregister(e->lb.ctx, &mr);
		if (err || status != IBV_WC_SUCCESS) {
			w->r = result(e, FAIL, "transfer: %s, %s", errname(err),
				      ibv_wc_status_str(status));
			return NULL;
		}
		if (!bytes_equal(sent, seen, part, &bad)) {
			w->r = result(e, FAIL, "round %d: byte %zu differs", i, bad);
			return NULL;
		}
	}
	return NULL;
}

/* Contexts, MRs and transfers of several threads on one buffer. */
static enum result concurrent(struct env *e)
{
	struct worker *ws = calloc(WORKERS, sizeof(*ws));
	unsigned int started = 0;
	enum result r = PASS;
	struct held before;

	CHECK(e, ws, "out of memory");
	HELD(e, &before);
	for (; started < WORKERS; started++) {
		struct worker *w = &ws[started];
		const char *stage;
		int err;

		w->e = *e;
		w->index = started;
		err = loopback_open(&w->e.lb, e->o->device, e->o->port,
				    e->o->gid_index, 2 * e->b.size / WORKERS, &stage);
		if (!err) {
			err = pthread_create(&w->thread, NULL, work, w);
			if (err)
				loopback_close(&w->e.lb);
		}
		if (err) {
			r = result(e, FAIL, "worker: %s", errname(err));
			break;
		}
	}
	for (unsigned int i = 0; i < started; i++) {
		pthread_join(ws[i].thread, NULL);
		loopback_close(&ws[i].e.lb);
		if (ws[i].r != PASS && r == PASS)
			r = result(e, FAIL, "worker %u: %s", i, ws[i].e.why);
	}
	free(ws);
	return r == PASS ? back_to(e, &before) : r;
}

struct traffic {
	struct env *e;
	struct mr *mr;
	atomic_int rounds;
	int err;
	enum ibv_wc_status status;
};

static void *write_until_refused(void *arg)
{
	struct traffic *t = arg;

	do {
		t->err = loopback_rdma(&t->e->lb, IBV_WR_RDMA_WRITE,
				       loopback_host(&t->e->lb, 0),
				       env_remote(t->mr, 0), t->e->b.size,
				       &t->status);
		t->rounds++;
	} while (!t->err && t->status == IBV_WC_SUCCESS);
	return NULL;
}

/* Deregistration waits for a copy in progress; rxe refuses the next WRITE. */
static enum result deregister_under_traffic(struct env *e)
{
	for (int i = 0; i < 10; i++) {
		struct traffic t = { .e = e };
		pthread_t thread;
		struct mr mr;
		int err;

		CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
		t.mr = &mr;
		CHECK_OK(e, "thread", pthread_create(&thread, NULL,
						     write_until_refused, &t));
		while (t.rounds < 3)
			usleep(100);
		usleep(500u * (unsigned int)i);
		err = mr_deregister(e->lb.ctx, &mr);
		pthread_join(thread, NULL);
		CHECK(e, !err, "deregister: %s", errname(err));
		CHECK(e, !t.err, "write: %s", errname(t.err));
		CHECK(e, t.status == IBV_WC_REM_ACCESS_ERR, "last write: %s",
		      ibv_wc_status_str(t.status));
		CHECK_OK(e, "reconnect", loopback_reconnect(&e->lb));
	}
	return PASS;
}

const struct test lifetime_tests[] = {
	{ "outlives-fd", outlives_fd },
	{ "context-close", context_close },
	{ "killed", killed },
	{ "two-regions", two_regions },
	{ "churn", churn },
	{ "concurrent", concurrent },
	{ "deregister-under-traffic", deregister_under_traffic },
	{ 0 },
};
