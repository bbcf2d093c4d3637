// SPDX-License-Identifier: GPL-2.0
/* Revocation: of one buffer on request, of all when the device goes. */
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
 * As vfio_pci_dma_buf_move(): revokes the buffer or gives it back, and notifies
 * the importers of both. -EBUSY: an importer, pinned or not, is not revocable.
 * Up to 6.12 an exporter sees that of static importers only. If a dynamic one
 * keeps its mapping after the notification, the result is -EBUSY, too, and the
 * buffer is not revoked.
 */
int softgpu_bo_revoke(struct softgpu_bo *bo, bool revoke)
{
	dma_resv_assert_held(bo->base.resv);
	/* During its export a buffer has a behaviour, but no dma-buf yet. */
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

/*
 * Whether the importers may be notified that the device is gone: if the buffer
 * is pinned, all must be revocable. vfio pins each buffer itself, and attaches
 * revocable importers only.
 */
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
	 * Memory that is still pinned or mapped stays allocated until the last
	 * pin and mapping are gone, although the device is gone: no other
	 * buffer may get it.
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

/* Revokes all buffers of a device that is gone. Runs after the unplug. */
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
