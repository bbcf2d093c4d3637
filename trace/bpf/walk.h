/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The walk over a scatter list: ranges merged and bounded, and every byte
 * counted by what lies at its address, however many ranges there are.
 */
#ifndef GPURDMA_WALK_H
#define GPURDMA_WALK_H

#include "state.h"

/* The machine's memory map, sorted, unused ones at the end with start ~0 >> 1. */
struct window windows[WINDOWS];

#define SG_CHAIN 1UL
#define SG_END 2UL

/* The window of the last search: a buffer's pages mostly lie in one. */
u32 last_window;

/*
 * Which kind of memory [addr, addr+size) is; 0 if it is in no window, or
 * leaves one. The search has no branches, which would multiply the verifier's
 * paths: start - addr - 1 is negative exactly if start <= addr.
 */
__attribute__((noinline)) u32 kind_of(u64 addr, u64 size)
{
	u64 i = last_window & (WINDOWS - 1), end = addr + size;

	if (windows[i].start <= addr && end <= windows[i].end && end > addr)
		return windows[i].kind & (KINDS - 1);
	i = 0;
#pragma clang loop unroll(full)
	for (u32 half = WINDOWS / 2; half; half /= 2) {
		u64 j, below;

		HIDE(i);
		j = (i + half) & (WINDOWS - 1);
		below = (windows[j].start - addr - 1) >> 63;

		i += half & -below;
	}
	HIDE(i);
	i &= WINDOWS - 1;
	if (windows[i].start > addr || end > windows[i].end || end <= addr)
		return 0;
	last_window = i;
	return windows[i].kind & (KINDS - 1);
}

INLINE void count(struct tally *t, u64 addr, u64 size)
{
	u32 k = kind_of(addr, size) & (KINDS - 1);

	if (!t->bytes[k] || addr < t->low[k])
		t->low[k] = addr;
	if (addr + size > t->high[k])
		t->high[k] = addr + size;
	t->bytes[k] += size;
	t->entries++;
}

INLINE void add_range(struct record *r, u64 addr, u64 size)
{
	u32 n = r->n_ranges;
	struct range *last = &r->ranges[(n - 1) & (RANGES - 1)];

	if (n && n <= RANGES && last->start + last->size == addr) {
		last->size += size;
		return;
	}
	r->n_ranges = n + 1;
	if (n >= RANGES)
		return;
	r->ranges[n & (RANGES - 1)].start = addr;
	r->ranges[n & (RANGES - 1)].size = size;
}

INLINE void add_resource(struct record *r, u64 phys, u64 dma, u64 size)
{
	u32 n = r->n_resources;
	struct resource *last = &r->resources[(n - 1) & (RESOURCES - 1)];

	count(&r->res, phys, size);
	if (n && n <= RESOURCES && last->phys + last->size == phys &&
	    last->dma + last->size == dma) {
		last->size += size;
		return;
	}
	r->n_resources = n + 1;
	if (n >= RESOURCES)
		return;
	r->resources[n & (RESOURCES - 1)].phys = phys;
	r->resources[n & (RESOURCES - 1)].dma = dma;
	r->resources[n & (RESOURCES - 1)].size = size;
}

/* Physical address of a page, by the kernel's array of all pages; 0: unknown. */
INLINE u64 page_address(u64 base, u64 page, u32 shift)
{
	u64 size = TYPE_SIZE(struct page);

	if (!base || page < base || !size)
		return 0;
	return ((page - base) / size) << (shift & 31);
}

struct walk {
	struct scope *s;
	u32 shift;
	u32 pad;
};

static long walk_entry(u32 index, struct walk *w)
{
	struct scope *s = w->s;
	struct record *r = &s->rec;
	u64 link, size, dma, dma_size, page, phys;
	struct scatterlist *sg = (void *)s->sg;
	u64 raw[8];

	if (s->entry >= s->entries) {
		s->done = 1;
		return 1;
	}
	/* One read for the whole entry; larger ones than 64 bytes are unknown. */
	size = TYPE_SIZE(struct scatterlist);
	if (size > sizeof(raw))
		return 1;
	if (read_kernel(raw, size, sg)) {
		r->have |= HAVE_BAD_CHAIN;
		return 1;
	}
#define RAW(type, f) (*(typeof(((type *)0)->f) *)((char *)raw + FIELD_OFFSET(type, f)))
	link = RAW(struct scatterlist, page_link);
	if (link & SG_CHAIN) { /* leads on, and is no entry itself */
		s->sg = link & ~(SG_CHAIN | SG_END);
		return 0;
	}
	s->sg += size;
	s->entry++;
	dma = RAW(struct scatterlist, dma_address);
	dma_size = RAW(struct scatterlist, dma_length);
	/* Entries behind nents may hold what a former mapping left. */
	if (s->entry <= r->nents && dma_size) {
		count(&r->dma, dma, dma_size);
		add_range(r, dma, dma_size);
		if (FIELD_EXISTS(struct scatterlist___flags, dma_flags))
			r->dma_flags |= RAW(struct scatterlist___flags, dma_flags);
	}
	size = RAW(struct scatterlist, length);
	page = link & ~(SG_CHAIN | SG_END);
	if (s->entry <= r->orig_nents && page && size) {
		phys = page_address(s->vmemmap, page, w->shift);
		if (phys) {
			phys += RAW(struct scatterlist, offset);
			count(&r->pages, phys, size);
			if (r->nents == r->orig_nents && dma != phys)
				r->displaced += size;
		} else {
			r->opaque += size;
		}
	}
#undef RAW
	if (s->entry >= s->entries || (link & SG_END)) {
		s->done = 1;
		return 1;
	}
	return 0;
}

/* Reads a table that a map call returned, or that attach keeps. */
INLINE void walk_table(struct scope *s, struct config *c, struct sg_table *t)
{
	struct record *r = &s->rec;
	struct walk w = { .s = s, .shift = c->page_shift };
	u32 limit = c->walk;

	r->have |= HAVE_MAP;
	r->sgt = (u64)t;
	r->mapped_at = ktime();
	r->nents = READ(t, nents);
	r->orig_nents = READ(t, orig_nents);
	r->n_ranges = 0;
	r->dma_flags = 0;
	r->displaced = 0;
	r->opaque = 0;
	r->have &= ~(HAVE_WALK_CUT | HAVE_BAD_CHAIN);
	__builtin_memset(&r->dma, 0, sizeof(r->dma));
	__builtin_memset(&r->pages, 0, sizeof(r->pages));
	s->sg = (u64)READ(t, sgl);
	s->entry = 0;
	s->done = 0;
	s->entries = r->nents > r->orig_nents ? r->nents : r->orig_nents;
	s->vmemmap = 0;
	if (c->vmemmap)
		read_kernel(&s->vmemmap, sizeof(s->vmemmap), (void *)c->vmemmap);
	loop(limit, walk_entry, &w, 0);
	if (!s->done)
		r->have |= HAVE_WALK_CUT;
}

#endif
