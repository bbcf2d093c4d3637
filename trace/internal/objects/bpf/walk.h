/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The walk over a scatter list. It merges ranges and keeps a bounded number of them; it
 * counts every byte by the kind of memory at its address, however many ranges there are.
 */
#ifndef GPURDMA_WALK_H
#define GPURDMA_WALK_H

#include "state.h"

/* The machine's memory map, sorted; unused windows are at the end, with start ~0 >> 1. */
struct window windows[WINDOWS];

#define SG_CHAIN 1UL
#define SG_END 2UL
/* No page is smaller: memory within one such unit is within one page. */
#define SG_PAGE 4096UL
/* A flag of an entry: its DMA address is PCI's, and nothing translates it. */
#define SG_BUS_ADDRESS 1
/* Every address of the kernel has this bit. */
#define KERNEL_HALF (1UL << 63)
/*
 * The bits that mangle_sg_table() inverts in each page pointer, NULL included, with
 * CONFIG_DMABUF_DEBUG. Linux 7.2 hands out a copy of the list without pages instead.
 */
#define SG_HIDDEN (~0xffUL)
/* No entry has this page. NULL would not do: many entries have it. */
#define NO_PAGE SG_CHAIN

/*
 * The window that contains [addr, addr+size), or WINDOWS if no window contains all of
 * it. The search has no branches, which would multiply the verifier's paths:
 * start - addr - 1 is negative exactly if start <= addr.
 */
__attribute__((noinline)) u32 window_of(u64 addr, u64 size)
{
	u64 i = 0, end = addr + size;

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
		return WINDOWS;
	return i;
}

/* Adds bytes of a kind, that lie between low and high, to a view of the mapping. */
INLINE void add_bytes(struct tally *t, u32 kind, u64 low, u64 high, u64 bytes)
{
	u32 k = kind & (KINDS - 1);

	if (!t->bytes[k] || low < t->low[k])
		t->low[k] = low;
	if (high > t->high[k])
		t->high[k] = high;
	t->bytes[k] += bytes;
}

/* Sets w to the window of [addr, addr+size), which w does not contain. */
INLINE void find_window(struct window *w, u64 addr, u64 size)
{
	u32 i = window_of(addr, size);

	if (i < WINDOWS)
		*w = windows[i & (WINDOWS - 1)];
	else /* of no kind, and empty: the next address is looked up, too */
		w->start = w->end = w->kind = 0;
}

INLINE bool inside(struct window *w, u64 addr, u64 size)
{
	return w->start <= addr && addr < w->end && size <= w->end - addr;
}

INLINE void count(struct tally *t, struct window *last, u64 addr, u64 size)
{
	if (!inside(last, addr, size))
		find_window(last, addr, size);
	add_bytes(t, last->kind, addr, addr + size, size);
	t->entries++;
}

/* Adds the entries that went on where the last one ended, to its range and to the sum. */
INLINE void settle(struct scope *s)
{
	u64 more = s->range_end - s->settled;
	u32 n = s->rec.n_ranges - 1;

	if (!more)
		return;
	s->settled = s->range_end;
	if (n < RANGES) {
		HIDE(n);
		s->rec.ranges[n & (RANGES - 1)].size += more;
	}
	s->plain.bytes += more;
	if (s->range_end > s->plain.high)
		s->plain.high = s->range_end;
}

/* Adds the plain sum since the last change of the window to both views. */
INLINE void flush_plain(struct scope *s)
{
	struct plain *p = &s->plain;

	if (!p->bytes)
		return;
	add_bytes(&s->rec.dma, p->window.kind, p->low, p->high, p->bytes);
	add_bytes(&s->rec.pages, p->window.kind, p->low, p->high, p->bytes);
	p->bytes = 0;
}

/*
 * Counts an entry whose DMA address is the page's, as without an IOMMU all are. One
 * look-up of the window serves both views.
 */
INLINE void count_plain(struct scope *s, u64 addr, u64 size)
{
	struct plain *p = &s->plain;

	if (!inside(&p->window, addr, size)) {
		flush_plain(s);
		find_window(&p->window, addr, size);
		p->low = addr;
		p->high = addr + size;
	}
	if (addr < p->low)
		p->low = addr;
	if (addr + size > p->high)
		p->high = addr + size;
	p->bytes += size;
}

INLINE void add_range(struct scope *s, u64 addr, u64 size)
{
	struct record *r = &s->rec;
	u32 n = r->n_ranges;

	if (addr == s->range_end) {
		s->range_end = s->settled = addr + size;
		if (n - 1 < RANGES)
			r->ranges[(n - 1) & (RANGES - 1)].size += size;
		return;
	}
	s->range_end = s->settled = addr + size;
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
	struct window none = {};

	count(&r->res, &none, phys, size);
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

/*
 * Physical address of a page, by its place in the kernel's array of all pages. 0: it is
 * unknown. With the array at ~0 all are unknown.
 */
INLINE u64 page_address(u64 base, u64 page, u32 shift)
{
	u64 size = TYPE_SIZE(struct page), n;

	if (page < base || !size)
		return 0;
	if (size == 64) /* a shift is a tenth of a division */
		n = (page - base) >> 6;
	else
		n = (page - base) / size;
	return n << (shift & 31);
}

/*
 * Reads as many entries as are left, at most BLOCK and to the end of the page: the page
 * that holds an entry is readable as a whole.
 */
INLINE bool read_block(struct scope *s, u64 size)
{
	u64 n = (SG_PAGE - (s->sg & (SG_PAGE - 1))) / size;

	if (n > s->stop - s->entry)
		n = s->stop - s->entry;
	if (n > BLOCK)
		n = BLOCK;
	if (!n)
		n = 1;
	HIDE(n);
	n &= 2 * BLOCK - 1;
	if (n > BLOCK || read_kernel(s->block, n * size, (void *)s->sg)) {
		s->rec.have |= HAVE_BAD_CHAIN;
		return false;
	}
	s->sg += n * size;
	s->at = 0;
	s->filled = n * size;
	return true;
}

/*
 * Whether an entry's DMA addresses are within its physical range. They may begin inside it:
 * for a registration of a part of the buffer, the umem advances the first entry's address,
 * and shortens the first and the last entry, in the list that the attachment keeps.
 */
INLINE bool in_place(u64 phys, u64 size, u64 dma, u64 dma_size)
{
	return dma >= phys && dma - phys <= size && dma_size <= size - (dma - phys);
}

/*
 * Looks at one entry of the list. True: there is none behind it. The verifier checks a
 * global function once, for all states of its callers. In line, this one would cost the
 * verifier of Linux 7.2 560,000 instructions, of a million that it allows.
 */
__attribute__((noinline)) int walk_entry(struct scope *s)
{
	u64 link, dma, dma_size, page, phys = 0, size = TYPE_SIZE(struct scatterlist);
	struct record *r;
	char *raw;

	if (!s)
		return true;
	r = &s->rec;
	if (s->at >= s->filled && !read_block(s, size))
		return true;
	raw = (char *)s->block + (s->at & (sizeof(s->block) - 1));
	s->at += size;
#define RAW(type, f) (*(typeof(((type *)0)->f) *)(raw + FIELD_OFFSET(type, f)))
#define FLAGS() (FIELD_EXISTS(struct scatterlist___flags, dma_flags) ? \
		 RAW(struct scatterlist___flags, dma_flags) : 0)
#define ADD_FLAGS() (r->dma_flags |= FLAGS())
	link = RAW(struct scatterlist, page_link);
	if (link & SG_CHAIN) { /* leads on, and is no entry itself */
		s->sg = link & ~(SG_CHAIN | SG_END);
		s->filled = 0;
		return false;
	}
	s->entry++;
	dma = RAW(struct scatterlist, dma_address);
	dma_size = RAW(struct scatterlist, dma_length);
	size = RAW(struct scatterlist, length);
	page = link & ~(SG_CHAIN | SG_END);
	/* Most entries go on where the one before ended, and are of the same kind. */
	if (page == s->next_page && dma == s->range_end && size && size == dma_size &&
	    !(dma & s->page_mask) && !RAW(struct scatterlist, offset) &&
	    size <= s->plain.window.end - dma) {
		s->range_end = dma + size;
		s->next_page = page + (size >> (s->shift & 31)) * TYPE_SIZE(struct page);
		ADD_FLAGS();
		goto out;
	}
	settle(s);
	s->next_page = NO_PAGE;
	if (page == SG_HIDDEN)
		page = 0;
	else if (page && !(page & KERNEL_HALF))
		page ^= SG_HIDDEN;
	if (page)
		phys = page_address(s->vmemmap, page, s->shift);
	if (phys)
		phys += RAW(struct scatterlist, offset);
	/* Entries behind nents may hold what a former mapping left. */
	if (!s->even) {
		if (s->entry > r->nents)
			dma_size = 0;
		if (s->entry > r->orig_nents)
			page = 0;
	}
	if (dma_size) {
		add_range(s, dma, dma_size);
		ADD_FLAGS();
	}
	if (phys && phys == dma && size && size == dma_size && s->even) {
		count_plain(s, dma, size);
		if (s->plain.window.end) /* 0: it is in no window */
			s->next_page = page + ((RAW(struct scatterlist, offset) + size) >> (s->shift & 31)) *
				TYPE_SIZE(struct page);
	} else {
		s->odd++;
		if (dma_size)
			count(&r->dma, &s->dma_window, dma, dma_size);
		if (page && size) {
			if (phys)
				count(&r->pages, &s->page_window, phys, size);
			else
				r->opaque += size;
			/* A bus address may differ from the physical address of the same memory. */
			if (phys && s->even && !in_place(phys, size, dma, dma_size) &&
			    !(FLAGS() & SG_BUS_ADDRESS))
				r->displaced += size;
		}
	}
#undef ADD_FLAGS
#undef FLAGS
#undef RAW
out:
	if (link & SG_END)
		s->done = 1;
	return (link & SG_END) || s->entry >= s->stop;
}

/* Four entries at a time, because the callback's call costs as much as an entry. */
static long walk_entries(u32 index, struct scope **w)
{
	struct scope *s = *w;

	return walk_entry(s) || walk_entry(s) || walk_entry(s) || walk_entry(s);
}

/* Reads a table that a map call returned, or that attach keeps. */
INLINE void walk_table(struct scope *s, struct config *c, struct sg_table *t)
{
	struct record *r = &s->rec;
	u64 size = TYPE_SIZE(struct scatterlist);

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
	__builtin_memset(&s->plain, 0, sizeof(s->plain));
	__builtin_memset(&s->dma_window, 0, sizeof(s->dma_window));
	__builtin_memset(&s->page_window, 0, sizeof(s->page_window));
	s->sg = (u64)READ(t, sgl);
	s->entry = s->odd = s->done = 0;
	s->at = s->filled = 0;
	s->range_end = s->settled = ~0ULL;
	s->next_page = NO_PAGE;
	s->shift = c->page_shift;
	s->page_mask = (1ULL << (s->shift & 31)) - 1;
	s->even = r->nents == r->orig_nents;
	s->entries = r->nents > r->orig_nents ? r->nents : r->orig_nents;
	s->stop = s->entries < c->walk ? s->entries : c->walk;
	s->vmemmap = c->pages;
	if (c->vmemmap)
		read_kernel(&s->vmemmap, sizeof(s->vmemmap), (void *)c->vmemmap);
	if (!s->vmemmap)
		s->vmemmap = ~0ULL;
	/* A block of larger entries would not fit into s->block. */
	if (size && size <= ENTRY_SIZE && s->stop)
		loop(s->stop, walk_entries, &s, 0);
	settle(s);
	flush_plain(s);
	r->dma.entries += s->entry - s->odd;
	r->pages.entries += s->entry - s->odd;
	if (s->entry < s->entries && !s->done)
		r->have |= HAVE_WALK_CUT;
}

#endif
