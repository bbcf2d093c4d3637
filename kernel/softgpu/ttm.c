// SPDX-License-Identifier: GPL-2.0
/*
 * Dynamic exporters like amdgpu and xe. An importer is peer to peer if it asks
 * for that, and the kernel's P2PDMA code finds a path between the two devices.
 * For any other importer the exporter moves the buffer to system memory,
 * without an error, for all importers of the buffer.
 *
 * Rules from drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c and
 * drivers/gpu/drm/xe/xe_dma_buf.c of Linux 6.12 and 7.2.
 */
#include <linux/pci-p2pdma.h>
#include <linux/pm_runtime.h>

#include <drm/drm_prime.h>

#include "softgpu.h"

/*
 * The part that both drivers share. It takes no runtime PM reference; each
 * driver's own function does.
 */
static int softgpu_ttm_dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct softgpu_device *gpu = bo_gpu(to_bo(dmabuf->priv));
	int ret, idx;

	ret = softgpu_fail(gpu, SOFTGPU_OP_ATTACH);
	if (ret)
		return ret;
	if (READ_ONCE(to_bo(dmabuf->priv)->revoked) || !drm_dev_enter(&gpu->drm, &idx))
		return -ENODEV;
	if (attach->peer2peer && pci_p2pdma_distance(gpu->pdev, attach->dev, false) < 0)
		attach->peer2peer = false;
	drm_dev_exit(idx);
	return 0;
}

static struct device *device_of(struct dma_buf *dmabuf)
{
	return &bo_gpu(to_bo(dmabuf->priv))->pdev->dev;
}

/*
 * amdgpu_dma_buf_attach() of these kernels: an attach does not wake a suspended
 * GPU, and is not peer to peer then. For a peer, an active GPU stays active
 * until the detach.
 */
static int softgpu_amdgpu_dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *at)
{
	int ret = softgpu_ttm_dma_buf_attach(dmabuf, at);

	if (ret || !at->peer2peer)
		return ret;
	ret = pm_runtime_get_if_active(device_of(dmabuf));
	if (!ret)
		at->peer2peer = false;
	else if (ret < 0)
		pm_runtime_get_noresume(device_of(dmabuf));
	return 0;
}

static void softgpu_amdgpu_dma_buf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *at)
{
	if (at->peer2peer)
		pm_runtime_put(device_of(dmabuf));
}

/*
 * xe_dma_buf_attach(): a buffer that may only be in VRAM needs a peer-to-peer
 * importer. Every attach wakes the GPU.
 */
static int softgpu_xe_dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *at)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);
	int ret = softgpu_ttm_dma_buf_attach(dmabuf, at);

	if (ret)
		return ret;
	if (!at->peer2peer && !(bo->allowed & SOFTGPU_SYSTEM))
		return -EOPNOTSUPP;
	pm_runtime_get_sync(device_of(dmabuf));
	return 0;
}

static void softgpu_xe_dma_buf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *at)
{
	pm_runtime_put(device_of(dmabuf));
}

/* The places where a pin may put the buffer, by the GPU's pin rule. */
static u32 pin_places(struct softgpu_bo *bo)
{
	struct dma_buf_attachment *at;
	u32 places = bo->allowed;

	if (bo_gpu(bo)->pin_rule == SOFTGPU_PIN_SYSTEM)
		return SOFTGPU_SYSTEM;
	list_for_each_entry(at, &bo->dmabuf->attachments, node)
		if (!at->peer2peer)
			places &= ~SOFTGPU_VRAM;
	return places;
}

static int softgpu_ttm_dma_buf_pin(struct dma_buf_attachment *attach)
{
	struct softgpu_bo *bo = to_bo(attach->dmabuf->priv);
	int ret, idx;

	ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_PIN);
	if (ret)
		return ret;
	if (bo->revoked || !drm_dev_enter(bo->base.dev, &idx))
		return -ENODEV;
	ret = softgpu_bo_pin(bo, pin_places(bo));
	drm_dev_exit(idx);
	return ret;
}

static void softgpu_ttm_dma_buf_unpin(struct dma_buf_attachment *attach)
{
	softgpu_bo_unpin(to_bo(attach->dmabuf->priv));
}

static struct sg_table *softgpu_ttm_dma_buf_map(struct dma_buf_attachment *attach,
						enum dma_data_direction dir)
{
	struct softgpu_bo *bo = to_bo(attach->dmabuf->priv);
	u32 places = SOFTGPU_SYSTEM;
	struct sg_table *sgt;
	int ret, idx;

	ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_MAP);
	if (ret)
		return ERR_PTR(ret);
	if (bo->revoked || !drm_dev_enter(bo->base.dev, &idx))
		return ERR_PTR(-ENODEV);
	if (attach->peer2peer)
		places |= bo->preferred;
	if (!bo->pins)
		ret = softgpu_bo_validate(bo, places, true);
	if (!ret)
		sgt = softgpu_sgt_map(bo, attach->dev, dir);
	else
		sgt = ERR_PTR(ret);
	drm_dev_exit(idx);
	return sgt;
}

static struct sg_table *softgpu_xe_dma_buf_map(struct dma_buf_attachment *attach,
					       enum dma_data_direction dir)
{
	struct softgpu_bo *bo = to_bo(attach->dmabuf->priv);

	/* xe_dma_buf_map() */
	if (!attach->peer2peer && !(bo->allowed & SOFTGPU_SYSTEM))
		return ERR_PTR(-EOPNOTSUPP);
	return softgpu_ttm_dma_buf_map(attach, dir);
}

static void softgpu_ttm_dma_buf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
				      enum dma_data_direction dir)
{
	softgpu_sgt_unmap(to_bo(attach->dmabuf->priv), attach->dev, sgt, dir);
}

static const struct dma_buf_ops amdgpu_ops = {
	.attach = softgpu_amdgpu_dma_buf_attach,
	.detach = softgpu_amdgpu_dma_buf_detach,
	.pin = softgpu_ttm_dma_buf_pin,
	.unpin = softgpu_ttm_dma_buf_unpin,
	.map_dma_buf = softgpu_ttm_dma_buf_map,
	.unmap_dma_buf = softgpu_ttm_dma_buf_unmap,
	.release = softgpu_dmabuf_release,
	.begin_cpu_access = softgpu_dmabuf_begin,
	.end_cpu_access = softgpu_dmabuf_end,
	.mmap = softgpu_dmabuf_mmap,
	.vmap = softgpu_dmabuf_vmap,
	.vunmap = drm_gem_dmabuf_vunmap,
};

static const struct dma_buf_ops xe_ops = {
	.attach = softgpu_xe_dma_buf_attach,
	.detach = softgpu_xe_dma_buf_detach,
	.pin = softgpu_ttm_dma_buf_pin,
	.unpin = softgpu_ttm_dma_buf_unpin,
	.map_dma_buf = softgpu_xe_dma_buf_map,
	.unmap_dma_buf = softgpu_ttm_dma_buf_unmap,
	.release = softgpu_dmabuf_release,
	.begin_cpu_access = softgpu_dmabuf_begin,
	.end_cpu_access = softgpu_dmabuf_end,
	.mmap = softgpu_dmabuf_mmap,
	.vmap = softgpu_dmabuf_vmap,
	.vunmap = drm_gem_dmabuf_vunmap,
};

/* drm_gem_prime_export() names every exporter "drm". */
const struct softgpu_behaviour softgpu_behaves_amdgpu = {
	.name = "amdgpu",
	.exp_name = "drm",
	.ops = &amdgpu_ops,
	.revokes = true,
};

const struct softgpu_behaviour softgpu_behaves_xe = {
	.name = "xe",
	.exp_name = "drm",
	.ops = &xe_ops,
	.revokes = true,
};
