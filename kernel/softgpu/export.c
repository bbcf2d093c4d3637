// SPDX-License-Identifier: GPL-2.0
/* The export of a buffer, and operations that several behaviours share. */
#include <drm/drm_prime.h>

#include "softgpu.h"

SOFTGPU_IMPORT_DMA_BUF;

static const struct softgpu_behaviour *const behaviours[] = {
	&softgpu_behaves_amdgpu,
	&softgpu_behaves_xe,
	&softgpu_behaves_i915,
	&softgpu_behaves_nvidia,
	&softgpu_behaves_nvidia_coherent,
	&softgpu_behaves_vfio,
};

const struct softgpu_behaviour *softgpu_behaviour_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(behaviours); i++)
		if (sysfs_streq(name, behaviours[i]->name))
			return behaviours[i];
	return NULL;
}

static int claim(struct softgpu_bo *bo, const struct softgpu_behaviour *behaviour)
{
	int ret = 0;

	dma_resv_lock(bo->base.resv, NULL);
	if (bo->lost)
		ret = -ENODEV;
	else if (bo->dmabuf)
		ret = -EBUSY;
	else if (behaviour->claim)
		ret = behaviour->claim(bo);
	if (!ret)
		bo->behaviour = behaviour;
	dma_resv_unlock(bo->base.resv);
	return ret;
}

static void disclaim(struct softgpu_bo *bo)
{
	dma_resv_lock(bo->base.resv, NULL);
	bo->dmabuf = NULL;
	bo->inode = 0;
	if (bo->behaviour->disclaim)
		bo->behaviour->disclaim(bo);
	bo->behaviour = NULL;
	bo->revoked = false;
	dma_resv_unlock(bo->base.resv);
}

struct dma_buf *softgpu_bo_export(struct drm_gem_object *obj, int flags)
{
	struct softgpu_bo *bo = to_bo(obj);
	struct softgpu_device *gpu = bo_gpu(bo);
	const struct softgpu_behaviour *behaviour = READ_ONCE(gpu->behaviour);
	struct dma_buf_export_info info = {
		.exp_name = behaviour->exp_name,
		.owner = THIS_MODULE,
		.ops = behaviour->ops,
		.size = obj->size,
		.flags = flags,
		.resv = obj->resv,
		.priv = obj,
	};
	struct dma_buf *dmabuf;
	int ret, idx;

	ret = softgpu_fail(gpu, SOFTGPU_OP_EXPORT);
	if (ret)
		return ERR_PTR(ret);
	if (to_bo(obj)->no_export)
		return ERR_PTR(-EPERM);
	if (!drm_dev_enter(obj->dev, &idx))
		return ERR_PTR(-ENODEV);
	ret = claim(bo, behaviour);
	if (ret) {
		dmabuf = ERR_PTR(ret);
		goto out;
	}
	dmabuf = drm_gem_dmabuf_export(obj->dev, &info);
	if (IS_ERR(dmabuf)) {
		disclaim(bo);
		goto out;
	}
	/*
	 * DRM clears obj->dma_buf when the last handle is closed. softgpu
	 * notifies importers of moves even then, so it keeps the dma-buf.
	 */
	dma_resv_lock(bo->base.resv, NULL);
	bo->dmabuf = dmabuf;
	bo->inode = file_inode(dmabuf->file)->i_ino;
	dma_resv_unlock(bo->base.resv);
out:
	drm_dev_exit(idx);
	return dmabuf;
}

void softgpu_dmabuf_release(struct dma_buf *dmabuf)
{
	disclaim(to_bo(dmabuf->priv));
	drm_gem_dmabuf_release(dmabuf);
}

/* Returns this device's own buffer again; softgpu imports no other dma-buf. */
struct drm_gem_object *softgpu_prime_import(struct drm_device *drm, struct dma_buf *dmabuf)
{
	struct drm_gem_object *obj;

	if (dmabuf->ops->release != softgpu_dmabuf_release)
		return ERR_PTR(-EOPNOTSUPP);
	obj = dmabuf->priv;
	if (obj->dev != drm)
		return ERR_PTR(-EOPNOTSUPP);
	drm_gem_object_get(obj);
	return obj;
}

int softgpu_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);
	int ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_MMAP);

	return ret ? ret : drm_gem_dmabuf_mmap(dmabuf, vma);
}

int softgpu_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	return drm_gem_dmabuf_vmap(dmabuf, map);
}

/*
 * A CPU read moves the buffer to system memory unless it is pinned, as in
 * amdgpu_dma_buf_begin_cpu_access() and xe_dma_buf_begin_cpu_access(). If the
 * move fails, the CPU reads the buffer in its present place.
 */
int softgpu_dmabuf_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);
	int ret, idx;

	ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_BEGIN_CPU_ACCESS);
	if (ret || dir == DMA_TO_DEVICE || dir == DMA_NONE)
		return ret;
	if (!drm_dev_enter(bo->base.dev, &idx))
		return -ENODEV;
	ret = dma_resv_lock_interruptible(bo->base.resv, NULL);
	if (!ret) {
		if (!bo->pins)
			softgpu_bo_evict(bo);
		dma_resv_unlock(bo->base.resv);
	}
	drm_dev_exit(idx);
	return ret;
}

int softgpu_dmabuf_end(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	return softgpu_fail(bo_gpu(to_bo(dmabuf->priv)), SOFTGPU_OP_END_CPU_ACCESS);
}
