// SPDX-License-Identifier: GPL-2.0
/*
 * A static exporter like NVIDIA's open module. The dma-buf has no pin, move,
 * vmap or mmap, and the memory keeps its place from export to release. The
 * exporter does not call pci_p2pdma_distance(): its own gate, which came with
 * driver 580, refuses two devices without a common bridge with errno 524. The
 * exporter also refuses an importer that is dynamic, as those of RDMA drivers
 * are, and needs struct pages: in the gate or, before driver 580, when it maps.
 * topology_gate chooses between the two.
 *
 * "nvidia-coherent" is the second mode, for GPU memory that the CPU caches and
 * that has struct pages (Grace). It maps with dma_map_sg() and has no gate.
 *
 * Rules from kernel-open/nvidia/nv-dmabuf.c and nv-pci.c of
 * open-gpu-kernel-modules.
 */
#include "softgpu.h"

static int claim_vram(struct softgpu_bo *bo)
{
	return softgpu_bo_pin(bo, SOFTGPU_VRAM);
}

static int claim_pages(struct softgpu_bo *bo)
{
	return softgpu_bo_pin(bo, SOFTGPU_SYSTEM);
}

static void disclaim(struct softgpu_bo *bo)
{
	softgpu_bo_unpin(bo);
}

/* nv_pci_has_common_pci_switch(): whether a bridge is above both devices. */
static bool common_bridge(struct pci_dev *a, struct pci_dev *b)
{
	struct pci_dev *above_a, *above_b;

	for (above_a = pci_upstream_bridge(a); above_a; above_a = pci_upstream_bridge(above_a))
		for (above_b = pci_upstream_bridge(b); above_b;
		     above_b = pci_upstream_bridge(above_b))
			if (above_a == above_b)
				return true;
	return false;
}

static int attach_common(struct dma_buf *dmabuf)
{
	struct softgpu_bo *bo = to_bo(dmabuf->priv);
	int ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_ATTACH);

	if (!ret && drm_dev_is_unplugged(bo->base.dev))
		return -ENODEV;
	return ret;
}

/*
 * Whether the importer is dynamic and needs struct pages. The driver does not
 * check static importers for that.
 */
static bool wants_pages(struct dma_buf_attachment *attach)
{
	return attach->importer_ops && !attach->peer2peer;
}

/* nv_dma_buf_attach(), which came with driver 580. */
static int softgpu_nvidia_dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct softgpu_device *gpu = bo_gpu(to_bo(dmabuf->priv));
	int ret = attach_common(dmabuf);

	if (ret || !softgpu_topology_gate)
		return ret;
	if (wants_pages(attach))
		return -ENOTSUPP;
	if (!dev_is_pci(attach->dev) || !common_bridge(gpu->pdev, to_pci_dev(attach->dev)))
		return -ENOTSUPP;
	return 0;
}

static int softgpu_nvidia_coherent_dma_buf_attach(struct dma_buf *dmabuf,
						  struct dma_buf_attachment *attach)
{
	return attach_common(dmabuf);
}

static struct sg_table *map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
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

/*
 * nv_dma_buf_map() up to driver 575, which has no gate: it returns NULL to an
 * importer that needs pages, and the core makes ENOMEM of that.
 */
static struct sg_table *softgpu_nvidia_dma_buf_map(struct dma_buf_attachment *attach,
						   enum dma_data_direction dir)
{
	if (wants_pages(attach))
		return NULL;
	return map(attach, dir);
}

static struct sg_table *softgpu_nvidia_coherent_dma_buf_map(struct dma_buf_attachment *attach,
							    enum dma_data_direction dir)
{
	return map(attach, dir);
}

static void softgpu_nvidia_dma_buf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
					 enum dma_data_direction dir)
{
	softgpu_sgt_unmap(to_bo(attach->dmabuf->priv), attach->dev, sgt, dir);
}

static const struct dma_buf_ops vram_ops = {
	.attach = softgpu_nvidia_dma_buf_attach,
	.map_dma_buf = softgpu_nvidia_dma_buf_map,
	.unmap_dma_buf = softgpu_nvidia_dma_buf_unmap,
	.release = softgpu_dmabuf_release,
};

static const struct dma_buf_ops coherent_ops = {
	.attach = softgpu_nvidia_coherent_dma_buf_attach,
	.map_dma_buf = softgpu_nvidia_coherent_dma_buf_map,
	.unmap_dma_buf = softgpu_nvidia_dma_buf_unmap,
	.release = softgpu_dmabuf_release,
};

/* The name since driver 580; before that it is the module's, "nvidia". */
const struct softgpu_behaviour softgpu_behaves_nvidia = {
	.name = "nvidia",
	.exp_name = "nv_dmabuf",
	.ops = &vram_ops,
	.claim = claim_vram,
	.disclaim = disclaim,
};

const struct softgpu_behaviour softgpu_behaves_nvidia_coherent = {
	.name = "nvidia-coherent",
	.exp_name = "nv_dmabuf",
	.ops = &coherent_ops,
	.claim = claim_pages,
	.disclaim = disclaim,
};
