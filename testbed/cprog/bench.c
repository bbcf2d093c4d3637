// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "errname.h"
#include "exporter.h"
#include "json.h"
#include "loopback.h"

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int time_registration(const struct options *o, struct loopback *lb,
			     int fd, const struct range *r, uint64_t *ns)
{
	for (unsigned long i = 0; i < o->count; i++) {
		uint64_t start = now();
		struct mr mr;
		int err = mr_register(lb->pd, o->route, fd, r, o->access, &mr);

		if (!err)
			err = mr_deregister(lb->ctx, &mr);
		if (err)
			return err;
		ns[i] = now() - start;
	}
	return 0;
}

static int time_transfer(const struct options *o, struct loopback *lb, int fd,
			 const struct range *r, uint64_t *ns)
{
	enum ibv_wr_opcode op = strcmp(o->operation, "write") == 0 ?
				IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct place remote;
	struct mr mr;
	int err;

	err = mr_register(lb->pd, o->route, fd, r, o->access, &mr);
	if (err)
		return err;
	remote = (struct place){ .addr = r->iova, .key = mr.rkey };
	for (unsigned long i = 0; i < o->count; i++) {
		uint64_t start = now();

		err = loopback_rdma(lb, op, loopback_host(lb, 0), remote,
				    r->length, &status);
		if (!err && status != IBV_WC_SUCCESS)
			err = EIO;
		if (err)
			break;
		ns[i] = now() - start;
	}
	mr_deregister(lb->ctx, &mr);
	return err;
}

/* In the order measured, so that a drift over the run shows. */
static int save(const char *path, const uint64_t *ns, unsigned long n)
{
	FILE *f = fopen(path, "we");
	int err = 0;

	if (!f)
		return errno;
	for (unsigned long i = 0; i < n; i++)
		fprintf(f, "%" PRIu64 "\n", ns[i]);
	if (ferror(f))
		err = EIO;
	if (fclose(f) && !err)
		err = errno;
	return err;
}

int bench(const struct options *o)
{
	struct buffer b = { .fd = -1, .owner_fd = -1 };
	struct range r = o->range;
	struct loopback lb = { 0 };
	const char *stage;
	uint64_t *ns;
	int err;

	ns = calloc(o->count, sizeof(*ns));
	if (!ns)
		return 1;

	err = loopback_open(&lb, o->device, o->port, o->gid_index,
			    o->size + (1 << 16), &stage);
	if (!err)
		err = buffer_alloc(&b, o->exporter, o->size, &stage);
	if (!err) {
		if (!o->length_given)
			r.length = b.size > r.offset ? b.size - r.offset : 0;
		stage = o->operation;
		if (strcmp(o->operation, "register") == 0)
			err = time_registration(o, &lb, b.fd, &r, ns);
		else if (r.length > lb.host_size)
			err = ERANGE;
		else
			err = time_transfer(o, &lb, b.fd, &r, ns);
	}
	if (!err && o->output) {
		stage = "output";
		err = save(o->output, ns, o->count);
	}

	json_begin();
	json_string("command", "bench");
	json_bool("ok", !err);
	json_string("operation", o->operation);
	json_string("exporter", o->exporter);
	json_number("length", r.length);
	json_number("count", o->count);
	if (err) {
		json_string("stage", stage);
		json_string("errno", errname(err));
		json_number("errno_number", (uint64_t)err);
	} else {
		qsort(ns, o->count, sizeof(*ns), by_value);
		json_number("p50_ns", ns[o->count / 2]);
		json_number("p99_ns", ns[o->count * 99 / 100]);
	}
	json_end();

	buffer_free(&b);
	loopback_close(&lb);
	free(ns);
	return err ? 1 : 0;
}
