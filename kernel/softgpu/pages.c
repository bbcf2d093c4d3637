// SPDX-License-Identifier: GPL-2.0
/* System memory of a buffer, page by page. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "softgpu.h"

static void free_first(struct page **pages, unsigned long n)
{
	while (n--)
		__free_page(pages[n]);
	kvfree(pages);
}

/*
 * Returns NULL if memory is short. A buffer larger than memory must fail here
 * and not invoke the OOM killer.
 */
struct page **softgpu_pages_alloc(struct softgpu_device *gpu, unsigned long n, bool zero)
{
	gfp_t gfp = GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN | (zero ? __GFP_ZERO : 0);
	struct page **pages;
	unsigned long i;

	if (n > totalram_pages())
		return NULL;
	pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL | __GFP_NOWARN);
	if (!pages)
		return NULL;
	for (i = 0; i < n; i++) {
		pages[i] = alloc_page(gfp);
		if (!pages[i]) {
			free_first(pages, i);
			return NULL;
		}
		cond_resched();
	}
	atomic64_add((s64)n << PAGE_SHIFT, &gpu->system_used);
	return pages;
}

void softgpu_pages_free(struct softgpu_device *gpu, struct page **pages, unsigned long n)
{
	if (!pages)
		return;
	free_first(pages, n);
	atomic64_sub((s64)n << PAGE_SHIFT, &gpu->system_used);
}
