// SPDX-License-Identifier: GPL-2.0
/* The scatter lists that importers get. */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "buffer.h"

/* Maps all pages of the buffer, as most exporters do. */
static int map_pages(struct test_buffer *b, struct device *dev,
		     struct sg_table *sgt, enum dma_data_direction dir)
{
	int err;

	err = sg_alloc_table_from_pages(sgt, b->pages, b->npages, 0,
					(size_t)b->npages << PAGE_SHIFT,
					GFP_KERNEL);
	if (err)
		return err;
	err = dma_map_sgtable(dev, sgt, dir, 0);
	if (err)
		sg_free_table(sgt);
	return err;
}

static void unmap_entries(struct test_buffer *b, struct device *dev,
			  struct sg_table *sgt, unsigned int n,
			  enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgt->sgl, sg, n, i) {
		if (i < b->nram)
			dma_unmap_page(dev, sg_dma_address(sg), sg_dma_len(sg),
				       dir);
		else if (b->mode == TESTEXPORTER_HALVES_DMA)
			dma_unmap_resource(dev, sg_dma_address(sg),
					   sg_dma_len(sg), dir, 0);
	}
}

static dma_addr_t map_bar(struct test_buffer *b, struct device *dev, size_t len,
			  enum dma_data_direction dir)
{
	if (b->mode == TESTEXPORTER_HALVES_DMA)
		return dma_map_resource(dev, b->bar_phys, len, dir, 0);
	/* As drivers did before dma_map_resource(): wrong under an IOMMU. */
	return b->bar_phys;
}

/* Makes an entry for each page of RAM, and one for the memory of the BAR. */
static int map_entries(struct test_buffer *b, struct device *dev,
		       struct sg_table *sgt, enum dma_data_direction dir)
{
	unsigned int i, nbar = b->npages - b->nram;
	struct scatterlist *sg;
	int err;

	err = sg_alloc_table(sgt, b->nram + !!nbar, GFP_KERNEL);
	if (err)
		return err;
	for_each_sgtable_sg(sgt, sg, i) {
		struct page *page = NULL;
		size_t len = PAGE_SIZE;
		dma_addr_t addr;

		if (i < b->nram) {
			page = b->pages[i];
			addr = dma_map_page(dev, page, 0, len, dir);
		} else {
			len = (size_t)nbar << PAGE_SHIFT;
			addr = map_bar(b, dev, len, dir);
		}
		err = dma_mapping_error(dev, addr);
		if (err) {
			unmap_entries(b, dev, sgt, i, dir);
			sg_free_table(sgt);
			return err;
		}
		if (b->mode == TESTEXPORTER_NO_PAGES)
			page = NULL;
		sg_set_page(sg, page, len, 0);
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = len;
	}
	return 0;
}

static bool by_entry(struct test_buffer *b)
{
	return b->mode == TESTEXPORTER_NO_PAGES ||
	       (b->pdev && !test_p2pmem(b->mode));
}

struct sg_table *test_table_map(struct test_buffer *b, struct device *dev,
				enum dma_data_direction dir)
{
	struct sg_table *sgt;
	int err;

	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	if (by_entry(b))
		err = map_entries(b, dev, sgt, dir);
	else
		err = map_pages(b, dev, sgt, dir);
	if (err) {
		kfree(sgt);
		return ERR_PTR(err);
	}
	return sgt;
}

void test_table_unmap(struct test_buffer *b, struct device *dev,
		      struct sg_table *sgt, enum dma_data_direction dir)
{
	if (by_entry(b))
		unmap_entries(b, dev, sgt, sgt->nents, dir);
	else
		dma_unmap_sgtable(dev, sgt, dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
}
