// SPDX-License-Identifier: GPL-2.0
/* The scatter lists that importers get. */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include <drm/drm_prime.h>

#include "softgpu.h"

/* A segment's length has 32 bits; amdgpu has this limit (amdgpu_vram_mgr.c). */
#define SEGMENT_MAX SZ_2G

static struct sg_table *map_pages(struct softgpu_bo *bo, struct device *dev,
				  enum dma_data_direction dir)
{
	struct sg_table *sgt;
	int ret;

	sgt = drm_prime_pages_to_sg(bo->base.dev, bo->pages, bo_npages(bo));
	if (IS_ERR(sgt))
		return sgt;
	ret = dma_map_sgtable(dev, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	if (ret) {
		sg_free_table(sgt);
		kfree(sgt);
		/* as amdgpu_dma_buf_map() and xe_dma_buf_map() */
		return ERR_PTR(-EBUSY);
	}
	return sgt;
}

static void unmap_segments(struct device *dev, struct sg_table *sgt,
			   unsigned int n, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgt->sgl, sg, n, i)
		dma_unmap_resource(dev, sg_dma_address(sg), sg_dma_len(sg), dir,
				   DMA_ATTR_SKIP_CPU_SYNC);
}

/*
 * VRAM has no struct page, so the list has addresses only, as that of
 * amdgpu_vram_mgr_alloc_sgt().
 */
static struct sg_table *map_vram(struct softgpu_bo *bo, struct device *dev,
				 enum dma_data_direction dir)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	phys_addr_t phys = gpu->bar_phys + bo->node->start;
	u64 left = bo->base.size;
	struct scatterlist *sg;
	struct sg_table *sgt;
	unsigned int i;
	int ret;

	/* As xe_ttm_vram_mgr_alloc_sgt() for VRAM beyond the BAR. */
	if (!bo_in_bar(bo))
		return ERR_PTR(-EOPNOTSUPP);
	sgt = kzalloc_obj(*sgt);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(sgt, DIV_ROUND_UP_ULL(left, SEGMENT_MAX), GFP_KERNEL);
	if (ret)
		goto free_sgt;
	softgpu_vram_show(gpu, bo->node->start, bo->base.size);
	for_each_sgtable_sg(sgt, sg, i) {
		size_t len = min_t(u64, left, SEGMENT_MAX);
		dma_addr_t addr = dma_map_resource(dev, phys, len, dir, DMA_ATTR_SKIP_CPU_SYNC);

		ret = dma_mapping_error(dev, addr);
		if (ret)
			goto unmap;
		sg_set_page(sg, NULL, len, 0);
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = len;
		phys += len;
		left -= len;
	}
	return sgt;

unmap:
	unmap_segments(dev, sgt, i, dir);
	sg_free_table(sgt);
free_sgt:
	kfree(sgt);
	return ERR_PTR(ret);
}

/* Maps the buffer for the device, in its present place. */
struct sg_table *softgpu_sgt_map(struct softgpu_bo *bo, struct device *dev,
				 enum dma_data_direction dir)
{
	struct sg_table *sgt;

	dma_resv_assert_held(bo->base.resv);
	switch (bo->place) {
	case SOFTGPU_SYSTEM:
		sgt = map_pages(bo, dev, dir);
		break;
	case SOFTGPU_VRAM:
		sgt = map_vram(bo, dev, dir);
		break;
	default:
		return ERR_PTR(-EINVAL);
	}
	if (!IS_ERR(sgt))
		bo->maps++;
	return sgt;
}

void softgpu_sgt_unmap(struct softgpu_bo *bo, struct device *dev,
		       struct sg_table *sgt, enum dma_data_direction dir)
{
	dma_resv_assert_held(bo->base.resv);
	if (sg_page(sgt->sgl))
		dma_unmap_sgtable(dev, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	else
		unmap_segments(dev, sgt, sgt->nents, dir);
	sg_free_table(sgt);
	kfree(sgt);
	bo->maps--;
}
