/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Fills in the fields of a record about a buffer, a device and an attachment. */
#ifndef GPURDMA_FILL_H
#define GPURDMA_FILL_H

#include "state.h"

INLINE u64 inode_of(struct dma_buf *b)
{
	struct file *f = READ(b, file);
	struct inode *i = READ(f, f_inode);

	return READ(i, i_ino);
}

/*
 * The programs read the operations at the attach and not at the export, because
 * amdgpu and xe replace them after dma_buf_export.
 */
INLINE void fill_buf(struct record *r, struct dma_buf *b)
{
	struct dma_buf_ops *ops = READ(b, ops);
	struct module *owner = READ(b, owner);

	r->have |= HAVE_BUF;
	r->dmabuf = (u64)b;
	r->inode = inode_of(b);
	r->size = READ(b, size);
	r->op_attach = (u64)READ(ops, attach);
	r->op_pin = (u64)READ(ops, pin);
	r->op_map = (u64)READ(ops, map_dma_buf);
	read_kernel_str(r->exporter, sizeof(r->exporter), READ(b, exp_name));
	if (owner)
		read_kernel_str(r->owner, sizeof(r->owner), &owner->name);
}

INLINE bool on_pci(struct device *d)
{
	struct bus_type *bus = READ(d, bus);
	char text[4] = {};

	if (!bus)
		return false;
	read_kernel(text, sizeof(text), READ(bus, name));
	return text[0] == 'p' && text[1] == 'c' && text[2] == 'i' && text[3] == 0;
}

/* As device_name, for a pointer that READ takes. */
INLINE void known_device_name(char *to, u32 size, struct device *d)
{
	const char *name = READ(d, init_name);

	if (!name)
		name = READ(d, kobj.name);
	read_kernel_str(to, size, name);
}

INLINE void device_name(char *to, u32 size, struct device *d)
{
	const char *name = FIELD(d, init_name);

	if (!name)
		name = FIELD(d, kobj.name);
	read_kernel_str(to, size, name);
}

#define CLIMB 6

INLINE void fill_device(struct record *r, struct device *d)
{
	struct devinfo *i = &r->dev;
	struct iommu_group *group = READ(d, iommu_group);
	struct bus_type *bus = READ(d, bus);
	u32 depth;

	known_device_name(i->name, sizeof(i->name), d);
	if (bus)
		read_kernel_str(i->bus, sizeof(i->bus), READ(bus, name));
	if (group) {
		r->have |= HAVE_IOMMU;
		if (FIELD_EXISTS(struct iommu_group, domain)) {
			struct iommu_domain *domain = READ(group, domain);

			if (domain) {
				r->have |= HAVE_IOMMU_TYPE;
				i->iommu_type = READ(domain, type);
			}
		}
	}
	/* Address windows of a bus, or DMA operations of Xen or of a translating IOMMU. */
	if (READ(d, dma_range_map))
		r->have |= HAVE_OTHER_DMA;
	if (FIELD_EXISTS(struct device___ops, dma_ops)) {
		struct device___ops *o = (void *)d;

		if (READ(o, dma_ops))
			r->have |= HAVE_OTHER_DMA;
	}
	i->depth = CLIMB;
	for (depth = 0; depth < CLIMB; depth++) {
		if (!d)
			return;
		if (on_pci(d)) {
			known_device_name(i->pci, sizeof(i->pci), d);
			i->depth = depth;
			return;
		}
		d = READ(d, parent);
	}
}

INLINE u64 importer_callback(void *ops)
{
	if (FIELD_EXISTS(struct dma_buf_attach_ops___invalidate, invalidate_mappings)) {
		struct dma_buf_attach_ops___invalidate *o = ops;

		return (u64)READ(o, invalidate_mappings);
	}
	if (FIELD_EXISTS(struct dma_buf_attach_ops___notify, move_notify)) {
		struct dma_buf_attach_ops___notify *o = ops;

		return (u64)READ(o, move_notify);
	}
	return 0;
}

/* The table that dma_buf_dynamic_attach itself mapped, up to 6.12. */
INLINE struct sg_table *cached_table(struct dma_buf_attachment *a)
{
	struct dma_buf_attachment___cached *c = (void *)a;

	if (!FIELD_EXISTS(struct dma_buf_attachment___cached, sgt))
		return NULL;
	return READ(c, sgt);
}

INLINE void fill_attach(struct record *r, struct dma_buf_attachment *a)
{
	struct dma_buf_attach_ops *ops = READ(a, importer_ops);

	r->have |= HAVE_ATTACH;
	r->attach = (u64)a;
	r->importer_ops = (u64)ops;
	r->importer_priv = (u64)READ(a, importer_priv);
	if (READ(a, peer2peer))
		r->have |= HAVE_P2P;
	if (ops) {
		if (READ(ops, allow_peer2peer))
			r->have |= HAVE_ALLOW_P2P;
		r->importer_cb = importer_callback(ops);
	}
	if (cached_table(a))
		r->have |= HAVE_CACHED;
}

#endif
