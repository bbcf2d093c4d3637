// SPDX-License-Identifier: Apache-2.0
/* Registrations that the kernel must refuse, and with which errno. */
#define _GNU_SOURCE
#include "selftest_internal.h"
#include "flush.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static enum result expect(struct env *e, const char *what, int want, int fd,
			  struct range r, unsigned int access)
{
	struct mr mr;
	int err = mr_register(e->lb.pd, ROUTE_IOCTL, fd, &r, access, &mr);

	if (!err)
		mr_deregister(e->lb.ctx, &mr);
	CHECK(e, err == want, "%s: %s, not %s", what, errname(err), errname(want));
	return PASS;
}

#define EXPECT(...) \
	do { \
		enum result r_ = expect(__VA_ARGS__); \
		if (r_ != PASS) \
			return r_; \
	} while (0)

static enum result bad_fd(struct env *e)
{
	struct range page = { .length = e->page };
	int memfd, closed;

	/* Programs register fd -1 to see whether a driver has the call at all. */
	EXPECT(e, "fd -1", EBADF, -1, page, ACCESS_ALL);
	EXPECT(e, "fd -1, length 0", EBADF, -1, (struct range){ 0 }, 0);

	closed = dup(e->b.fd);
	close(closed);
	EXPECT(e, "closed fd", EBADF, closed, page, ACCESS_ALL);

	memfd = memfd_create("not-a-dma-buf", MFD_CLOEXEC);
	CHECK(e, memfd >= 0, "memfd_create: %s", errname(errno));
	CHECK(e, ftruncate(memfd, (off_t)e->page) == 0, "ftruncate: %s", errname(errno));
	{
		enum result r = expect(e, "memfd", EINVAL, memfd, page, ACCESS_ALL);

		close(memfd);
		return r;
	}
}

static enum result bad_range(struct env *e)
{
	uint64_t size = e->b.size, page = e->page, top = UINT64_MAX - page + 1;
	int fd = e->b.fd;

	EXPECT(e, "length 0", EINVAL, fd, (struct range){ 0 }, ACCESS_ALL);
	EXPECT(e, "length 0 inside a page", EINVAL, fd,
	       (struct range){ .offset = 100, .iova = 100 }, ACCESS_ALL);
	EXPECT(e, "one byte too long", EINVAL, fd,
	       (struct range){ .length = size + 1 }, ACCESS_ALL);
	EXPECT(e, "offset at the end", EINVAL, fd,
	       (struct range){ .offset = size, .length = 1 }, ACCESS_ALL);
	EXPECT(e, "offset past the end", EINVAL, fd,
	       (struct range){ .offset = size + page, .length = page }, ACCESS_ALL);
	EXPECT(e, "last page and one byte", EINVAL, fd,
	       (struct range){ .offset = size - page, .length = page + 1 }, ACCESS_ALL);
	EXPECT(e, "offset + length overflows", EINVAL, fd,
	       (struct range){ .offset = top, .length = page + 1, .iova = 0 },
	       ACCESS_ALL);
	EXPECT(e, "length overflows", EINVAL, fd,
	       (struct range){ .offset = page, .length = UINT64_MAX, .iova = 0 },
	       ACCESS_ALL);
	EXPECT(e, "iova + length overflows", EINVAL, fd,
	       (struct range){ .length = 2 * page, .iova = top }, ACCESS_ALL);
	EXPECT(e, "other offset in the page", EINVAL, fd,
	       (struct range){ .offset = 8, .length = 8, .iova = IOVA_BASE },
	       ACCESS_ALL);
	return PASS;
}

static enum result bad_access(struct env *e)
{
	struct range page = { .length = e->page };

	EXPECT(e, "remote write without local write", EINVAL, e->b.fd, page,
	       IBV_ACCESS_REMOTE_WRITE);
	EXPECT(e, "remote atomic without local write", EINVAL, e->b.fd, page,
	       IBV_ACCESS_REMOTE_ATOMIC);
	EXPECT(e, "MW bind", EINVAL, e->b.fd, page, IBV_ACCESS_MW_BIND);
	EXPECT(e, "on demand", EINVAL, e->b.fd, page, IBV_ACCESS_ON_DEMAND);
	EXPECT(e, "flush persistent", EINVAL, e->b.fd, page,
	       ACCESS_FLUSH_PERSISTENT);
	EXPECT(e, "unknown flag", EINVAL, e->b.fd, page, 1u << 18);
	return PASS;
}

/* Refusals leave nothing behind: after many of them a registration works. */
static enum result after_refusals(struct env *e)
{
	struct mr mr;

	for (int i = 0; i < 200; i++) {
		struct range r = { .offset = e->b.size, .length = e->page };

		CHECK(e, mr_register(e->lb.pd, ROUTE_IOCTL, e->b.fd, &r,
				     ACCESS_ALL, &mr) == EINVAL, "not refused");
	}
	CHECK_OK(e, "register", env_register(e, 0, e->b.size, ACCESS_ALL, &mr));
	if (env_round_trip(e, &mr, 0, e->b.size) != PASS)
		return FAIL;
	CHECK_OK(e, "deregister", mr_deregister(e->lb.ctx, &mr));
	return PASS;
}

const struct test refusal_tests[] = {
	{ "bad-fd", bad_fd },
	{ "bad-range", bad_range },
	{ "bad-access", bad_access },
	{ "after-refusals", after_refusals },
	{ 0 },
};

/* Without the patch both routes fail the same, whatever the arguments. */
static enum result stock_refuses(struct env *e)
{
	struct range page = { .length = e->page };
	struct mr mr;
	int err;

	EXPECT(e, "ioctl", EOPNOTSUPP, e->b.fd, page, ACCESS_ALL);
	EXPECT(e, "ioctl with fd -1", EOPNOTSUPP, -1, page, ACCESS_ALL);
	err = mr_register(e->lb.pd, ROUTE_PROVIDER, e->b.fd, &page, ACCESS_ALL, &mr);
	CHECK(e, err == EOPNOTSUPP, "provider: %s, not EOPNOTSUPP", errname(err));
	return PASS;
}

const struct test stock_tests[] = {
	{ "stock-refuses", stock_refuses },
	{ 0 },
};
