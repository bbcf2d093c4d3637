// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* ib_uverbs and ib_core, where their modules carry BTF. */
#include "hooks.h"

/* include/uapi/rdma/ib_user_ioctl_cmds.h: attributes of UVERBS_METHOD_REG_DMABUF_MR */
enum {
	REG_DMABUF_MR_OFFSET = 2,
	REG_DMABUF_MR_LENGTH,
	REG_DMABUF_MR_IOVA,
	REG_DMABUF_MR_FD,
	REG_DMABUF_MR_ACCESS_FLAGS,
};

/* and of UVERBS_METHOD_REG_MR, where a descriptor takes the place of the address */
enum {
	REG_MR_IOVA = 3,
	REG_MR_ADDR,
	REG_MR_LENGTH,
	REG_MR_ACCESS_FLAGS,
	REG_MR_FD,
	REG_MR_FD_OFFSET,
};

/* Where a bundle keeps attribute id: uapi_bkey_attr(uapi_key_attr(id)). */
#define SLOT(id) (2 * (id))

/* Reads the attributes from the first to the last into the block, where ATTR finds them. */
INLINE bool read_attrs(struct scope *s, struct uverbs_attr_bundle *b, u32 first, u32 last)
{
	u64 size = TYPE_SIZE(struct uverbs_attr), n = size * (SLOT(last) - SLOT(first) + 1);

	return n <= sizeof(s->block) &&
	       !read_kernel(s->block, n, (char *)b->attrs + SLOT(first) * size);
}

#define ATTR(first, id) (*(u64 *)((char *)s->block +                       \
	(SLOT(id) - SLOT(first)) * TYPE_SIZE(struct uverbs_attr) +         \
	FIELD_OFFSET(struct uverbs_attr, ptr_attr.data)))

INLINE void fill_dmabuf_attrs(struct scope *s, struct uverbs_attr_bundle *b)
{
	struct record *r = &s->rec;

	if (!read_attrs(s, b, REG_DMABUF_MR_OFFSET, REG_DMABUF_MR_ACCESS_FLAGS))
		return;
	r->offset = ATTR(REG_DMABUF_MR_OFFSET, REG_DMABUF_MR_OFFSET);
	r->length = ATTR(REG_DMABUF_MR_OFFSET, REG_DMABUF_MR_LENGTH);
	r->iova = ATTR(REG_DMABUF_MR_OFFSET, REG_DMABUF_MR_IOVA);
	r->fd = (s32)ATTR(REG_DMABUF_MR_OFFSET, REG_DMABUF_MR_FD);
	r->access = (u32)ATTR(REG_DMABUF_MR_OFFSET, REG_DMABUF_MR_ACCESS_FLAGS);
	r->have |= HAVE_ARGS | HAVE_FD;
}

/* The slot of an absent optional attribute holds the value of an earlier call. */
INLINE void fill_mr_attrs(struct scope *s, struct uverbs_attr_bundle *b)
{
	u64 present = b->attr_present[0];
	struct record *r = &s->rec;

	if (!(present & 1UL << SLOT(REG_MR_FD)) ||
	    !read_attrs(s, b, REG_MR_IOVA, REG_MR_FD_OFFSET))
		return;
	if (present & 1UL << SLOT(REG_MR_FD_OFFSET))
		r->offset = ATTR(REG_MR_IOVA, REG_MR_FD_OFFSET);
	r->length = ATTR(REG_MR_IOVA, REG_MR_LENGTH);
	r->iova = ATTR(REG_MR_IOVA, REG_MR_IOVA);
	r->fd = (s32)ATTR(REG_MR_IOVA, REG_MR_FD);
	r->access = (u32)ATTR(REG_MR_IOVA, REG_MR_ACCESS_FLAGS);
	r->have |= HAVE_FD;
	/* The kernel refuses a call without an offset, or with an address. */
	if (present & 1UL << SLOT(REG_MR_FD_OFFSET) && !(present & 1UL << SLOT(REG_MR_ADDR)))
		r->have |= HAVE_ARGS;
}

INLINE void fill_device_ops(struct record *r, struct uverbs_attr_bundle *b)
{
	struct ib_uverbs_file *file = b->ufile;
	struct ib_uverbs_device *udev = file->device;
	struct ib_device *dev = udev->ib_dev;

	if (!dev)
		return;
	read_kernel_str(r->ibdev, sizeof(r->ibdev), &dev->name);
	if (!FIELD_EXISTS(struct ib_device_ops, reg_user_mr_dmabuf))
		return;
	if (dev->ops.reg_user_mr_dmabuf)
		r->have |= HAVE_DRIVER_OP;
	else
		r->have |= HAVE_NO_DRIVER_OP;
}

/* UVERBS_HANDLER(UVERBS_METHOD_REG_DMABUF_MR)(struct uverbs_attr_bundle *) */
SEC("fentry/ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR")
int reg_dmabuf_enter(u64 *ctx)
{
	struct uverbs_attr_bundle *b = (void *)ctx[0];
	struct scope *s = handler_enter(KIND_REG_DMABUF);

	if (!s)
		return 0;
	fill_device_ops(&s->rec, b);
	fill_dmabuf_attrs(s, b);
	return 0;
}

SEC("fexit/ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR")
int reg_dmabuf_exit(u64 *ctx)
{
	handler_exit((s32)ctx[1]);
	return 0;
}

/* UVERBS_HANDLER(UVERBS_METHOD_REG_MR), 7.2: host memory, or a descriptor */
SEC("fentry/ib_uverbs_handler_UVERBS_METHOD_REG_MR")
int reg_mr_enter(u64 *ctx)
{
	struct uverbs_attr_bundle *b = (void *)ctx[0];
	struct scope *s = handler_enter(KIND_REG_MR);

	if (!s)
		return 0;
	fill_device_ops(&s->rec, b);
	fill_mr_attrs(s, b);
	return 0;
}

SEC("fexit/ib_uverbs_handler_UVERBS_METHOD_REG_MR")
int reg_mr_exit(u64 *ctx)
{
	handler_exit((s32)ctx[1]);
	return 0;
}

/*
 * UVERBS_HANDLER(UVERBS_METHOD_REREG_DMABUF_MR), with kernel/patches/rdma-rereg. Its
 * attributes have the numbers of UVERBS_METHOD_REG_DMABUF_MR's. Without a descriptor
 * only the rights change.
 */
enum { REREG_DMABUF_MR_HANDLE };

SEC("fentry/ib_uverbs_handler_UVERBS_METHOD_REREG_DMABUF_MR")
int rereg_dmabuf_enter(u64 *ctx)
{
	struct uverbs_attr_bundle *b = (void *)ctx[0];
	struct scope *s = handler_enter(KIND_REREG_DMABUF);
	struct uverbs_attr *handle;
	u64 present;

	if (!s)
		return 0;
	fill_device_ops(&s->rec, b);
	present = b->attr_present[0];
	if (!(present & 1UL << SLOT(REG_DMABUF_MR_FD)))
		return 0;
	fill_dmabuf_attrs(s, b);
	if (!(present & 1UL << SLOT(REG_DMABUF_MR_ACCESS_FLAGS)))
		s->rec.access = 0;
	if (!FIELD_EXISTS(struct uverbs_attr, obj_attr))
		return 0;
	handle = (void *)((char *)b->attrs + SLOT(REREG_DMABUF_MR_HANDLE) * TYPE_SIZE(struct uverbs_attr));
	rereg_dmabuf_begin(s, (u64)FIELD(handle, obj_attr.uobject->object));
	return 0;
}

SEC("fexit/ib_uverbs_handler_UVERBS_METHOD_REREG_DMABUF_MR")
int rereg_dmabuf_exit(u64 *ctx)
{
	struct scope *s = scope();

	if (s)
		rereg_dmabuf_end(s, (s32)ctx[1]);
	handler_exit((s32)ctx[1]);
	return 0;
}

/* ib_uverbs_rereg_mr(struct uverbs_attr_bundle *) */
SEC("fentry/ib_uverbs_rereg_mr")
int rereg_enter(u64 *ctx)
{
	struct scope *s = handler_enter(KIND_REREG);

	if (s)
		fill_device_ops(&s->rec, (void *)ctx[0]);
	return 0;
}

SEC("fexit/ib_uverbs_rereg_mr")
int rereg_exit(u64 *ctx)
{
	handler_exit((s32)ctx[1]);
	return 0;
}

/* ib_umem_dmabuf_get(device, offset, size, fd, access, ops): the leaf of 6.1 */
SEC("fentry/ib_umem_dmabuf_get")
int umem_get_6_1_enter(u64 *ctx)
{
	umem_get_enter(ctx, (void *)ctx[0], ctx[1], ctx[2], (s32)ctx[3], (u32)ctx[4]);
	return 0;
}

SEC("fexit/ib_umem_dmabuf_get")
int umem_get_6_1_exit(u64 *ctx)
{
	umem_get_exit(ctx[6]);
	return 0;
}

/*
 * ib_umem_dmabuf_get_with_dma_device(device, dma_device, offset, size, fd,
 * access, ops): the leaf of 6.12 and 7.2
 */
SEC("fentry/ib_umem_dmabuf_get_with_dma_device")
int umem_get_enter_leaf(u64 *ctx)
{
	umem_get_enter(ctx, (void *)ctx[0], ctx[2], ctx[3], (s32)ctx[4], (u32)ctx[5]);
	return 0;
}

SEC("fexit/ib_umem_dmabuf_get_with_dma_device")
int umem_get_exit_leaf(u64 *ctx)
{
	umem_get_exit(ctx[7]);
	return 0;
}

/* ib_umem_dmabuf_map_pages(umem_dmabuf) */
SEC("fexit/ib_umem_dmabuf_map_pages")
int umem_mapped(u64 *ctx)
{
	umem_map_exit((s32)ctx[1]);
	return 0;
}

/* ib_umem_dmabuf_unmap_pages(umem_dmabuf) */
SEC("fentry/ib_umem_dmabuf_unmap_pages")
int umem_unmapped(u64 *ctx)
{
	umem_unmap_enter();
	return 0;
}

/* ib_umem_dmabuf_revoke_locked(attach) */
SEC("fentry/ib_umem_dmabuf_revoke_locked")
int umem_revoked(u64 *ctx)
{
	revoke_enter(number(ctx, 0));
	return 0;
}

/* rdma_restrack_add(res) */
SEC("fexit/rdma_restrack_add")
int restracked(u64 *ctx)
{
	restrack_exit(number(ctx, 0));
	return 0;
}

/* ib_dereg_mr_user(mr, udata): every deregistration, at process exit too */
SEC("fentry/ib_dereg_mr_user")
int dereg_begin(u64 *ctx)
{
	dereg_enter(number(ctx, 0), 0);
	return 0;
}

SEC("fexit/ib_dereg_mr_user")
int dereg_end(u64 *ctx)
{
	dereg_exit((s32)ctx[2]);
	return 0;
}

char license_text[] SEC("license") = "Dual BSD/GPL";
