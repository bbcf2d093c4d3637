// SPDX-License-Identifier: GPL-2.0
/*
 * An exporter like vfio-pci: it attaches importers that are peer to peer and
 * revocable, and refuses all others. Mapping fails where the kernel's P2PDMA
 * code finds no path. It revokes buffers and does not move them. The dma-buf
 * has no mmap, no vmap and no CPU access.
 *
 * Rules from drivers/vfio/pci/vfio_pci_dmabuf.c of Linux 7.2. Older kernels
 * have no helper for such mappings; there pci_p2pdma_distance() decides.
 */
#include <linux/pci-p2pdma.h>
#ifdef HAVE_PHYS_VEC_TO_SGT
#include <linux/dma-buf-mapping.h>
#endif

#include "softgpu.h"

#ifdef HAVE_PHYS_VEC_TO_SGT
/*
 * After this the kernel caches its P2PDMA decision for each client of the
 * device until the device is bound again.
 */
static int find_provider(struct softgpu_bo *bo)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	int ret;

	ret = pcim_p2pdma_init(gpu->pdev);
	if (ret)
		return ret;
	bo->provider = pcim_p2pdma_provider(gpu->pdev, gpu->bar_nr);
	return bo->provider ? 0 : -EINVAL;
}
#else
static int find_provider(struct softgpu_bo *bo)
{
	return 0;
}
#endif

static int claim(struct softgpu_bo *bo)
{
	int ret;

	ret = softgpu_bo_pin(bo, SOFTGPU_VRAM);
	if (ret)
		return ret;
	ret = find_provider(bo);
	if (ret)
		softgpu_bo_unpin(bo);
	return ret;
}

static void disclaim(struct softgpu_bo *bo)
{
	softgpu_bo_unpin(bo);
	bo->provider = NULL;
}

static int softgpu_vfio_dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);
	int ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_ATTACH);

	if (ret)
		return ret;
	if (!attach->peer2peer)
		return -EOPNOTSUPP;
	if (READ_ONCE(bo->revoked) || drm_dev_is_unplugged(bo->base.dev))
		return -ENODEV;
	if (!softgpu_attach_revocable(attach))
		return -EOPNOTSUPP;
	return 0;
}

#ifdef HAVE_PHYS_VEC_TO_SGT
static struct sg_table *map_range(struct softgpu_bo *bo, struct dma_buf_attachment *attach,
				  enum dma_data_direction dir)
{
	struct phys_vec range = {
		.paddr = bo_gpu(bo)->bar_phys + bo->node->start,
		.len = bo->base.size,
	};
	struct sg_table *sgt;

	softgpu_vram_show(bo_gpu(bo), bo->node->start, bo->base.size);
	sgt = dma_buf_phys_vec_to_sgt(attach, bo->provider, &range, 1, bo->base.size, dir);
	if (!IS_ERR(sgt))
		bo->maps++;
	return sgt;
}

static void softgpu_vfio_dma_buf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
				       enum dma_data_direction dir)
{
	struct softgpu_bo *bo = to_bo(attach->dmabuf->priv);

	dma_buf_free_sgt(attach, sgt, dir);
	bo->maps--;
}
#else
static struct sg_table *map_range(struct softgpu_bo *bo, struct dma_buf_attachment *attach,
				  enum dma_data_direction dir)
{
	if (pci_p2pdma_distance(bo_gpu(bo)->pdev, attach->dev, false) < 0)
		return ERR_PTR(-EINVAL);
	return softgpu_sgt_map(bo, attach->dev, dir);
}

static void softgpu_vfio_dma_buf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
				       enum dma_data_direction dir)
{
	softgpu_sgt_unmap(to_bo(attach->dmabuf->priv), attach->dev, sgt, dir);
}
#endif

static struct sg_table *softgpu_vfio_dma_buf_map(struct dma_buf_attachment *attach,
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
	sgt = bo->revoked ? ERR_PTR(-ENODEV) : map_range(bo, attach, dir);
	drm_dev_exit(idx);
	return sgt;
}

static const struct dma_buf_ops vfio_ops = {
	.attach = softgpu_vfio_dma_buf_attach,
	.map_dma_buf = softgpu_vfio_dma_buf_map,
	.unmap_dma_buf = softgpu_vfio_dma_buf_unmap,
	.release = softgpu_dmabuf_release,
};

const struct softgpu_behaviour softgpu_behaves_vfio = {
	.name = "vfio",
	.exp_name = "vfio_pci_core",
	.ops = &vfio_ops,
	.claim = claim,
	.disclaim = disclaim,
	.revokes = true,
};
