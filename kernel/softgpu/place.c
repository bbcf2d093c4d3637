// SPDX-License-Identifier: GPL-2.0
/*
 * Where a buffer is, and how it gets elsewhere. All of it runs with the
 * buffer's reservation lock.
 *
 * Neither the CPU nor a peer reaches VRAM beyond the BAR, so its contents are
 * kept in pages that no interface shows.
 */
#include <linux/highmem.h>
#include <linux/io.h>

#include <drm/drm_vma_manager.h>

#include "softgpu.h"

/* Memory of one place, while a buffer is on its way. */
struct home {
	enum softgpu_place place;
	struct drm_mm_node *node;
	struct page **pages;
};

static bool in_bar(struct softgpu_device *gpu, const struct home *home)
{
	return home->place == SOFTGPU_VRAM &&
	       home->node->start + home->node->size <= gpu->visible_size;
}

static void home_free(struct softgpu_device *gpu, struct home *home, unsigned long npages)
{
	softgpu_vram_free(gpu, home->node);
	softgpu_pages_free(gpu, home->pages, npages);
	memset(home, 0, sizeof(*home));
}

/* A buffer can be evicted for another one's sake while it is on the list. */
static void home_take(struct softgpu_device *gpu, struct softgpu_bo *bo, struct home *home)
{
	home->place = bo->place;
	home->node = bo->node;
	home->pages = bo->pages;
	mutex_lock(&gpu->vram_lock);
	list_del_init(&bo->lru);
	mutex_unlock(&gpu->vram_lock);
	bo->place = SOFTGPU_NOWHERE;
	bo->node = NULL;
	bo->pages = NULL;
}

static void home_give(struct softgpu_device *gpu, struct softgpu_bo *bo, struct home *home)
{
	bo->place = home->place;
	bo->node = home->node;
	bo->pages = home->pages;
	if (home->place == SOFTGPU_VRAM) {
		mutex_lock(&gpu->vram_lock);
		list_add_tail(&bo->lru, &gpu->lru);
		mutex_unlock(&gpu->vram_lock);
	}
}

static int home_alloc(struct softgpu_device *gpu, struct softgpu_bo *bo,
		      struct home *home, enum softgpu_place place, bool visible)
{
	struct drm_mm_node *node;

	memset(home, 0, sizeof(*home));
	if (place == SOFTGPU_VRAM) {
		node = softgpu_vram_alloc(bo, visible);
		if (IS_ERR(node))
			return PTR_ERR(node);
		home->node = node;
	}
	home->place = place;
	if (!in_bar(gpu, home)) {
		home->pages = softgpu_pages_alloc(gpu, bo_npages(bo), !bo->place);
		if (!home->pages) {
			home_free(gpu, home, bo_npages(bo));
			return -ENOMEM;
		}
	}
	return 0;
}

static void copy_page_between(struct softgpu_device *gpu, struct home *to,
			      struct home *from, unsigned long i)
{
	u64 offset = (u64)i << PAGE_SHIFT;
	void *kaddr;

	if (in_bar(gpu, from)) {
		kaddr = kmap_local_page(to->pages[i]);
		memcpy_fromio(kaddr, gpu->bar + from->node->start + offset, PAGE_SIZE);
		kunmap_local(kaddr);
	} else if (in_bar(gpu, to)) {
		kaddr = kmap_local_page(from->pages[i]);
		memcpy_toio(gpu->bar + to->node->start + offset, kaddr, PAGE_SIZE);
		kunmap_local(kaddr);
	} else {
		copy_highpage(to->pages[i], from->pages[i]);
	}
}

static void copy(struct softgpu_device *gpu, struct home *to, struct home *from,
		 unsigned long npages)
{
	unsigned long i;

	if (in_bar(gpu, to))
		softgpu_vram_filled(gpu, to->node->start, to->node->size);
	if (in_bar(gpu, from))
		softgpu_vram_show(gpu, from->node->start, from->node->size);
	for (i = 0; i < npages; i++) {
		copy_page_between(gpu, to, from, i);
		cond_resched();
	}
}

/*
 * Makes importers and CPUs let go of where the buffer is now. Importers may
 * leave fences that say when they have; those are waited for.
 */
static int let_go(struct softgpu_device *gpu, struct softgpu_bo *bo)
{
	long ret;

	/*
	 * All attached importers are told, whether they have addresses or not, and
	 * even the one whose pin causes the move: so does xe_bo_move_notify(), and
	 * amdgpu_bo_move_notify() when the buffer leaves VRAM or GTT. i915, nvidia
	 * and vfio move no buffer that is attached.
	 */
	if (bo->dmabuf)
		softgpu_invalidate(bo->dmabuf);
	drm_vma_node_unmap(&bo->base.vma_node, gpu->drm.anon_inode->i_mapping);
	ret = dma_resv_wait_timeout(bo->base.resv, DMA_RESV_USAGE_BOOKKEEP, false,
				    MAX_SCHEDULE_TIMEOUT);
	return ret < 0 ? ret : 0;
}

static int move(struct softgpu_bo *bo, enum softgpu_place place, bool visible)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	struct home from, to;
	unsigned int delay;
	int ret;

	dma_resv_assert_held(bo->base.resv);
	if (bo->lost)
		return -ENODEV;
	if (bo->pins)
		return -EBUSY;
	ret = softgpu_fail(gpu, SOFTGPU_OP_MOVE);
	if (ret && bo->place != SOFTGPU_NOWHERE)
		return ret;
	ret = home_alloc(gpu, bo, &to, place, visible);
	if (ret)
		return ret;
	if (bo->place == SOFTGPU_NOWHERE) {
		home_give(gpu, bo, &to);
		return 0;
	}
	ret = let_go(gpu, bo);
	if (ret) {
		home_free(gpu, &to, bo_npages(bo));
		return ret;
	}
	home_take(gpu, bo, &from);
	copy(gpu, &to, &from, bo_npages(bo));
	home_free(gpu, &from, bo_npages(bo));
	home_give(gpu, bo, &to);

	/* A real GPU's copy engine is still busy at this point. */
	delay = READ_ONCE(gpu->fence_delay_ms);
	if (delay)
		return softgpu_fence_add(bo, delay, DMA_RESV_USAGE_KERNEL);
	return 0;
}

static bool good(struct softgpu_bo *bo, u32 places, bool visible)
{
	if (!(bo->place & places))
		return false;
	/* System memory is where it waits until there is VRAM again. */
	if (bo->place == SOFTGPU_SYSTEM && (places & bo->preferred & SOFTGPU_VRAM))
		return false;
	return !visible || bo->place == SOFTGPU_SYSTEM || bo_in_bar(bo);
}

/* The place of these that the buffer would rather be in. */
static u32 favourite(struct softgpu_bo *bo, u32 places)
{
	if (places & bo->preferred & SOFTGPU_VRAM)
		return SOFTGPU_VRAM;
	return places & SOFTGPU_SYSTEM ? SOFTGPU_SYSTEM : places;
}

/*
 * Puts the buffer into one of the places, the one it prefers first. visible: if
 * VRAM, then inside the BAR.
 */
int softgpu_bo_validate(struct softgpu_bo *bo, u32 places, bool visible)
{
	int ret = -EINVAL;
	u32 place;

	dma_resv_assert_held(bo->base.resv);
	if (bo->lost)
		return -ENODEV;
	places &= bo->allowed;
	if (good(bo, places, visible)) {
		softgpu_vram_touch(bo);
		return 0;
	}
	while (places) {
		place = favourite(bo, places);
		/* Already in the second best place, and there is no better. */
		if (place == SOFTGPU_SYSTEM && bo->place == SOFTGPU_SYSTEM)
			return 0;
		ret = move(bo, place, visible);
		if (!ret)
			return 0;
		places &= ~place;
	}
	return ret;
}

/*
 * Makes the buffer reachable for the CPU: it stays where it is if it can, else
 * the BAR is tried and then system memory, as amdgpu and i915 do in their fault
 * handlers (amdgpu_bo_fault_reserve_notify(), vm_fault_ttm()).
 */
int softgpu_bo_validate_cpu(struct softgpu_bo *bo)
{
	if (bo->lost)
		return -ENODEV;
	if (bo->place == SOFTGPU_SYSTEM || bo_in_bar(bo))
		return 0;
	return softgpu_bo_validate(bo, SOFTGPU_SYSTEM | SOFTGPU_VRAM, true);
}

/* To system memory. -EBUSY: pinned; -EINVAL: may not be there. */
int softgpu_bo_evict(struct softgpu_bo *bo)
{
	if (bo->place != SOFTGPU_VRAM)
		return 0;
	if (!(bo->allowed & SOFTGPU_SYSTEM))
		return -EINVAL;
	return move(bo, SOFTGPU_SYSTEM, false);
}

int softgpu_bo_pin(struct softgpu_bo *bo, u32 places)
{
	int ret;

	if (bo->pins) {
		/* amdgpu_bo_pin(), xe_dma_buf_pin(): pinned elsewhere is -EINVAL. */
		if (!(bo->place & places))
			return -EINVAL;
		bo->pins++;
		return 0;
	}
	ret = softgpu_bo_validate(bo, places, true);
	if (!ret)
		bo->pins++;
	return ret;
}

void softgpu_bo_unpin(struct softgpu_bo *bo)
{
	dma_resv_assert_held(bo->base.resv);
	if (!WARN_ON(!bo->pins))
		bo->pins--;
}

/* The memory, wherever it is; nobody may be using it any more. */
void softgpu_bo_release_memory(struct softgpu_bo *bo)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	struct home home;

	home_take(gpu, bo, &home);
	home_free(gpu, &home, bo_npages(bo));
}
