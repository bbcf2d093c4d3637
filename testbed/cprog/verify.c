// SPDX-License-Identifier: Apache-2.0
#include "verify.h"

#include <errno.h>
#include <string.h>

#include "errname.h"
#include "exporter.h"
#include "json.h"
#include "loopback.h"
#include "pattern.h"

/* The last stage, and the error that ended it. */
struct outcome {
	const char *stage;
	int err;
	enum ibv_wc_status status;
	uint64_t written, read, guard;
	bool mismatch;
	size_t bad;		/* offset in the dma-buf of a mismatch */
};

static bool outside_intact(const struct buffer *b, const struct range *r,
			   struct outcome *out)
{
	return guard_intact(b->map, 0, r->offset, &out->bad) &&
	       guard_intact(b->map, r->offset + r->length, b->size, &out->bad);
}

/* RDMA WRITE sends random bytes; the CPU compares them. */
static bool check_write(struct loopback *lb, const struct buffer *b,
			const struct range *r, const struct mr *mr,
			struct outcome *out)
{
	struct place remote = { .addr = r->iova, .key = mr->rkey };
	size_t bad;

	out->stage = "cpu-access";
	out->err = buffer_begin_cpu(b);
	if (out->err)
		return false;
	guard_fill(b->map, 0, b->size);
	out->err = buffer_end_cpu(b);
	if (out->err)
		return false;
	pattern_random(lb->host, r->length);

	out->stage = "write";
	out->err = loopback_rdma(lb, IBV_WR_RDMA_WRITE, loopback_host(lb, 0),
				 remote, r->length, &out->status);
	if (out->err || out->status != IBV_WC_SUCCESS)
		return false;

	out->stage = "compare-write";
	out->err = buffer_begin_cpu(b);
	if (out->err)
		return false;
	out->mismatch = !bytes_equal(b->map + r->offset, lb->host, r->length, &bad);
	if (out->mismatch)
		out->bad = r->offset + bad;
	else
		out->written = r->length;
	if (!out->mismatch) {
		out->stage = "compare-guard";
		out->mismatch = !outside_intact(b, r, out);
	}
	if (!out->mismatch)
		out->guard = b->size - r->length;
	out->err = buffer_end_cpu(b);
	return !out->mismatch && !out->err;
}

/* The CPU writes other random bytes; RDMA READ fetches them. */
static bool check_read(struct loopback *lb, const struct buffer *b,
		       const struct range *r, const struct mr *mr,
		       struct outcome *out)
{
	struct place remote = { .addr = r->iova, .key = mr->rkey };
	size_t bad;

	out->stage = "cpu-access";
	out->err = buffer_begin_cpu(b);
	if (out->err)
		return false;
	pattern_random(b->map + r->offset, r->length);
	out->err = buffer_end_cpu(b);
	if (out->err)
		return false;
	memset(lb->host, 0, r->length);

	out->stage = "read";
	out->err = loopback_rdma(lb, IBV_WR_RDMA_READ, loopback_host(lb, 0),
				 remote, r->length, &out->status);
	if (out->err || out->status != IBV_WC_SUCCESS)
		return false;

	out->stage = "compare-read";
	out->err = buffer_begin_cpu(b);
	if (out->err)
		return false;
	out->mismatch = !bytes_equal(lb->host, b->map + r->offset, r->length, &bad);
	if (out->mismatch)
		out->bad = r->offset + bad;
	else
		out->read = r->length;
	out->err = buffer_end_cpu(b);
	return !out->mismatch && !out->err;
}

static bool inside(const struct range *r, size_t size)
{
	return r->length > 0 && r->offset <= size &&
	       r->length <= size - r->offset;
}

static bool run(const struct options *o, struct loopback *lb, struct buffer *b,
		struct range *r, struct mr *mr, struct outcome *out)
{
	size_t host = o->length_given && r->length < o->size ? r->length : o->size;
	bool ok;
	int err;

	out->err = loopback_open(lb, o->device, o->port, o->gid_index,
				 host + (1 << 16), &out->stage);
	if (out->err)
		return false;

	out->err = buffer_alloc(b, o->exporter, o->size, &out->stage);
	if (out->err)
		return false;
	if (!o->length_given)
		r->length = b->size > r->offset ? b->size - r->offset : 0;

	out->stage = "register";
	out->err = mr_register(lb->pd, o->route, b->fd, r, o->access, mr);
	if (out->err)
		return false;

	out->stage = "range";
	if (!inside(r, b->size) || r->length > lb->host_size) {
		/* the kernel took this range, but no transfer can use all of it */
		out->err = ERANGE;
		mr_deregister(lb->ctx, mr);
		return false;
	}

	ok = check_write(lb, b, r, mr, out) && check_read(lb, b, r, mr, out);

	err = mr_deregister(lb->ctx, mr);
	if (ok && err) {
		out->stage = "deregister";
		out->err = err;
		ok = false;
	}
	return ok;
}

int verify(const struct options *o)
{
	struct outcome out = { .stage = "start" };
	struct buffer b = { .fd = -1, .owner_fd = -1 };
	struct range r = o->range;
	struct loopback lb = { 0 };
	struct mr mr = { 0 };
	bool ok;

	ok = run(o, &lb, &b, &r, &mr, &out);

	json_begin();
	json_string("command", "verify");
	json_bool("ok", ok);
	json_string("exporter", o->exporter);
	if (lb.ctx)
		json_string("device", ibv_get_device_name(lb.ctx->device));
	json_string("route", route_name(mr.route));
	json_number("size", b.size);
	json_number("offset", r.offset);
	json_number("length", r.length);
	json_number("iova", r.iova);
	json_number("access", o->access);
	json_number("lkey", mr.lkey);
	json_number("rkey", mr.rkey);
	json_number("written", out.written);
	json_number("read", out.read);
	json_number("guard", out.guard);
	if (!ok) {
		json_string("stage", out.stage);
		if (out.err) {
			json_string("errno", errname(out.err));
			json_number("errno_number", (uint64_t)out.err);
		}
		if (out.status != IBV_WC_SUCCESS)
			json_string("completion", ibv_wc_status_str(out.status));
		if (out.mismatch)
			json_number("mismatch_at", out.bad);
	}
	json_end();

	buffer_free(&b);
	loopback_close(&lb);
	return ok ? 0 : 1;
}
