/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SELFTEST_INTERNAL_H
#define SELFTEST_INTERNAL_H

#include "errname.h"
#include "exporter.h"
#include "loopback.h"
#include "mr.h"
#include "options.h"
#include "pattern.h"

enum result { PASS, ABSENT, FAIL };

/* Every test starts with a connected pair and an unregistered buffer. */
struct env {
	const struct options *o;
	struct loopback lb;
	struct buffer b;
	struct ibv_mw *mw;	/* freed after the test, or NULL */
	size_t page;
	char why[256];		/* of a result that is not PASS */
};

struct test {
	const char *name;
	enum result (*run)(struct env *e);
};

/* Each ends with a test without a name. */
extern const struct test refusal_tests[];
extern const struct test transfer_tests[];
extern const struct test atomic_tests[];
extern const struct test rereg_tests[];
extern const struct test lifetime_tests[];
extern const struct test stock_tests[];

/* Pages of the buffer that a test gets. */
#define TEST_PAGES 16

#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* No offset is as large: a test fails if rxe takes one for the other. */
#define IOVA_BASE 0x7a0000000000ull

enum result result(struct env *e, enum result r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define CHECK(e, cond, ...) \
	do { \
		if (!(cond)) \
			return result(e, FAIL, __VA_ARGS__); \
	} while (0)

/* Fails unless err is 0. */
#define CHECK_OK(e, what, call) \
	do { \
		int err_ = (call); \
		if (err_) \
			return result(e, FAIL, "%s: %s", what, errname(err_)); \
	} while (0)

/* Registers [offset, offset+length) at IOVA_BASE + offset. */
int env_register(struct env *e, uint64_t offset, uint64_t length,
		 unsigned int access, struct mr *mr);

/* The place of an offset of the buffer in an MR made by env_register(). */
struct place env_remote(const struct mr *mr, uint64_t offset);

/* Fills the buffer with guard bytes, in a CPU access bracket. */
int env_guard(struct env *e);

/*
 * Writes random bytes to [offset, offset+length) of the buffer by RDMA and reads
 * others from there, comparing both with the CPU's view. Compares all other bytes
 * with the guard after the write. length is at most half of the host memory.
 */
enum result env_round_trip(struct env *e, const struct mr *mr, uint64_t offset,
			   size_t length);

#endif
