// SPDX-License-Identifier: GPL-2.0
/* Taking buffers away: one of them on request, all of them with the device. */
#include <drm/drm_vma_manager.h>

#include "softgpu.h"

static bool every_importer(struct softgpu_bo *bo,
			   bool (*is)(struct dma_buf_attachment *attach))
{
	struct dma_buf_attachment *attach;

	list_for_each_entry(attach, &bo->dmabuf->attachments, node)
		if (!is(attach))
			return false;
	return true;
}

/*
 * As vfio_pci_dma_buf_move(): importers are told when the buffer goes and when
 * it comes back. Exporters like amdgpu and xe can do it to importers that
 * promised to let go, pinned or not; one that did not makes it -EBUSY. Up to
 * 6.12 that only shows afterwards.
 */
int softgpu_bo_revoke(struct softgpu_bo *bo, bool revoke)
{
	dma_resv_assert_held(bo->base.resv);
	/* A buffer that is being exported has its behaviour before its dma-buf. */
	if (!bo->behaviour || !bo->behaviour->revokes || !bo->dmabuf)
		return -EOPNOTSUPP;
	if (bo->revoked == revoke)
		return 0;
	if (revoke && !every_importer(bo, softgpu_attach_revocable))
		return -EBUSY;
	bo->revoked = revoke;
	softgpu_invalidate(bo->dmabuf);
	if (dma_resv_wait_timeout(bo->base.resv, DMA_RESV_USAGE_BOOKKEEP, false,
				  MAX_SCHEDULE_TIMEOUT) < 0)
		return -EINTR;
	if (revoke && bo->maps) {
		bo->revoked = false;
		return -EBUSY;
	}
	return 0;
}

/* An importer that pinned is told of a revocation only if it can handle that. */
static bool may_tell(struct softgpu_bo *bo)
{
	return !bo->pins || bo->behaviour == &softgpu_behaves_vfio ||
	       every_importer(bo, softgpu_pinned_revocable);
}

static void lose(struct softgpu_bo *bo)
{
	dma_resv_lock(bo->base.resv, NULL);
	bo->lost = true;
	bo->revoked = true;
	if (bo->dmabuf && bo->maps && may_tell(bo)) {
		softgpu_invalidate(bo->dmabuf);
		dma_resv_wait_timeout(bo->base.resv, DMA_RESV_USAGE_BOOKKEEP, false,
				      MAX_SCHEDULE_TIMEOUT);
	}
	/*
	 * Memory that an importer still has mapped stays allocated until it lets
	 * go, even though the device is gone: no other buffer may get it.
	 */
	if (!bo->pins && !bo->maps)
		softgpu_bo_release_memory(bo);
	dma_resv_unlock(bo->base.resv);
}

static struct softgpu_bo *first_kept(struct softgpu_device *gpu)
{
	struct softgpu_bo *bo;

	list_for_each_entry(bo, &gpu->bos, link)
		if (!READ_ONCE(bo->lost) && kref_get_unless_zero(&bo->base.refcount))
			return bo;
	return NULL;
}

/* The device is gone: no buffer can be used any more. Runs after unplug. */
void softgpu_revoke_all(struct softgpu_device *gpu)
{
	struct softgpu_bo *bo;

	for (;;) {
		mutex_lock(&gpu->bos_lock);
		bo = first_kept(gpu);
		mutex_unlock(&gpu->bos_lock);
		if (!bo)
			return;
		lose(bo);
		drm_gem_object_put(&bo->base);
	}
}
