// SPDX-License-Identifier: Apache-2.0
/*
 * fi-rma: reads operations from standard input, runs them on libfabric's verbs
 * provider and prints the results. Tests compare package fi with it, operation by
 * operation.
 *
 *   fi-rma ADDRESS [EXPORTER]  such as 10.9.0.1, of an RDMA device's network
 *                              interface
 *
 * It has two endpoints and two buffers, of SIZE bytes each. The first endpoint
 * posts, with the first buffer as local memory and the second as remote memory.
 * With an exporter (exporter.h) both are parts of one dma-buf, which fi-rma
 * registers by FI_MR_DMABUF; that needs libfabric 2. Blanks separate the words of
 * a line.
 *
 *   mode msg|rdm               connected endpoints, or connectionless ones by
 *                              ofi_rxm; this line comes before all others
 *   offers                     what the provider promises, a line of JSON
 *   open [selective]           two new endpoints, connected
 *   fill                       both buffers as at the start
 *   recv CONTEXT               the second endpoint posts a receive
 *   post CALL FLAGS LOCAL REMOTE DATA CONTEXT
 *                              LOCAL: OFFSET+LENGTH,...   REMOTE: KEY:OFFSET+LENGTH,...
 *                              KEY: a all, r only to be read, w only to be
 *                              written, x the key of no MR
 *   change                     all local bytes are inverted
 *   done                       a line of JSON: the results of all that was
 *                              posted since the last done
 *
 * At "done" fi-rma posts a last write, of other memory, and waits for it. An
 * operation without a completion by then makes none; it is not late.
 */
#define _GNU_SOURCE
#include "errname.h"
#include "exporter.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define SIZE 16384
#define ROOM 8192 /* bytes of scratch, apart from the buffers */
#define MARK 0xffff /* the context of the write that is posted last */
#define MAX_SPANS 16
#define MAX_EVENTS 32
#define PORT "18742"
#define PATIENCE 30 /* seconds; far more than anything here takes */

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static const struct name {
	const char *name;
	uint64_t flag;
} flag_names[] = {
	{ "completion", FI_COMPLETION },
	{ "inject", FI_INJECT },
	{ "fence", FI_FENCE },
	{ "more", FI_MORE },
	{ "remote-cq-data", FI_REMOTE_CQ_DATA },
	{ "inject-complete", FI_INJECT_COMPLETE },
	{ "transmit-complete", FI_TRANSMIT_COMPLETE },
	{ "delivery-complete", FI_DELIVERY_COMPLETE },
	{ "commit-complete", FI_COMMIT_COMPLETE },
}, event_names[] = {
	{ "rma", FI_RMA },
	{ "read", FI_READ },
	{ "write", FI_WRITE },
	{ "remote-write", FI_REMOTE_WRITE },
	{ "remote-cq-data", FI_REMOTE_CQ_DATA },
	{ "message", FI_MSG },
	{ "receive", FI_RECV },
};

struct event {
	uint64_t context, flags, len, data;
	int status; /* the provider's own number of an error */
	int err; /* libfabric's */
};

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct event events[MAX_EVENTS];
	unsigned int count;
};

static bool connectionless;
static const char *address;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_pep *pep;
static struct side near, far;
static fi_addr_t peer = FI_ADDR_UNSPEC;

static unsigned char *local, *remote, *scratch;
static struct buffer exported = { .fd = -1, .owner_fd = -1 }; /* the dma-buf of all three, if any */
static struct fid_mr *local_mr, *all_mr, *read_mr, *write_mr, *scratch_mr;

static const char *posts[MAX_EVENTS];
static unsigned int post_count;
static bool marked, dead;

static void die(const char *what, long err)
{
	fprintf(stderr, "fi-rma: %s: %s\n", what, fi_strerror((int)(err < 0 ? -err : err)));
	exit(1);
}

static void wrong(const char *what)
{
	fprintf(stderr, "fi-rma: %s\n", what);
	exit(2);
}

static void *need(void *p)
{
	if (!p)
		die("allocate", FI_ENOMEM);
	return p;
}

/* The provider's offer for these hints; NULL if it refuses them. */
static struct fi_info *ask(uint64_t caps, uint64_t op_flags, const char *node, uint64_t flags)
{
	struct fi_info *hints = need(fi_allocinfo()), *found = NULL;

	hints->caps = FI_MSG | FI_RMA | caps;
	hints->mode = connectionless ? 0 : FI_RX_CQ_DATA;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->ep_attr->type = connectionless ? FI_EP_RDM : FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->cq_data_size = sizeof(uint32_t);
	hints->tx_attr->op_flags = op_flags;
	hints->fabric_attr->prov_name = need(strdup(connectionless ? "verbs;ofi_rxm" : "verbs"));
	if (fi_getinfo(FI_VERSION(1, 17), node, node ? PORT : NULL, flags, hints, &found))
		found = NULL;
	fi_freeinfo(hints);
	return found;
}

static void offers(void)
{
	printf("{\"inject_size\":%zu,\"iov_limit\":%zu,\"rma_iov_limit\":%zu,\"data_size\":%zu", info->tx_attr->inject_size,
	       info->tx_attr->iov_limit, info->tx_attr->rma_iov_limit, info->domain_attr->cq_data_size);
	printf(",\"flags\":{");
	for (size_t i = 0; i < LENGTH(flag_names); i++) {
		uint64_t flag = flag_names[i].flag;
		/* FI_FENCE is a capability; FI_MORE and FI_REMOTE_CQ_DATA are flags of calls. */
		bool cap = flag == FI_FENCE, call = flag & (FI_MORE | FI_REMOTE_CQ_DATA);
		struct fi_info *found = ask(cap ? flag : 0, cap || call ? 0 : flag, address, 0);

		printf("%s\"%s\":%s", i ? "," : "", flag_names[i].name, found ? "true" : "false");
		fi_freeinfo(found);
	}
	printf("}}\n");
}

static void fill(void)
{
	for (unsigned int i = 0; i < SIZE; i++) {
		local[i] = (unsigned char)((i * 31 + 7) ^ (i >> 8));
		remote[i] = (unsigned char)((i * 17 + 101) ^ (i >> 7));
	}
}

static int reg_dmabuf(void *p, size_t len, uint64_t access, uint64_t key, struct fid_mr **mr)
{
#ifdef FI_MR_DMABUF
	struct fi_mr_dmabuf part = {
		.fd = exported.fd, .offset = (uint64_t)((uint8_t *)p - exported.map), .len = len, .base_addr = exported.map,
	};
	struct fi_mr_attr attr = {
		.dmabuf = &part, .iov_count = 1, .access = access, .requested_key = key, .iface = FI_HMEM_SYSTEM,
	};

	return fi_mr_regattr(domain, &attr, FI_MR_DMABUF, mr);
#else
	(void)p, (void)len, (void)access, (void)key, (void)mr;
	return -FI_ENOSYS;
#endif
}

static struct fid_mr *reg(void *p, size_t len, uint64_t access)
{
	static uint64_t key;
	struct fid_mr *mr;
	int err;

	key++;
	if (exported.map)
		err = reg_dmabuf(p, len, access, key, &mr);
	else
		err = fi_mr_reg(domain, p, len, access, 0, key, 0, &mr, NULL);
	if (err)
		die(exported.map ? "fi_mr_regattr with FI_MR_DMABUF" : "fi_mr_reg", err);
	return mr;
}

static void close_side(struct side *s)
{
	if (s->ep)
		fi_close(&s->ep->fid);
	if (s->cq)
		fi_close(&s->cq->fid);
	if (s->av)
		fi_close(&s->av->fid);
	*s = (struct side){ 0 };
}

static void stop(void)
{
	struct fid_mr **mrs[] = { &local_mr, &all_mr, &read_mr, &write_mr, &scratch_mr };

	close_side(&near);
	close_side(&far);
	if (!info)
		return;
	for (size_t i = 0; i < LENGTH(mrs); i++)
		fi_close(&(*mrs[i])->fid);
	if (pep)
		fi_close(&pep->fid);
	if (eq)
		fi_close(&eq->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	fi_freeinfo(info);
	pep = NULL;
	eq = NULL;
	info = NULL;
	peer = FI_ADDR_UNSPEC;
}

static void start(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_info *passive;
	int err;

	/* Two connectionless endpoints cannot have one port. */
	info = connectionless ? ask(0, 0, NULL, 0) : ask(0, 0, address, 0);
	if (!info)
		die("fi_getinfo: the verbs provider does not take the device", FI_ENODATA);
	if (info->mode & (FI_CONTEXT | FI_CONTEXT2))
		wrong("the provider wants room in contexts");
	err = fi_fabric(info->fabric_attr, &fabric, NULL);
	if (err)
		die("fi_fabric", err);
	err = fi_domain(fabric, info, &domain, NULL);
	if (err)
		die("fi_domain", err);
	local_mr = reg(local, SIZE, FI_READ | FI_WRITE);
	all_mr = reg(remote, SIZE, FI_REMOTE_READ | FI_REMOTE_WRITE);
	read_mr = reg(remote, SIZE, FI_REMOTE_READ);
	write_mr = reg(remote, SIZE, FI_REMOTE_WRITE);
	scratch_mr = reg(scratch, ROOM, FI_READ | FI_WRITE | FI_RECV | FI_REMOTE_WRITE);
	if (connectionless)
		return;
	err = fi_eq_open(fabric, &attr, &eq, NULL);
	if (err)
		die("fi_eq_open", err);
	passive = ask(0, 0, address, FI_SOURCE);
	if (!passive)
		die("fi_getinfo of the listener", FI_ENODATA);
	err = fi_passive_ep(fabric, passive, &pep, NULL);
	if (!err)
		err = fi_pep_bind(pep, &eq->fid, 0);
	if (!err)
		err = fi_listen(pep);
	if (err)
		die("listen", err);
	fi_freeinfo(passive);
}

static void open_side(struct side *s, struct fi_info *how, bool selective)
{
	struct fi_cq_attr cq = { .size = 256, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	int err;

	err = fi_endpoint(domain, how, &s->ep, NULL);
	if (err)
		die("fi_endpoint", err);
	err = fi_cq_open(domain, &cq, &s->cq, NULL);
	if (!err)
		err = fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | (selective ? FI_SELECTIVE_COMPLETION : 0));
	if (!err)
		err = fi_ep_bind(s->ep, &s->cq->fid, FI_RECV);
	if (!err && connectionless) {
		err = fi_av_open(domain, &av, &s->av, NULL);
		if (!err)
			err = fi_ep_bind(s->ep, &s->av->fid, 0);
	} else if (!err) {
		err = fi_ep_bind(s->ep, &eq->fid, 0);
	}
	if (!err)
		err = fi_enable(s->ep);
	if (err)
		die("open an endpoint", err);
}

/* The next connection event, except the shutdown of an earlier connection. */
static uint32_t next_event(struct fi_eq_cm_entry *entry)
{
	struct fi_eq_err_entry failed = { 0 };
	uint32_t event;
	ssize_t n;

	do {
		n = fi_eq_sread(eq, &event, entry, sizeof(*entry), PATIENCE * 1000, 0);
	} while (n > 0 && event == FI_SHUTDOWN);
	if (n == -FI_EAVAIL && fi_eq_readerr(eq, &failed, 0) > 0)
		die("connect", failed.err);
	if (n < 0)
		die("connect", n);
	return event;
}

static void connect_both(bool selective)
{
	struct fi_eq_cm_entry entry;
	int err;

	open_side(&near, info, selective);
	err = fi_connect(near.ep, info->dest_addr, NULL, 0);
	if (err)
		die("fi_connect", err);
	if (next_event(&entry) != FI_CONNREQ)
		wrong("no request for a connection came");
	open_side(&far, entry.info, selective);
	fi_freeinfo(entry.info);
	err = fi_accept(far.ep, NULL, 0);
	if (err)
		die("fi_accept", err);
	for (int up = 0; up < 2; up++) {
		if (next_event(&entry) != FI_CONNECTED)
			wrong("the connection was not made");
	}
}

static void introduce(bool selective)
{
	struct sockaddr_storage name;
	size_t len = sizeof(name);
	int err;

	open_side(&near, info, selective);
	open_side(&far, info, selective);
	err = fi_getname(&far.ep->fid, &name, &len);
	if (err)
		die("fi_getname", err);
	if (fi_av_insert(near.av, &name, 1, &peer, 0, NULL) != 1)
		wrong("fi_av_insert took no address");
}

static void open_both(bool selective)
{
	close_side(&near);
	close_side(&far);
	if (connectionless)
		introduce(selective);
	else
		connect_both(selective);
	dead = false;
	printf("{}\n");
}

static void record(struct side *s, const struct event *e)
{
	if (s == &near && e->context == MARK) {
		marked = true;
		dead = e->status != 0;
		return;
	}
	if (s->count == MAX_EVENTS)
		wrong("too many completions at once");
	s->events[s->count++] = *e;
}

/* Takes all completions that are in a side's queue. */
static void poll_side(struct side *s)
{
	struct fi_cq_err_entry failed = { 0 };
	struct fi_cq_data_entry entry;
	ssize_t n;

	for (;;) {
		memset(&entry, 0, sizeof(entry));
		n = fi_cq_read(s->cq, &entry, 1);
		if (n == -FI_EAGAIN)
			return;
		if (n == 1) {
			record(s, &(struct event){ (uintptr_t)entry.op_context, entry.flags, entry.len, entry.data, 0, 0 });
			continue;
		}
		if (n != -FI_EAVAIL || fi_cq_readerr(s->cq, &failed, 0) != 1)
			die("fi_cq_read", n);
		record(s, &(struct event){ .context = (uintptr_t)failed.op_context, .err = failed.err,
					   .status = failed.prov_errno ? failed.prov_errno : -failed.err });
	}
}

static void progress(void)
{
	poll_side(&near);
	poll_side(&far);
}

static bool late(time_t since)
{
	return time(NULL) - since > PATIENCE;
}

struct range {
	uint64_t off, len;
	char key;
};

static unsigned int parse_ranges(char *word, bool keys, struct range *r)
{
	unsigned int n = 0;
	char *rest = NULL;

	for (char *s = strtok_r(word, ",", &rest); s; s = strtok_r(NULL, ",", &rest)) {
		if (n == MAX_SPANS)
			wrong("too many ranges");
		r[n].key = 'a';
		if (keys) {
			r[n].key = *s;
			s += 2;
		}
		if (sscanf(s, "%" SCNu64 "+%" SCNu64, &r[n].off, &r[n].len) != 2)
			wrong("a range is OFFSET+LENGTH");
		n++;
	}
	return n;
}

static uint64_t parse_flags(char *word)
{
	uint64_t flags = 0;
	char *rest = NULL;

	if (!strcmp(word, "none"))
		return 0;
	for (char *s = strtok_r(word, "|", &rest); s; s = strtok_r(NULL, "|", &rest)) {
		size_t i = 0;

		while (i < LENGTH(flag_names) && strcmp(s, flag_names[i].name))
			i++;
		if (i == LENGTH(flag_names))
			wrong("no such flag");
		flags |= flag_names[i].flag;
	}
	return flags;
}

static uint64_t key_of(char which)
{
	switch (which) {
	case 'r':
		return fi_mr_key(read_mr);
	case 'w':
		return fi_mr_key(write_mr);
	case 'x':
		return fi_mr_key(all_mr) ^ 0xff;
	default:
		return fi_mr_key(all_mr);
	}
}

struct op {
	const char *call;
	uint64_t flags, data;
	void *context;
	struct iovec iov[MAX_SPANS];
	void *desc[MAX_SPANS];
	size_t iovs;
	struct fi_rma_iov rma[MAX_SPANS];
	size_t rmas;
};

static ssize_t call(const struct op *o)
{
	void *buf = o->iov[0].iov_base, *desc = o->desc[0];
	uint64_t addr = o->rma[0].addr, key = o->rma[0].key;
	size_t len = o->iov[0].iov_len;
	struct fi_msg_rma msg = {
		.msg_iov = o->iov, .desc = (void **)o->desc, .iov_count = o->iovs, .addr = peer,
		.rma_iov = o->rma, .rma_iov_count = o->rmas, .context = o->context, .data = o->data,
	};

	if (!strcmp(o->call, "fi_read"))
		return fi_read(near.ep, buf, len, desc, peer, addr, key, o->context);
	if (!strcmp(o->call, "fi_readv"))
		return fi_readv(near.ep, o->iov, (void **)o->desc, o->iovs, peer, addr, key, o->context);
	if (!strcmp(o->call, "fi_readmsg"))
		return fi_readmsg(near.ep, &msg, o->flags);
	if (!strcmp(o->call, "fi_write"))
		return fi_write(near.ep, buf, len, desc, peer, addr, key, o->context);
	if (!strcmp(o->call, "fi_writev"))
		return fi_writev(near.ep, o->iov, (void **)o->desc, o->iovs, peer, addr, key, o->context);
	if (!strcmp(o->call, "fi_writemsg"))
		return fi_writemsg(near.ep, &msg, o->flags);
	if (!strcmp(o->call, "fi_inject_write"))
		return fi_inject_write(near.ep, buf, len, peer, addr, key);
	if (!strcmp(o->call, "fi_writedata"))
		return fi_writedata(near.ep, buf, len, desc, o->data, peer, addr, key, o->context);
	if (!strcmp(o->call, "fi_inject_writedata"))
		return fi_inject_writedata(near.ep, buf, len, o->data, peer, addr, key);
	wrong("no such call");
	return 0;
}

/*
 * Posts, and returns the errno's name. A connectionless provider returns FI_EAGAIN
 * while it connects; a connected one has room for all that fi-rma posts.
 */
static const char *post(const struct op *o)
{
	time_t since = time(NULL);
	ssize_t err;

	if (o->iovs > info->tx_attr->iov_limit)
		return "iov_limit";
	if (o->rmas > info->tx_attr->rma_iov_limit)
		return "rma_iov_limit";
	while ((err = call(o)) == -FI_EAGAIN && connectionless && !late(since))
		progress();
	return errname((int)-err);
}

static void post_line(char **word)
{
	struct range l[MAX_SPANS], r[MAX_SPANS];
	struct op o = { .call = word[0], .flags = parse_flags(word[1]) };

	o.iovs = parse_ranges(word[2], false, l);
	o.rmas = parse_ranges(word[3], true, r);
	o.data = strtoull(word[4], NULL, 0);
	o.context = (void *)(uintptr_t)strtoull(word[5], NULL, 0);
	for (size_t i = 0; i < o.iovs; i++) {
		o.iov[i] = (struct iovec){ local + l[i].off, l[i].len };
		o.desc[i] = fi_mr_desc(local_mr);
	}
	for (size_t i = 0; i < o.rmas; i++)
		o.rma[i] = (struct fi_rma_iov){ (uintptr_t)remote + r[i].off, r[i].len, key_of(r[i].key) };
	if (post_count == MAX_EVENTS)
		wrong("too many operations at once");
	posts[post_count++] = post(&o);
}

static void recv_line(const char *context)
{
	void *c = (void *)(uintptr_t)strtoull(context, NULL, 0);
	ssize_t err = fi_recv(far.ep, scratch, 8, fi_mr_desc(scratch_mr), FI_ADDR_UNSPEC, c);

	if (err)
		die("fi_recv", err);
}

/* Posts the last write, and waits for its completion. */
static void mark(void)
{
	struct op o = {
		.call = "fi_writemsg", .flags = FI_COMPLETION, .context = (void *)(uintptr_t)MARK,
		.iov = { { scratch, 8 } }, .desc = { fi_mr_desc(scratch_mr) }, .iovs = 1,
		.rma = { { (uintptr_t)scratch + ROOM / 2, 8, fi_mr_key(scratch_mr) } }, .rmas = 1,
	};
	time_t since = time(NULL);

	marked = false;
	if (strcmp(post(&o), "OK")) {
		dead = true;
		progress();
		return;
	}
	while (!marked) {
		if (late(since))
			wrong("nothing completes");
		progress();
	}
	progress();
}

/* FNV-1a, 64 bits. */
static uint64_t hash(const unsigned char *p)
{
	uint64_t h = 0xcbf29ce484222325;

	for (unsigned int i = 0; i < SIZE; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h;
}

static void print_flags(uint64_t flags)
{
	const char *between = "";

	for (size_t i = 0; i < LENGTH(event_names); i++) {
		if (flags & event_names[i].flag) {
			printf("%s%s", between, event_names[i].name);
			between = "|";
		}
	}
}

static void print_events(const char *name, struct side *s)
{
	printf(",\"%s\":[", name);
	for (unsigned int i = 0; i < s->count; i++) {
		const struct event *e = &s->events[i];

		printf("%s{\"context\":%" PRIu64, i ? "," : "", e->context);
		if (e->status) {
			printf(",\"status\":%d,\"err\":\"%s\"}", e->status, errname(e->err));
			continue;
		}
		printf(",\"flags\":\"");
		print_flags(e->flags);
		printf("\"");
		if (e->flags & FI_REMOTE_CQ_DATA)
			printf(",\"data\":%" PRIu64 ",\"len\":%" PRIu64, e->data, e->len);
		printf("}");
	}
	printf("]");
	s->count = 0;
}

static void done(void)
{
	mark();
	printf("{\"posts\":[");
	for (unsigned int i = 0; i < post_count; i++)
		printf("%s\"%s\"", i ? "," : "", posts[i]);
	printf("]");
	post_count = 0;
	print_events("near", &near);
	print_events("far", &far);
	printf(",\"dead\":%s,\"local\":\"%016" PRIx64 "\",\"remote\":\"%016" PRIx64 "\"}\n", dead ? "true" : "false",
	       hash(local), hash(remote));
}

static void line(char **word, int words)
{
	if (!strcmp(word[0], "mode") && words == 2) {
		stop();
		connectionless = !strcmp(word[1], "rdm");
		start();
	} else if (!info) {
		wrong("the mode comes first");
	} else if (!strcmp(word[0], "offers")) {
		offers();
	} else if (!strcmp(word[0], "open")) {
		open_both(words > 1 && !strcmp(word[1], "selective"));
	} else if (!strcmp(word[0], "fill")) {
		fill();
	} else if (!strcmp(word[0], "change")) {
		for (unsigned int i = 0; i < SIZE; i++)
			local[i] ^= 0xff;
	} else if (!strcmp(word[0], "recv") && words == 2) {
		recv_line(word[1]);
	} else if (!strcmp(word[0], "post") && words == 7) {
		post_line(word + 1);
	} else if (!strcmp(word[0], "done")) {
		done();
	} else {
		wrong("an unknown line");
	}
}

/*
 * The start of libfabric takes an emulated processor seconds: libfabric looks for
 * other networks' hardware, and twice for a symbol in all of /proc/kallsyms. Only
 * dma-bufs need the symbol: the provider takes them if it finds
 * ib_umem_dmabuf_get.
 */
static void quick_start(bool dmabufs)
{
	setenv("FI_PROVIDER", "verbs,ofi_rxm", 1);
	if (dmabufs)
		return;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("/dev/null", "/proc/kallsyms", NULL, MS_BIND, NULL))
		fprintf(stderr, "fi-rma: cannot hide /proc/kallsyms, so the start is slow: %s\n", strerror(errno));
}

/* Room for both buffers and scratch, from an exporter if there is one. */
static void allocate(const char *exporter)
{
	const char *stage = "";
	int err;

	if (!exporter) {
		local = mmap(NULL, 2 * SIZE + ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (local == MAP_FAILED)
			die("mmap", errno);
		return;
	}
	err = buffer_alloc(&exported, exporter, 2 * SIZE + ROOM, &stage);
	if (err) {
		fprintf(stderr, "fi-rma: %s: %s: %s\n", exporter, stage, strerror(err));
		exit(1);
	}
	local = exported.map;
}

int main(int argc, char **argv)
{
	char text[1024];

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: fi-rma ADDRESS [EXPORTER] <operations\n");
		return 2;
	}
	address = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	quick_start(argc == 3);
	/* libfabric's cache would merge MRs of one buffer, with the rights of all. */
	setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
	/* ofi_rxm makes room for this many peers: the default exceeds the device's limit. */
	setenv("FI_UNIVERSE_SIZE", "2", 1);
	allocate(argv[2]);
	remote = local + SIZE;
	scratch = remote + SIZE;
	fill();
	while (fgets(text, sizeof(text), stdin)) {
		char *word[8], *rest = NULL;
		int n = 0;

		for (char *s = strtok_r(text, " \n", &rest); s && n < 8; s = strtok_r(NULL, " \n", &rest))
			word[n++] = s;
		if (n)
			line(word, n);
	}
	stop();
	buffer_free(&exported);
	return 0;
}
