/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TESTEXPORTER_BUFFER_H
#define TESTEXPORTER_BUFFER_H

#include <linux/atomic.h>
#include <linux/dma-buf.h>
#include <linux/dma-direction.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>

#include "testexporter.h"

struct test_buffer {
	enum testexporter_mode mode;
	unsigned int npages;
	/* of the RAM at its start, then of the BAR if that has pages */
	struct page **pages;
	unsigned int nram;

	/* memory of a BAR */
	struct pci_dev *pdev;
	phys_addr_t bar_phys;
	void *p2pmem;

	/* a second buffer, to which test_attach() also attaches */
	struct dma_buf *inner;

	/* counts of what importers hold */
	atomic_t pins;
	atomic_t maps;
	atomic_t vmaps;
	atomic_t cpu;
};

/* bar.c */
bool test_in_bar(enum testexporter_mode mode);
bool test_p2pmem(enum testexporter_mode mode);
int test_bar_get(struct test_buffer *b, const struct testexporter_create *c);
void test_bar_put(struct test_buffer *b);
void test_bar_exit(void);

/* table.c */
struct sg_table *test_table_map(struct test_buffer *b, struct device *dev,
				enum dma_data_direction dir);
void test_table_unmap(struct test_buffer *b, struct device *dev,
		      struct sg_table *sgt, enum dma_data_direction dir);

#endif
