// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned int flag;
} access_names[] = {
	{ "lw", IBV_ACCESS_LOCAL_WRITE },
	{ "rw", IBV_ACCESS_REMOTE_WRITE },
	{ "rr", IBV_ACCESS_REMOTE_READ },
	{ "ra", IBV_ACCESS_REMOTE_ATOMIC },
	{ "mw", IBV_ACCESS_MW_BIND },
	{ "ro", IBV_ACCESS_RELAXED_ORDERING },
};

#define N_ACCESS (sizeof(access_names) / sizeof(access_names[0]))

void options_usage(FILE *to)
{
	fprintf(to,
"usage: dmabuf-mr verify|bench|selftest [options]\n"
"  --exporter SPEC   vgem, virtio_gpu, /dev/dri/cardN, udmabuf, heap:NAME, fd:N (vgem)\n"
"  --route ROUTE     auto, provider or ioctl (auto)\n"
"  --device NAME     RDMA device (the first one)\n"
"  --port N          (1)\n"
"  --gid N           index of the GID (first RoCE v2 one, IPv4 preferred)\n"
"  --size N          bytes to allocate; k, m and g may follow a number (1m)\n"
"  --offset N        start of the MR in the buffer (0)\n"
"  --length N        length of the MR (to the end of the buffer)\n"
"  --iova N          address of the MR (the offset)\n"
"  --access LIST     of lw,rw,rr,ra,mw,ro, or a number (lw,rw,rr,ra)\n"
"bench:\n"
"  --operation OP    register, write or read (register)\n"
"  --count N         rounds (1000)\n"
"  --output FILE     one line of nanoseconds per round\n"
"selftest:\n"
"  --only NAME       run this test alone\n"
"  --stock           the rxe module is the distribution's\n");
}

static bool number(const char *text, uint64_t *to)
{
	char *end;
	int shift = 0;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*to = strtoull(text, &end, 0);
	if (errno)
		return false;
	switch (*end) {
	case 'k':
		shift = 10;
		break;
	case 'm':
		shift = 20;
		break;
	case 'g':
		shift = 30;
		break;
	case '\0':
		return true;
	default:
		return false;
	}
	if (end[1] || *to > UINT64_MAX >> shift)
		return false;
	*to <<= shift;
	return true;
}

static bool access_flags(const char *list, unsigned int *to)
{
	uint64_t n;

	if (number(list, &n)) {
		*to = (unsigned int)n;
		return n <= UINT32_MAX;
	}
	*to = 0;
	while (*list) {
		size_t len = strcspn(list, ","), i;

		for (i = 0; i < N_ACCESS; i++) {
			if (strlen(access_names[i].name) == len &&
			    strncmp(list, access_names[i].name, len) == 0)
				break;
		}
		if (i == N_ACCESS)
			return false;
		*to |= access_names[i].flag;
		list += len;
		if (*list == ',')
			list++;
	}
	return true;
}

static bool route(const char *name, enum route *to)
{
	for (enum route r = ROUTE_AUTO; r <= ROUTE_IOCTL; r++) {
		if (strcmp(route_name(r), name) == 0) {
			*to = r;
			return true;
		}
	}
	return false;
}

static bool one_of(const char *s, const char *const *list)
{
	for (; *list; list++) {
		if (strcmp(s, *list) == 0)
			return true;
	}
	return false;
}

bool options_parse(struct options *o, int argc, char **argv)
{
	static const char *const commands[] = { "verify", "bench", "selftest", NULL };
	static const char *const operations[] = { "register", "write", "read", NULL };
	static const struct option names[] = {
		{ "exporter", required_argument, NULL, 'e' },
		{ "route", required_argument, NULL, 'r' },
		{ "device", required_argument, NULL, 'd' },
		{ "port", required_argument, NULL, 'p' },
		{ "gid", required_argument, NULL, 'g' },
		{ "size", required_argument, NULL, 's' },
		{ "offset", required_argument, NULL, 'o' },
		{ "length", required_argument, NULL, 'l' },
		{ "iova", required_argument, NULL, 'i' },
		{ "access", required_argument, NULL, 'a' },
		{ "operation", required_argument, NULL, 'O' },
		{ "count", required_argument, NULL, 'c' },
		{ "output", required_argument, NULL, 'f' },
		{ "only", required_argument, NULL, 't' },
		{ "stock", no_argument, NULL, 'S' },
		{ 0 },
	};
	uint64_t n;
	int c;

	*o = (struct options){
		.exporter = "vgem",
		.operation = "register",
		.port = 1,
		.gid_index = -1,
		.size = 1 << 20,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.count = 1000,
	};
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		n = 0;
		if (strchr("pgsolic", c) && !number(optarg, &n))
			return false;
		switch (c) {
		case 'e':
			o->exporter = optarg;
			break;
		case 'r':
			if (!route(optarg, &o->route))
				return false;
			break;
		case 'd':
			o->device = optarg;
			break;
		case 'p':
			if (n < 1 || n > 255)
				return false;
			o->port = (uint8_t)n;
			break;
		case 'g':
			if (n > 255)
				return false;
			o->gid_index = (int)n;
			break;
		case 's':
			o->size = n;
			break;
		case 'o':
			o->range.offset = n;
			break;
		case 'l':
			o->range.length = n;
			o->length_given = true;
			break;
		case 'i':
			o->range.iova = n;
			o->iova_given = true;
			break;
		case 'a':
			if (!access_flags(optarg, &o->access))
				return false;
			break;
		case 'O':
			if (!one_of(optarg, operations))
				return false;
			o->operation = optarg;
			break;
		case 'c':
			if (n < 1 || n > 10000000)
				return false;
			o->count = n;
			break;
		case 'f':
			o->output = optarg;
			break;
		case 't':
			o->only = optarg;
			break;
		case 'S':
			o->stock = true;
			break;
		default:
			return false;
		}
	}
	if (!o->iova_given)
		o->range.iova = o->range.offset;
	if (optind != argc - 1 || !one_of(argv[optind], commands))
		return false;
	o->command = argv[optind];
	return true;
}
