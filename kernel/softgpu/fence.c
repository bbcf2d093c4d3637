// SPDX-License-Identifier: GPL-2.0
/* Fences that signal after a delay, in place of a copy engine's fences. */
#include <linux/dma-fence.h>
#include <linux/slab.h>

#include "softgpu.h"

struct softgpu_fence {
	struct dma_fence base;
	spinlock_t lock;	/* the fence's own, see dma_fence_init() */
	struct delayed_work work;
};

static const char *fence_name(struct dma_fence *fence)
{
	return "softgpu";
}

/* A sync file can outlive the device, so each fence holds the module. */
static void fence_release(struct dma_fence *fence)
{
	dma_fence_free(fence);
	softgpu_put_module();
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
	.release = fence_release,
};

static void fence_work(struct work_struct *work)
{
	struct softgpu_fence *fence =
		container_of(to_delayed_work(work), struct softgpu_fence, work);

	dma_fence_signal(&fence->base);
	dma_fence_put(&fence->base);
}

/* Called with the reservation lock. */
int softgpu_fence_add(struct softgpu_bo *bo, unsigned int ms, enum dma_resv_usage usage)
{
	struct softgpu_fence *fence;
	int ret;

	ret = dma_resv_reserve_fences(bo->base.resv, 1);
	if (ret)
		return ret;
	fence = kzalloc_obj(*fence);
	if (!fence)
		return -ENOMEM;
	BUILD_BUG_ON(offsetof(struct softgpu_fence, base)); /* dma_fence_free() */
	softgpu_get_module();
	spin_lock_init(&fence->lock);
	INIT_DELAYED_WORK(&fence->work, fence_work);
	dma_fence_init(&fence->base, &fence_ops, &fence->lock,
		       dma_fence_context_alloc(1), 1);
	dma_resv_add_fence(bo->base.resv, &fence->base, usage);
	/* The work takes over this function's reference. */
	queue_delayed_work(softgpu_wq, &fence->work, msecs_to_jiffies(ms));
	return 0;
}
