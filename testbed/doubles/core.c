// SPDX-License-Identifier: Apache-2.0
/*
 * Knobs, devices, blocks and areas. exporter.c makes the dma-bufs.
 */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exporter.h"

#define MAX_DEVICES 16
#define HUGE_BLOCK ((size_t)2 << 20)
#define POOLED_BELOW ((size_t)1 << 20)
#define POOL_ALIGN 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct area *areas; /* by address */
static uint64_t used[MAX_DEVICES];

/* The block that small allocations of a device come from, and how full it is. */
static struct {
	struct block *block;
	uint64_t addr;
	size_t full;
} pool[MAX_DEVICES];

void core_lock(void) { pthread_mutex_lock(&lock); }
void core_unlock(void) { pthread_mutex_unlock(&lock); }

long core_knob(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 0) : otherwise;
}

bool core_knob_is(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && !strcmp(text, value);
}

/* Calls are counted by function, for "@n" of DOUBLE_FAIL. */
static struct counter {
	char name[64];
	long calls;
	struct counter *next;
} *counters;

static long count(const char *function)
{
	struct counter *c;

	for (c = counters; c; c = c->next)
		if (!strcmp(c->name, function))
			return ++c->calls;
	c = calloc(1, sizeof(*c));
	if (!c)
		return 0;
	snprintf(c->name, sizeof(c->name), "%s", function);
	c->next = counters;
	counters = c;
	return ++c->calls;
}

static int wanted_failure(const char *function, long calls)
{
	const char *p = getenv("DOUBLE_FAIL");
	size_t n = strlen(function);

	while (p && *p) {
		if (!strncmp(p, function, n) && p[n] == '=') {
			char *end;
			long code = strtol(p + n + 1, &end, 0);
			long from = *end == '@' ? strtol(end + 1, NULL, 0) : 1;

			return calls >= from ? (int)code : 0;
		}
		p = strchr(p, ',');
		if (p)
			p++;
	}
	return 0;
}

int core_call(const char *function, const char *format, ...)
{
	const char *path = getenv("DOUBLE_LOG");
	int code = wanted_failure(function, count(function));

	if (path && *path) {
		char line[256];
		int n = snprintf(line, sizeof(line), "%s%s ", function, code ? " (made to fail)" : "");
		int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		va_list args;

		va_start(args, format);
		n += vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, format, args);
		va_end(args);
		if (n > (int)sizeof(line) - 2)
			n = (int)sizeof(line) - 2;
		line[n++] = '\n';
		if (fd >= 0) {
			if (write(fd, line, (size_t)n) < 0)
				perror("double: log");
			close(fd);
		}
	}
	return code;
}

int core_devices(void)
{
	long n = core_knob("DOUBLE_DEVICES", 2);

	return n < 0 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : (int)n;
}

uint64_t core_total(void) { return (uint64_t)core_knob("DOUBLE_MEMORY", 1L << 30); }

uint64_t core_free_bytes(int device)
{
	uint64_t total = core_total();

	return used[device] < total ? total - used[device] : 0;
}

void core_pci(int device, char *out, size_t len)
{
	const char *p = getenv("DOUBLE_PCI");

	for (int i = 0; p && *p; i++) {
		size_t n = strcspn(p, ",");

		if (i == device) {
			snprintf(out, len, "%.*s", (int)n, p);
			return;
		}
		p += n;
		if (*p == ',')
			p++;
	}
	snprintf(out, len, "0000:%02x:00.0", 0xd1 + device);
}

void core_uuid(int device, unsigned char out[16])
{
	for (int i = 0; i < 16; i++)
		out[i] = (unsigned char)(0x10 * device + i);
}

uint64_t core_reserve(size_t size)
{
	size_t all = size + HUGE_BLOCK;
	void *p = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	/* Never unmapped, so that no later mapping gets the same address. */
	if (p == MAP_FAILED)
		return 0;
	return ((uint64_t)(uintptr_t)p + HUGE_BLOCK - 1) & ~(uint64_t)(HUGE_BLOCK - 1);
}

struct block *core_block(size_t size, int device)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct block *b;

	size = (size + page - 1) & ~(page - 1);
	if (core_free_bytes(device) < size)
		return NULL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->size = size;
	b->device = device;
	b->users = 1;
	if (exporter_make(b)) {
		free(b);
		return NULL;
	}
	used[device] += size;
	return b;
}

void core_block_get(struct block *b) { b->users++; }

void core_block_put(struct block *b)
{
	if (--b->users)
		return;
	used[b->device] -= b->size;
	exporter_free(b);
	free(b);
}

size_t core_block_size(const struct block *b) { return b->size; }

struct area *core_map(uint64_t addr, size_t size, struct block *b, size_t offset, int device)
{
	static unsigned long long made;
	struct area **at = &areas, *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->addr = addr;
	a->size = size;
	a->block = b;
	a->offset = offset;
	a->device = device;
	a->id = ++made;
	while (*at && (*at)->addr < addr)
		at = &(*at)->next;
	a->next = *at;
	*at = a;
	core_block_get(b);
	return a;
}

/* A pool's block lives as long as an allocation in it. */
static struct area *alloc_pooled(size_t size, int device)
{
	size_t need = (size + POOL_ALIGN - 1) & ~(size_t)(POOL_ALIGN - 1);
	struct area *a;

	if (!pool[device].block || pool[device].full + need > HUGE_BLOCK) {
		struct block *b = core_block(HUGE_BLOCK, device);
		uint64_t addr = b ? core_reserve(HUGE_BLOCK) : 0;

		if (!addr) {
			if (b)
				core_block_put(b);
			return NULL;
		}
		if (pool[device].block)
			core_block_put(pool[device].block);
		pool[device].block = b;
		pool[device].addr = addr;
		pool[device].full = 0;
	}
	a = core_map(pool[device].addr + pool[device].full, size, pool[device].block, pool[device].full, device);
	if (a)
		pool[device].full += need;
	return a;
}

struct area *core_alloc(size_t size, int device, bool pooled)
{
	struct block *b;
	struct area *a = NULL;
	uint64_t addr;

	if (pooled && size < POOLED_BELOW)
		return alloc_pooled(size, device);
	b = core_block(size, device);
	if (!b)
		return NULL;
	addr = core_reserve(b->size);
	if (addr)
		a = core_map(addr, size, b, 0, device);
	core_block_put(b);
	return a;
}

struct area *core_find(uint64_t addr)
{
	for (struct area *a = areas; a; a = a->next)
		if (addr >= a->addr && addr - a->addr < a->size)
			return a;
	return NULL;
}

struct area *core_behind(uint64_t addr)
{
	struct area *a = areas;

	while (a && a->addr + (a->size - 1) < addr)
		a = a->next;
	return a;
}

struct area *core_owned(const void *owner)
{
	struct area *a = areas;

	while (a && a->owner != owner)
		a = a->next;
	return a;
}

void core_remove(struct area *gone)
{
	struct area **at = &areas;
	int device = gone->device;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	/* After the last allocation only the pool uses its block: drop the block. */
	if (pool[device].block == gone->block && gone->block->users == 2) {
		core_block_put(pool[device].block);
		pool[device].block = NULL;
	}
	core_block_put(gone->block);
	free(gone);
}

enum op { OP_CHECK, OP_READ, OP_WRITE, OP_FILL };

static bool each(uint64_t addr, size_t n, enum op op, unsigned char *mem, int value)
{
	while (n) {
		struct area *a = core_find(addr);
		size_t in, part;
		unsigned char *p;

		if (!a)
			return false;
		in = (size_t)(addr - a->addr);
		part = a->size - in < n ? a->size - in : n;
		p = a->block->host + a->offset + in;
		if (op == OP_READ)
			memcpy(mem, p, part);
		else if (op == OP_WRITE)
			memcpy(p, mem, part);
		else if (op == OP_FILL)
			memset(p, value, part);
		if (mem)
			mem += part;
		addr += part;
		n -= part;
	}
	return true;
}

bool core_read(void *to, uint64_t addr, size_t n)
{
	return each(addr, n, OP_CHECK, NULL, 0) && each(addr, n, OP_READ, to, 0);
}

bool core_write(uint64_t addr, const void *from, size_t n)
{
	return each(addr, n, OP_CHECK, NULL, 0) && each(addr, n, OP_WRITE, (unsigned char *)from, 0);
}

bool core_fill(uint64_t addr, int value, size_t n)
{
	return each(addr, n, OP_CHECK, NULL, 0) && each(addr, n, OP_FILL, NULL, value);
}
