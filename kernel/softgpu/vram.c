// SPDX-License-Identifier: GPL-2.0
/*
 * The VRAM allocator: one contiguous extent for each buffer, the BAR at the
 * bottom. When VRAM is full, buffers that may leave it are moved to system
 * memory, the one used longest ago first, as the real drivers do.
 */
#include <linux/io.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "softgpu.h"

int softgpu_vram_init(struct softgpu_device *gpu)
{
	unsigned long pages = gpu->visible_size >> PAGE_SHIFT;

	gpu->dirty = vzalloc(BITS_TO_LONGS(pages) * sizeof(long));
	if (!gpu->dirty)
		return -ENOMEM;
	drm_mm_init(&gpu->vram_mm, 0, gpu->vram_size);
	return 0;
}

void softgpu_vram_fini(struct softgpu_device *gpu)
{
	if (!gpu->dirty)
		return;
	drm_mm_takedown(&gpu->vram_mm);
	vfree(gpu->dirty);
}

/* Marks a buffer as used just now. */
void softgpu_vram_touch(struct softgpu_bo *bo)
{
	struct softgpu_device *gpu = bo_gpu(bo);

	mutex_lock(&gpu->vram_lock);
	if (!list_empty(&bo->lru))
		list_move_tail(&bo->lru, &gpu->lru);
	mutex_unlock(&gpu->vram_lock);
}

/*
 * A buffer that can make room, locked and referenced, or NULL. A buffer leaves
 * the list before it is freed, so it is valid under the lock; one that somebody
 * else has locked, this thread included, is passed by.
 */
static struct softgpu_bo *find_victim(struct softgpu_device *gpu, bool visible)
{
	struct softgpu_bo *bo, *found = NULL;

	mutex_lock(&gpu->vram_lock);
	list_for_each_entry(bo, &gpu->lru, lru) {
		if (!dma_resv_trylock(bo->base.resv))
			continue;
		if (bo->place == SOFTGPU_VRAM && !bo->pins &&
		    (bo->allowed & SOFTGPU_SYSTEM) &&
		    (!visible || bo->node->start < gpu->visible_size) &&
		    kref_get_unless_zero(&bo->base.refcount)) {
			found = bo;
			break;
		}
		dma_resv_unlock(bo->base.resv);
	}
	mutex_unlock(&gpu->vram_lock);
	return found;
}

static int insert(struct softgpu_device *gpu, struct softgpu_bo *bo,
		  struct drm_mm_node *node, bool visible)
{
	/* What need not be seen is kept out of the part that can be. */
	enum drm_mm_insert_mode mode = visible ? DRM_MM_INSERT_LOW : DRM_MM_INSERT_HIGH;
	u64 end = visible ? gpu->visible_size : gpu->vram_size;
	int ret;

	mutex_lock(&gpu->vram_lock);
	ret = drm_mm_insert_node_in_range(&gpu->vram_mm, node, bo->base.size,
					  bo->align, 0, 0, end, mode);
	if (!ret) {
		gpu->vram_used += node->size;
		if (node->start < gpu->visible_size)
			gpu->visible_used += min(node->size,
						 gpu->visible_size - node->start);
		gpu->vram_nodes++;
	}
	mutex_unlock(&gpu->vram_lock);
	return ret;
}

/*
 * Finds room for the buffer. -E2BIG: there can never be; -ENOMEM: not now.
 * Called with the buffer's reservation lock, or before anyone knows it.
 */
struct drm_mm_node *softgpu_vram_alloc(struct softgpu_bo *bo, bool visible)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	struct drm_mm_node *node;
	struct softgpu_bo *victim;
	int ret;

	if (bo->base.size > (visible ? gpu->visible_size : gpu->vram_size))
		return ERR_PTR(-E2BIG);
	node = kzalloc_obj(*node);
	if (!node)
		return ERR_PTR(-ENOMEM);
	for (;;) {
		ret = insert(gpu, bo, node, visible);
		if (!ret)
			return node;
		victim = ret == -ENOSPC ? find_victim(gpu, visible) : NULL;
		if (!victim)
			break;
		ret = softgpu_bo_evict(victim);
		dma_resv_unlock(victim->base.resv);
		drm_gem_object_put(&victim->base);
		if (ret)
			break;
	}
	kfree(node);
	return ERR_PTR(-ENOMEM);
}

/* Says that this part of VRAM may hold something else than zeros now. */
void softgpu_vram_dirty(struct softgpu_device *gpu, u64 start, u64 size)
{
	if (start >= gpu->visible_size)
		return;
	size = min(size, gpu->visible_size - start);
	spin_lock(&gpu->dirty_lock);
	bitmap_set(gpu->dirty, start >> PAGE_SHIFT, size >> PAGE_SHIFT);
	spin_unlock(&gpu->dirty_lock);
}

/*
 * Free VRAM is always zero, so that no buffer shows what an earlier one held.
 * Only what was written to is wiped: a sparse BAR stays sparse.
 */
static void wipe(struct softgpu_device *gpu, u64 start, u64 size)
{
	unsigned long first = start >> PAGE_SHIFT, last, from, to;

	if (start >= gpu->visible_size)
		return;
	last = (start + min(size, gpu->visible_size - start)) >> PAGE_SHIFT;
	for (;;) {
		spin_lock(&gpu->dirty_lock);
		from = find_next_bit(gpu->dirty, last, first);
		to = from < last ? find_next_zero_bit(gpu->dirty, last, from) : last;
		if (from < last)
			bitmap_clear(gpu->dirty, from, to - from);
		spin_unlock(&gpu->dirty_lock);
		if (from >= last)
			return;
		for (; softgpu_wipe && from < to; from++) {
			memset_io(gpu->bar + (from << PAGE_SHIFT), 0, PAGE_SIZE);
			cond_resched();
		}
		first = to;
	}
}

void softgpu_vram_free(struct softgpu_device *gpu, struct drm_mm_node *node)
{
	if (!node)
		return;
	wipe(gpu, node->start, node->size);
	mutex_lock(&gpu->vram_lock);
	gpu->vram_used -= node->size;
	if (node->start < gpu->visible_size)
		gpu->visible_used -= min(node->size, gpu->visible_size - node->start);
	gpu->vram_nodes--;
	drm_mm_remove_node(node);
	mutex_unlock(&gpu->vram_lock);
	kfree(node);
}
