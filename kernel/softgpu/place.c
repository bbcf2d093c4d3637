// SPDX-License-Identifier: GPL-2.0
/*
 * The place of a buffer, and its moves. The caller holds the buffer's
 * reservation lock, or frees the buffer.
 *
 * Neither the CPU nor a peer reaches VRAM beyond the BAR, so softgpu keeps its
 * contents in pages that no interface shows.
 */
#include <linux/highmem.h>
#include <linux/io.h>

#include <drm/drm_vma_manager.h>

#include "softgpu.h"

/* A buffer's memory in one place, during a move. */
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

/*
 * Also takes the buffer off the list from which the allocator chooses buffers to
 * evict.
 */
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
 * Makes importers and CPUs give up their mappings of the present place. An
 * importer may add a fence that signals when it has; this waits for all fences.
 */
static int let_go(struct softgpu_device *gpu, struct softgpu_bo *bo)
{
	long ret;

	/*
	 * This notifies all attached importers, also one without a mapping and
	 * the one whose pin causes the move, as xe_bo_move_notify() does, and
	 * amdgpu_bo_move_notify() when the buffer leaves VRAM or GTT. i915,
	 * nvidia and vfio move no attached buffer.
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
	/* From system memory, a buffer that prefers VRAM goes back to VRAM. */
	if (bo->place == SOFTGPU_SYSTEM && (places & bo->preferred & SOFTGPU_VRAM))
		return false;
	return !visible || bo->place == SOFTGPU_SYSTEM || bo_in_bar(bo);
}

/* The one of these places that the buffer prefers. */
static u32 favourite(struct softgpu_bo *bo, u32 places)
{
	if (places & bo->preferred & SOFTGPU_VRAM)
		return SOFTGPU_VRAM;
	return places & SOFTGPU_SYSTEM ? SOFTGPU_SYSTEM : places;
}

/*
 * Puts the buffer into one of the places, and tries the preferred one first.
 * visible: of VRAM, only the part in the BAR.
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
		/* It is there already, and the move to VRAM has failed. */
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
 * Makes the buffer reachable for the CPU. This moves only a buffer that is not:
 * into the BAR or, if that fails, to system memory, as the fault handlers of
 * amdgpu and i915 do (amdgpu_bo_fault_reserve_notify(), vm_fault_ttm()).
 */
int softgpu_bo_validate_cpu(struct softgpu_bo *bo)
{
	if (bo->lost)
		return -ENODEV;
	if (bo->place == SOFTGPU_SYSTEM || bo_in_bar(bo))
		return 0;
	return softgpu_bo_validate(bo, SOFTGPU_SYSTEM | SOFTGPU_VRAM, true);
}

/* Moves VRAM to system memory. -EBUSY: pinned; -EINVAL: not allowed there. */
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
		/* amdgpu_bo_pin(), xe_dma_buf_pin(): -EINVAL if elsewhere. */
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

/* Frees the buffer's memory, which must have no user left. */
void softgpu_bo_release_memory(struct softgpu_bo *bo)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	struct home home;

	home_take(gpu, bo, &home);
	home_free(gpu, &home, bo_npages(bo));
}
