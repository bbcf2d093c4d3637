/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One name for each interface that differs between Linux 6.12, 7.2 and 7.3. The
 * Makefile searches the kernel's headers and defines the HAVE_ symbols.
 */
#ifndef SOFTGPU_COMPAT_H
#define SOFTGPU_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

/* Linux 7.0 has this in slab.h. */
#ifndef kzalloc_obj
#define kzalloc_obj(obj) kzalloc(sizeof(obj), GFP_KERNEL)
#endif

#ifndef HAVE_VMA_IS_COW_MAPPING
static inline bool vma_is_cow_mapping(const struct vm_area_struct *vma)
{
	return is_cow_mapping(vma->vm_flags);
}
#endif

#ifdef HAVE_STRING_NAMESPACE
#define SOFTGPU_IMPORT_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")
#else
#define SOFTGPU_IMPORT_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)
#endif

/*
 * amdgpu and xe could pin in VRAM before the kernel renamed the callback, so
 * every kernel with the new name has that rule.
 */
#ifdef HAVE_INVALIDATE_MAPPINGS
#define SOFTGPU_KERNEL_PIN_RULE SOFTGPU_PIN_VRAM
#else
#define SOFTGPU_KERNEL_PIN_RULE SOFTGPU_PIN_SYSTEM
#endif

/* Notifies dynamic importers that their addresses are no longer valid. */
static inline void softgpu_invalidate(struct dma_buf *dmabuf)
{
#ifdef HAVE_INVALIDATE_MAPPINGS
	dma_buf_invalidate_mappings(dmabuf);
#else
	dma_buf_move_notify(dmabuf);
#endif
}

/* Whether the importer promised to stop its accesses on a notification. */
static inline bool softgpu_attach_revocable(struct dma_buf_attachment *attach)
{
#ifdef HAVE_INVALIDATE_MAPPINGS
	return dma_buf_attach_revocable(attach);
#else
	/* This core attaches no dynamic importer without a callback. */
	return attach->importer_ops;
#endif
}

/*
 * Whether the exporter may call the callback of an importer that has pinned the
 * buffer. Up to 6.12 importers that cannot release a pin have a callback too,
 * so the exporter calls none of them.
 */
static inline bool softgpu_pinned_revocable(struct dma_buf_attachment *attach)
{
#ifdef HAVE_INVALIDATE_MAPPINGS
	return dma_buf_attach_revocable(attach);
#else
	return false;
#endif
}

#endif
