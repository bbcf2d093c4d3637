// SPDX-License-Identifier: Apache-2.0
#include "selftest.h"
#include "selftest_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum result result(struct env *e, enum result r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->why, sizeof(e->why), fmt, ap);
	va_end(ap);
	return r;
}

int env_register(struct env *e, uint64_t offset, uint64_t length,
		 unsigned int access, struct mr *mr)
{
	struct range r = {
		.offset = offset, .length = length, .iova = IOVA_BASE + offset,
	};

	return mr_register(e->lb.pd, e->o->route, e->b.fd, &r, access, mr);
}

struct place env_remote(const struct mr *mr, uint64_t offset)
{
	return (struct place){ .addr = IOVA_BASE + offset, .key = mr->rkey };
}

int env_guard(struct env *e)
{
	int err = buffer_begin_cpu(&e->b);

	if (err)
		return err;
	guard_fill(e->b.map, 0, e->b.size);
	return buffer_end_cpu(&e->b);
}

enum result env_round_trip(struct env *e, const struct mr *mr, uint64_t offset,
			   size_t length)
{
	struct place remote = env_remote(mr, offset);
	uint8_t *sent = e->lb.host, *seen = e->lb.host + e->lb.host_size / 2;
	enum ibv_wc_status status;
	size_t bad = 0;
	bool same;

	CHECK_OK(e, "guard", env_guard(e));
	pattern_random(sent, length);
	memset(seen, 0, length);

	CHECK_OK(e, "write", loopback_rdma(&e->lb, IBV_WR_RDMA_WRITE,
					   loopback_host(&e->lb, 0), remote,
					   length, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "write of %zu at %#llx: %s", length,
	      (unsigned long long)offset, ibv_wc_status_str(status));

	CHECK_OK(e, "cpu access", buffer_begin_cpu(&e->b));
	same = bytes_equal(e->b.map + offset, sent, length, &bad);
	CHECK(e, same, "write of %zu at %#llx: byte %zu differs", length,
	      (unsigned long long)offset, bad);
	same = guard_intact(e->b.map, 0, offset, &bad) &&
	       guard_intact(e->b.map, offset + length, e->b.size, &bad);
	CHECK(e, same, "write of %zu at %#llx changed byte %zu of the buffer",
	      length, (unsigned long long)offset, bad);
	pattern_random(e->b.map + offset, length);
	memcpy(sent, e->b.map + offset, length);
	CHECK_OK(e, "cpu access", buffer_end_cpu(&e->b));

	CHECK_OK(e, "read", loopback_rdma(&e->lb, IBV_WR_RDMA_READ,
					  loopback_host(&e->lb, e->lb.host_size / 2),
					  remote, length, &status));
	CHECK(e, status == IBV_WC_SUCCESS, "read of %zu at %#llx: %s", length,
	      (unsigned long long)offset, ibv_wc_status_str(status));
	same = bytes_equal(seen, sent, length, &bad);
	CHECK(e, same, "read of %zu at %#llx: byte %zu differs", length,
	      (unsigned long long)offset, bad);
	return PASS;
}

static enum result run_one(const struct options *o, const struct test *t,
			   struct env *e)
{
	const char *stage;
	enum result r;
	int err;

	memset(e, 0, sizeof(*e));
	e->o = o;
	e->page = (size_t)sysconf(_SC_PAGESIZE);
	err = loopback_open(&e->lb, o->device, o->port, o->gid_index,
			    2 * TEST_PAGES * e->page, &stage);
	if (err)
		return result(e, FAIL, "set-up, %s: %s", stage, errname(err));
	err = buffer_alloc(&e->b, o->exporter, TEST_PAGES * e->page, &stage);
	if (err) {
		loopback_close(&e->lb);
		return result(e, FAIL, "%s, %s: %s", o->exporter, stage, errname(err));
	}

	r = t->run(e);

	/*
	 * The window goes first: rxe waits 50 seconds for a window whose
	 * queue pair is already destroyed. Closing the context deregisters
	 * the MRs that a failed test has left.
	 */
	if (e->mw)
		ibv_dealloc_mw(e->mw);
	loopback_close(&e->lb);
	buffer_free(&e->b);
	return r;
}

static int run_list(const struct options *o, const struct test *list,
		    int *found)
{
	static const char *const words[] = { "ok", "absent", "FAIL" };
	struct env e;
	int failed = 0;

	for (const struct test *t = list; t->name; t++) {
		enum result r;

		if (o->only && strcmp(o->only, t->name))
			continue;
		++*found;
		r = run_one(o, t, &e);
		if (r == PASS)
			printf("%s %s\n", words[r], t->name);
		else
			printf("%s %s: %s\n", words[r], t->name, e.why);
		fflush(stdout);
		failed += r == FAIL;
	}
	return failed;
}

int selftest(const struct options *o)
{
	static const struct test *const patched[] = {
		refusal_tests, transfer_tests, atomic_tests, rereg_tests,
		lifetime_tests, NULL,
	};
	static const struct test *const stock[] = { stock_tests, NULL };
	int failed = 0, found = 0;

	for (const struct test *const *l = o->stock ? stock : patched; *l; l++)
		failed += run_list(o, *l, &found);
	if (!found) {
		fprintf(stderr, "dmabuf-mr: no test has this name\n");
		return 2;
	}
	printf("%d tests, %d failed, on %s\n", found, failed, o->exporter);
	return failed ? 1 : 0;
}
