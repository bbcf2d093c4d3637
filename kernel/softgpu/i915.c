// SPDX-License-Identifier: GPL-2.0
/*
 * An exporter like i915: every attach moves the buffer to system memory and
 * keeps it there. A peer-to-peer importer gets system memory too, and no error.
 *
 * Rules from drivers/gpu/drm/i915/gem/i915_gem_dmabuf.c.
 */
#include <drm/drm_prime.h>

#include "softgpu.h"

static int softgpu_i915_dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);
	int ret, idx;

	ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_ATTACH);
	if (ret)
		return ret;
	/* i915_gem_object_can_migrate() */
	if (!(bo->allowed & SOFTGPU_SYSTEM))
		return -EOPNOTSUPP;
	if (!drm_dev_enter(bo->base.dev, &idx))
		return -ENODEV;
	ret = dma_resv_lock_interruptible(bo->base.resv, NULL);
	if (!ret) {
		ret = softgpu_bo_pin(bo, SOFTGPU_SYSTEM);
		dma_resv_unlock(bo->base.resv);
	}
	drm_dev_exit(idx);
	return ret;
}

static void softgpu_i915_dma_buf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);

	dma_resv_lock(bo->base.resv, NULL);
	softgpu_bo_unpin(bo);
	dma_resv_unlock(bo->base.resv);
}

static struct sg_table *softgpu_i915_dma_buf_map(struct dma_buf_attachment *attach,
						 enum dma_data_direction dir)
{
	struct softgpu_bo *bo = to_bo(attach->dmabuf->priv);
	struct sg_table *sgt;
	int ret, idx;

	ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_MAP);
	if (ret)
		return ERR_PTR(ret);
	if (!drm_dev_enter(bo->base.dev, &idx))
		return ERR_PTR(-ENODEV);
	sgt = softgpu_sgt_map(bo, attach->dev, dir);
	drm_dev_exit(idx);
	return sgt;
}

static void softgpu_i915_dma_buf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
				       enum dma_data_direction dir)
{
	softgpu_sgt_unmap(to_bo(attach->dmabuf->priv), attach->dev, sgt, dir);
}

/* i915_gem_begin_cpu_access() moves nothing. */
static int softgpu_i915_dma_buf_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	return softgpu_fail(bo_gpu(to_bo(dmabuf->priv)), SOFTGPU_OP_BEGIN_CPU_ACCESS);
}

static const struct dma_buf_ops i915_ops = {
	.attach = softgpu_i915_dma_buf_attach,
	.detach = softgpu_i915_dma_buf_detach,
	.map_dma_buf = softgpu_i915_dma_buf_map,
	.unmap_dma_buf = softgpu_i915_dma_buf_unmap,
	.release = softgpu_dmabuf_release,
	.begin_cpu_access = softgpu_i915_dma_buf_begin,
	.end_cpu_access = softgpu_dmabuf_end,
	.mmap = softgpu_dmabuf_mmap,
	.vmap = softgpu_dmabuf_vmap,
	.vunmap = drm_gem_dmabuf_vunmap,
};

const struct softgpu_behaviour softgpu_behaves_i915 = {
	.name = "i915",
	.exp_name = "i915",
	.ops = &i915_ops,
};
