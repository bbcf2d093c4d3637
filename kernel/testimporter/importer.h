/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations that the files of the test importer share. */
#ifndef IMPORTER_H
#define IMPORTER_H

#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "testimporter.h"

/* Linux 7.0 has this in slab.h. */
#ifndef kzalloc_obj
#define kzalloc_obj(obj) kzalloc(sizeof(obj), GFP_KERNEL)
#endif

#ifdef HAVE_STRING_NAMESPACE
#define IMPORTER_IMPORT_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")
#else
#define IMPORTER_IMPORT_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)
#endif

/* One attachment. The dma-buf's resv lock protects all below the line. */
struct importer {
	struct device *dev;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	u32 kind;
	/* -- */
	struct sg_table *sgt;
	enum dma_data_direction dir;
	bool pinned;
	bool revoked;
	u64 invalidations;
	u64 maps;
};

/* attach.c */
struct importer *importer_attach(const struct testimporter_attach *args);
void importer_detach(struct importer *imp);
int importer_map(struct importer *imp, enum dma_data_direction dir);
int importer_refresh(struct importer *imp);
int importer_unmap(struct importer *imp);

/* copy.c */
int importer_check_transfer(struct importer *imp, const struct testimporter_transfer *args);
int importer_copy(struct importer *imp, const struct testimporter_transfer *args);

/* device.c */
struct device *importer_device_get(const char *name, unsigned int dma_bits);
int importer_distance(struct testimporter_distance *args);
int importer_device_init(void);
void importer_device_exit(void);

/* edu.c */
int importer_dma(struct importer *imp, const struct testimporter_transfer *args);
int importer_edu_init(void);
void importer_edu_exit(void);
bool importer_edu_drives(struct device *dev);

#endif
