// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Compares the walk with one that looks at each entry alone, over random scatter lists:
 * with and without pages, translated, with fewer DMA addresses than entries, in chunks
 * of any length and place, and cut off by the bound of the walk.
 */
#include "host.h"
#include "../../bpf/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST 500
#define PAGE 4096UL
#define AREA (PAGE * (MOST + 2))

struct entry {
	u64 page;
	u64 dma;
	u32 offset;
	u32 length;
	u32 dma_length;
};

static const u64 vmemmap = 0xffffea0000000000ULL;

static u32 any(u32 n)
{
	static u64 x = 88172645463325252ULL;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (x >> 16) % n;
}

/* How a list may differ from memory with pages, mapped at its physical addresses. */
enum { PLAIN, NO_PAGES, TRANSLATED, ODD, MODES };

static void make(struct entry *e, int n, int mode)
{
	u64 next = PAGE * (1 + any(0x4f));

	for (int i = 0; i < n; i++, e++) {
		u64 at = any(3) ? next : PAGE * any(0x58);
		u32 r = any(100);

		e->offset = any(10) ? 0 : any(PAGE);
		e->length = e->dma_length = any(10) ? PAGE * (1 + any(3)) : 1 + any(3 * PAGE);
		e->page = vmemmap + at / PAGE * sizeof(struct page);
		e->dma = (at & ~(PAGE - 1)) + e->offset;
		next = e->dma + e->length;
		if (mode == NO_PAGES && r < 40)
			e->page = 0; /* amdgpu and xe: the length stays */
		if (mode == NO_PAGES && r < 5)
			e->length = e->offset = 0; /* vfio-pci: the length is 0, too */
		if (mode == TRANSLATED && r < 20)
			e->dma += 0x100000;
		if (mode == TRANSLATED && r >= 95)
			e->dma_length = PAGE * any(4);
		if (mode == ODD && r < 10)
			e->page = 0;
		if (mode == ODD && r >= 10 && r < 20)
			e->dma_length = 0;
		if (mode == ODD && r >= 20 && r < 25)
			e->length = 0;
		if (mode == ODD && r >= 25 && r < 30)
			e->page = vmemmap - PAGE; /* outside the array of pages */
		if (mode == ODD && r >= 30 && r < 40 && e->length > 2 * PAGE) { /* a registered part */
			e->dma += PAGE;
			e->dma_length = e->length - PAGE * (1 + any(2));
		}
	}
}

/* Writes the list as the kernel lays it out, with noise around it. */
static struct scatterlist *lay_out(char *area, struct entry *e, int n)
{
	u64 size = sizeof(struct scatterlist), page = (u64)area, at = page + size * any(100);
	int chunk = any(2) ? 127 : 1 + any(20), in = 0, hidden = !any(4);
	struct scatterlist *first = (void *)at, *g;

	memset(area, 0x5a, AREA);
	for (int i = 0; i < n; i++, in++, at += size) {
		if (i && (in >= chunk || (at & (PAGE - 1)) == PAGE - size)) {
			page += PAGE;
			g = (void *)at;
			at = page + (any(2) ? 0 : size * any(60));
			g->page_link = at | SG_CHAIN;
			in = 0;
		}
		g = (void *)at;
		g->page_link = (hidden ? e[i].page ^ ~0xffUL : e[i].page) | (i == n - 1 ? SG_END : 0);
		g->offset = e[i].offset;
		g->length = e[i].length;
		g->dma_address = e[i].dma;
		g->dma_length = e[i].dma_length;
	}
	return first;
}

static void tell(struct tally *t, u64 at, u64 size)
{
	u32 kind = 0;

	for (int i = 0; i < WINDOWS; i++)
		if (windows[i].start <= at && at + size <= windows[i].end)
			kind = windows[i].kind;
	if (!t->bytes[kind] || at < t->low[kind])
		t->low[kind] = at;
	if (at + size > t->high[kind])
		t->high[kind] = at + size;
	t->bytes[kind] += size;
	t->entries++;
}

/* Computes the same record entry by entry. */
static void look(struct record *r, struct entry *e, u32 n)
{
	u64 end = ~0ULL;

	for (u32 i = 0; i < n; i++, e++) {
		u64 phys = e->page >= vmemmap ? (e->page - vmemmap) / sizeof(struct page) * PAGE : 0;

		if (phys)
			phys += e->offset;
		if (i < r->nents && e->dma_length) {
			tell(&r->dma, e->dma, e->dma_length);
			if (e->dma != end && r->n_ranges++ < RANGES)
				r->ranges[r->n_ranges - 1].start = e->dma;
			if (r->n_ranges <= RANGES)
				r->ranges[r->n_ranges - 1].size += e->dma_length;
			end = e->dma + e->dma_length;
		}
		if (!e->page || !e->length)
			continue;
		if (!phys) {
			r->opaque += e->length;
			continue;
		}
		tell(&r->pages, phys, e->length);
		if (r->nents == r->orig_nents &&
		    (e->dma < phys || e->dma + e->dma_length > phys + e->length))
			r->displaced += e->length;
	}
}

static bool same_tally(struct tally *a, struct tally *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof(a->bytes)) && !memcmp(a->low, b->low, sizeof(a->low)) &&
	       !memcmp(a->high, b->high, sizeof(a->high));
}

static bool same(struct record *a, struct record *b)
{
	u32 kept = b->n_ranges < RANGES ? b->n_ranges : RANGES;

	return a->n_ranges == b->n_ranges && !memcmp(a->ranges, b->ranges, kept * sizeof(struct range)) &&
	       same_tally(&a->dma, &b->dma) && same_tally(&a->pages, &b->pages) &&
	       a->displaced == b->displaced && a->opaque == b->opaque && a->have == b->have;
}

int main(void)
{
	static const struct window map[] = {
		{0x1000, 0x9000, 1}, {0x9000, 0x10000, 1}, {0x10000, 0x20000, 2}, {0x30000, 0x40000, 2}, {0x40000, 0x50000, 3},
	};
	char *area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static struct config c = {.page_shift = 12, .vmemmap = (u64)&vmemmap};
	static struct entry list[MOST];
	static struct scope s;
	int bad[MODES] = {0}, all = 0;

	for (int i = 0; i < WINDOWS; i++)
		windows[i].start = ~0ULL >> 1;
	memcpy(windows, map, sizeof(map));
	for (int i = 0; i < 5000; i++) {
		int mode = any(MODES), n = 1 + any(any(4) ? 20 : MOST - 1);
		struct sg_table t = {.orig_nents = n, .nents = any(4) ? n : any(n + 1)};
		struct record want = {.nents = t.nents, .orig_nents = n, .have = HAVE_MAP};

		make(list, n, mode);
		t.sgl = lay_out(area, list, n);
		c.walk = any(5) ? 1 << 16 : 1 + any(n);
		if (c.walk < n)
			want.have |= HAVE_WALK_CUT;
		look(&want, list, c.walk < n ? c.walk : n);
		s.rec.have = 0;
		walk_table(&s, &c, &t);
		if (same(&s.rec, &want))
			continue;
		if (!bad[mode]++)
			printf("list %d, mode %d, %u entries of which %u have addresses, %u read: %u ranges, %u expected\n",
			       i, mode, n, t.nents, s.entry, s.rec.n_ranges, want.n_ranges);
		all++;
	}
	if (all)
		printf("wrong lists: %d plain, %d without pages, %d translated, %d odd\n", bad[0], bad[1], bad[2], bad[3]);
	return all != 0;
}
