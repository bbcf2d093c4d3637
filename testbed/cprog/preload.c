// SPDX-License-Identifier: Apache-2.0
/*
 * A library to preload into an unchanged program. It adds what Debian's rxe provider
 * and perftest lack. ibv_reg_dmabuf_mr() asks the kernel, as with a provider that has
 * the operation. With DMABUF_BENEATH=EXPORTER, a dma-buf of that exporter replaces
 * the memory that the program registers, at the same address, before the
 * registration. DMABUF_WAIT=SECONDS delays this, so that another process, which
 * registers at the same moment, is done first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exporter.h"
#include "mr.h"

/* The header has a macro of this name. */
#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);

/* An MR that libibverbs does not know. The program gets its first member. */
struct region {
	struct ibv_mr ibv;
	struct mr mr;
	struct buffer beneath;
	struct region *next;
};

static struct region *regions;

static struct ibv_mr *add(struct ibv_pd *pd, void *addr, int fd,
			  const struct range *rg, int access,
			  const struct buffer *beneath)
{
	struct region *r = calloc(1, sizeof(*r));
	int err = ENOMEM;

	if (r) /* without the optional flags, which a driver need not know */
		err = mr_register(pd, ROUTE_IOCTL, fd, rg,
				  (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE,
				  &r->mr);
	if (err) {
		free(r);
		errno = err;
		return NULL;
	}
	r->ibv = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = rg->length,
		.handle = r->mr.handle, .lkey = r->mr.lkey, .rkey = r->mr.rkey,
	};
	r->beneath = *beneath;
	r->next = regions;
	regions = r;
	return &r->ibv;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				 uint64_t iova, int fd, int access)
{
	struct range rg = { .offset = offset, .length = length, .iova = iova };
	struct buffer none = { .fd = -1, .owner_fd = -1 };

	return add(pd, NULL, fd, &rg, access, &none);
}

/*
 * The dma-buf replaces whole pages with their contents: other data of the program
 * may be beside the memory. The replacement outlives the MR.
 */
static struct ibv_mr *beneath(struct ibv_pd *pd, void *addr, size_t length,
			      uint64_t iova, int access, const char *exporter)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1);
	size_t size = ((uintptr_t)addr + length - from + page - 1) & ~(page - 1);
	struct range rg = { .offset = (uintptr_t)addr - from, .length = length, .iova = iova };
	const char *stage = "", *wait = getenv("DMABUF_WAIT");
	struct buffer b;
	int err;

	if (wait)
		sleep((unsigned int)strtoul(wait, NULL, 10));
	err = buffer_alloc(&b, exporter, size, &stage);
	if (err) {
		fprintf(stderr, "preload: %s: %s: %s\n", exporter, stage, strerror(err));
		errno = err;
		return NULL;
	}
	memcpy(b.map, (void *)from, size);
	if (mmap((void *)from, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 b.fd, 0) == MAP_FAILED) {
		buffer_free(&b);
		return NULL;
	}
	return add(pd, addr, b.fd, &rg, access, &b);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *(*next)(struct ibv_pd *, void *, size_t, int);
	const char *exporter = getenv("DMABUF_BENEATH");

	if (exporter)
		return beneath(pd, addr, length, (uintptr_t)addr, access, exporter);
	next = dlsym(RTLD_NEXT, "ibv_reg_mr");
	return next(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	struct ibv_mr *(*next)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	const char *exporter = getenv("DMABUF_BENEATH");

	if (exporter)
		return beneath(pd, addr, length, iova, (int)access, exporter);
	next = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
	return next(pd, addr, length, iova, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int (*next)(struct ibv_mr *) = dlsym(RTLD_NEXT, "ibv_dereg_mr");

	for (struct region **at = &regions; *at; at = &(*at)->next) {
		struct region *r = *at;
		int err;

		if (&r->ibv != mr)
			continue;
		err = mr_deregister(mr->context, &r->mr);
		if (err)
			return err;
		*at = r->next;
		buffer_free(&r->beneath); /* the program's mapping keeps the pages */
		free(r);
		return 0;
	}
	return next(mr);
}
