// SPDX-License-Identifier: GPL-2.0
/*
 * The VRAM allocator: one contiguous extent for each buffer. The BAR shows the
 * lowest part. When VRAM is full, the allocator moves buffers that may leave it
 * to system memory, the least recently used first, as the real drivers do.
 */
#include <linux/io.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "softgpu.h"

int softgpu_vram_init(struct softgpu_device *gpu)
{
	unsigned long pages = gpu->visible_size >> PAGE_SHIFT;

	gpu->dirty = vzalloc(BITS_TO_LONGS(pages) * sizeof(long));
	gpu->stale = vzalloc(BITS_TO_LONGS(pages) * sizeof(long));
	if (!gpu->dirty || !gpu->stale) {
		vfree(gpu->dirty);
		vfree(gpu->stale);
		gpu->dirty = NULL;
		return -ENOMEM;
	}
	/* The BAR may hold any bytes. */
	bitmap_fill(gpu->stale, pages);
	drm_mm_init(&gpu->vram_mm, 0, gpu->vram_size);
	return 0;
}

void softgpu_vram_fini(struct softgpu_device *gpu)
{
	if (!gpu->dirty)
		return;
	drm_mm_takedown(&gpu->vram_mm);
	vfree(gpu->dirty);
	vfree(gpu->stale);
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
 * Returns a buffer to evict, locked and referenced, or NULL. A buffer leaves
 * the list before it is freed, so each one on it is valid under vram_lock. The
 * search skips a buffer whose reservation lock this or another thread holds.
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
	/* Other buffers get the highest extent, away from the BAR. */
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
 * Finds room for the buffer. -E2BIG: it is larger than VRAM or, if visible,
 * than the BAR; -ENOMEM: no room now. Called with the reservation lock.
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

/* A run of pages of the BAR. */
struct run {
	unsigned long first, end;
};

/* The BAR's pages of this part of VRAM; none if it is beyond the BAR. */
static struct run run_of(struct softgpu_device *gpu, u64 start, u64 size)
{
	struct run run = { start >> PAGE_SHIFT, start >> PAGE_SHIFT };

	if (start < gpu->visible_size)
		run.end = (start + min(size, gpu->visible_size - start)) >> PAGE_SHIFT;
	return run;
}

static void mark(struct softgpu_device *gpu, unsigned long *map, struct run run)
{
	spin_lock(&gpu->dirty_lock);
	bitmap_set(map, run.first, run.end - run.first);
	spin_unlock(&gpu->dirty_lock);
}

/*
 * Clears the marks of a part of a map, and calls each() for every run of marked
 * pages. The part belongs to one buffer. The caller holds that buffer's
 * reservation lock or frees the buffer, so no other task marks the part.
 */
static void unmark(struct softgpu_device *gpu, unsigned long *map, struct run part,
		   void (*each)(struct softgpu_device *gpu, struct run run))
{
	struct run run;

	for (;;) {
		spin_lock(&gpu->dirty_lock);
		run.first = find_next_bit(map, part.end, part.first);
		run.end = find_next_zero_bit(map, part.end, run.first);
		if (run.first < part.end)
			bitmap_clear(map, run.first, run.end - run.first);
		spin_unlock(&gpu->dirty_lock);
		if (run.first >= part.end)
			return;
		if (each)
			each(gpu, run);
		part.first = run.end;
	}
}

static void zero(struct softgpu_device *gpu, struct run run)
{
	for (; softgpu_wipe && run.first < run.end; run.first++) {
		memset_io(gpu->bar + (run.first << PAGE_SHIFT), 0, PAGE_SIZE);
		cond_resched();
	}
}

/*
 * Called before this part of a buffer's VRAM is mapped or read. It clears the
 * bytes that earlier buffers left there. The real drivers clear all of a buffer
 * when they make or place it (amdgpu_bo_create() with
 * AMDGPU_GEM_CREATE_VRAM_CLEARED, xe_bo_move(), i915_ttm_move()). A user sees the
 * same bytes; here the unused parts of a sparse BAR stay sparse.
 */
void softgpu_vram_show(struct softgpu_device *gpu, u64 start, u64 size)
{
	struct run run = run_of(gpu, start, size);

	unmark(gpu, gpu->stale, run, zero);
	mark(gpu, gpu->dirty, run);
}

/* As softgpu_vram_show(), for a caller that overwrites the whole part. */
void softgpu_vram_filled(struct softgpu_device *gpu, u64 start, u64 size)
{
	struct run run = run_of(gpu, start, size);

	unmark(gpu, gpu->stale, run, NULL);
	mark(gpu, gpu->dirty, run);
}

static void leave(struct softgpu_device *gpu, struct run run)
{
	if (softgpu_wipe)
		zero(gpu, run);
	else
		mark(gpu, gpu->stale, run);
}

/* As amdgpu_bo_release_notify(): wipes the used pages of freed VRAM. */
static void wipe(struct softgpu_device *gpu, u64 start, u64 size)
{
	unmark(gpu, gpu->dirty, run_of(gpu, start, size), leave);
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
