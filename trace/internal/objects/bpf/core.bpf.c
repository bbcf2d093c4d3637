// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The dma-buf core, PCI peer-to-peer and DMA mapping: functions of vmlinux.
 *
 * The programs of a tracing hook get the arguments as an array of 64-bit
 * values; a fexit program finds the return value behind the last argument.
 */
#define KNOWN_POINTERS
#include "fill.h"
#include "walk.h"

/* Keeps the layouts in the object's BTF, where a test finds them. */
struct event *layout_event;
struct export *layout_export;

/* dma_buf_export(const struct dma_buf_export_info *) */
SEC("fexit/dma_buf_export")
int exported(u64 *ctx)
{
	struct dma_buf *b = (void *)ctx[1];
	struct config *c = settings();
	struct export x = {};

	if (!c || !(c->flags & CONFIG_EXPORTS) || is_err(ctx[1]) || !wanted(c))
		return 0;
	fill_event(&x.e, EVENT_EXPORT, 0);
	x.e.object = x.e.dmabuf = (u64)b;
	x.e.inode = inode_of(b);
	x.size = b->size;
	read_kernel_str(x.exporter, sizeof(x.exporter), b->exp_name);
	if (b->owner)
		read_kernel_str(x.owner, sizeof(x.owner), &b->owner->name);
	get_comm(x.comm, sizeof(x.comm));
	send(&x, sizeof(x), EVENT_EXPORT);
	return 0;
}

/* dma_buf_get(int fd) */
SEC("fexit/dma_buf_get")
int got(u64 *ctx)
{
	struct scope *s = scope();

	if (!s)
		return 0;
	s->rec.fd = (s32)ctx[0];
	s->rec.have |= HAVE_FD;
	if (!is_err(ctx[1]))
		fill_buf(&s->rec, (void *)ctx[1]);
	step(s, FUNC_GET, ptr_err(ctx[1]), 0);
	return 0;
}

/* dma_buf_dynamic_attach(dmabuf, dev, importer_ops, importer_priv) */
SEC("fentry/dma_buf_dynamic_attach")
int attach_enter(u64 *ctx)
{
	struct config *c = settings();
	struct scope *s = scope();

	if (!c)
		return 0;
	if (s && (s->attaching || s->rec.kind == KIND_MAP)) {
		if (goes_on(s))
			return 0;
		s = NULL;
	}
	if (!s) {
		/* The filters do not apply to an attach to a buffer that is followed. */
		bool followed = known(KEYS_BUFS, &bufs, number(ctx, 0));

		if (!followed && ((c->flags & CONFIG_RDMA_ONLY) || !wanted(c)))
			return 0;
		s = open_scope(c, KIND_ATTACH, 0);
		if (!s)
			return 0;
		if (followed && !wanted(c))
			s->rec.have |= HAVE_OUTSIDE;
	}
	s->attaching = number(ctx, 0);
	if (s->rec.dmabuf != ctx[0]) /* dma_buf_get has not told of it */
		fill_buf(&s->rec, (void *)ctx[0]);
	if (ctx[1])
		fill_device(&s->rec, (void *)ctx[1]);
	if ((c->flags & CONFIG_INODES) && !find(&inodes, s->rec.inode))
		s->skip = 1;
	return 0;
}

INLINE void follow(struct scope *s, u64 attach)
{
	struct attach_state a = {
		.id = s->rec.h.id, .dmabuf = s->rec.dmabuf, .inode = s->rec.inode,
	};
	struct buf_state b = { .inode = s->rec.inode };
	struct buf_state *was = known(KEYS_BUFS, &bufs, s->rec.dmabuf);

	if (keep(KEYS_ATTACHES, &attaches, attach, &a) ||
	    ((!was || was->inode != b.inode) && keep(KEYS_BUFS, &bufs, s->rec.dmabuf, &b))) {
		s->rec.have |= HAVE_UNTRACKED;
		lose(EVENT_TRACKING);
	}
}

struct others {
	struct scope *s;
	struct list_head *head;
};

static long look_at_other(u32 i, struct others *o)
{
	struct scope *s = o->s;
	struct list_head *n = (void *)s->node;
	struct dma_buf_attachment *a;

	if (!n || n == o->head)
		return 1;
	a = (void *)((u64)n - FIELD_OFFSET(struct dma_buf_attachment, node));
	s->node = (u64)FIELD(n, next);
	if ((u64)a == s->rec.attach)
		return 0;
	s->rec.n_others++;
	if (FIELD(a, peer2peer))
		return 0;
	if (!s->rec.n_barred)
		device_name(s->rec.barred, sizeof(s->rec.barred), FIELD(a, dev));
	s->rec.n_barred++;
	return 0;
}

/*
 * If one importer may not use peer-to-peer, an exporter that moves buffers keeps the buffer
 * in system memory for all. The record of an importer that may counts the others, and those
 * that may not. It is dynamic: it maps with the dma_resv locked, which guards the list.
 */
INLINE void look_at_others(struct scope *s)
{
	struct dma_buf *b = (void *)s->rec.dmabuf;
	struct others o = { .s = s };

	s->rec.n_others = s->rec.n_barred = 0;
	if (!s->rec.op_pin || !(s->rec.have & HAVE_P2P))
		return;
	o.head = &b->attachments;
	s->node = (u64)FIELD(b, attachments.next);
	loop(OTHERS, look_at_other, &o, 0);
}

SEC("fexit/dma_buf_dynamic_attach")
int attach_exit(u64 *ctx)
{
	struct dma_buf_attachment *a = (void *)ctx[4];
	struct config *c = settings();
	struct scope *s = scope();
	u64 attach;

	if (!s || !c || others_attaching(s, number(ctx, 0)))
		return 0;
	s->attaching = 0;
	step(s, FUNC_ATTACH, ptr_err(ctx[4]), 0);
	if (!is_err(ctx[4]) && ctx[4]) {
		s->rec.n_attach++;
		fill_attach(&s->rec, a);
		if (!s->skip && !func_ret(ctx, &attach))
			follow(s, attach);
		/* The importer may never map: read the table that attach made. */
		if (others_attach(s)) {
			struct sg_table *t = cached_table(a);

			if (t)
				walk_table(s, c, t);
		}
	}
	if (others_attach(s))
		close_scope(s, ptr_err(ctx[4]));
	return 0;
}

/* dma_buf_pin(attach); the core also calls the exporter's pin itself. */
SEC("fexit/dma_buf_pin")
int pinned(u64 *ctx)
{
	struct attach_state *a;
	struct scope *s = scope();

	if (s) {
		step(s, FUNC_PIN, (s32)ctx[1], 0);
		if (!(s32)ctx[1])
			s->rec.have |= HAVE_PIN;
		return 0;
	}
	a = known(KEYS_ATTACHES, &attaches, number(ctx, 0));
	if (a)
		send_attach(EVENT_PIN, ctx[0], a, (s32)ctx[1]);
	return 0;
}

SEC("fentry/dma_buf_unpin")
int unpinned(u64 *ctx)
{
	struct attach_state *a;

	if (scope())
		return 0;
	a = known(KEYS_ATTACHES, &attaches, number(ctx, 0));
	if (a)
		send_attach(EVENT_UNPIN, ctx[0], a, 0);
	return 0;
}

/* dma_buf_map_attachment(attach, direction) */
SEC("fentry/dma_buf_map_attachment")
int map_enter(u64 *ctx)
{
	struct dma_buf_attachment *a = (void *)ctx[0];
	struct attach_state *was;
	struct config *c = settings();
	struct scope *s;

	if (!c || (c->flags & CONFIG_STOPPED))
		return 0;
	s = scope();
	if (s && others_mapping(s, number(ctx, 0))) {
		if (goes_on(s))
			return 0;
		s = NULL;
	}
	if (s) {
		/* Drops the resources of earlier calls, unless attach mapped the table. */
		if (!(s->rec.have & HAVE_CACHED)) {
			s->rec.n_resources = 0;
			__builtin_memset(&s->rec.res, 0, sizeof(s->rec.res));
		}
		return 0;
	}
	was = known(KEYS_ATTACHES, &attaches, number(ctx, 0));
	/* The end of an inventory's attachment may be unseen, and its address reused. */
	if (!was || was->dmabuf != (u64)a->dmabuf)
		return 0;
	s = open_scope(c, KIND_MAP, was->id);
	if (!s)
		return 0;
	fill_buf(&s->rec, a->dmabuf);
	fill_device(&s->rec, a->dev);
	fill_attach(&s->rec, a);
	return 0;
}

SEC("fexit/dma_buf_map_attachment")
int map_exit(u64 *ctx)
{
	struct config *c = settings();
	struct scope *s = scope();
	s32 err = ptr_err(ctx[2]);

	if (!s || !c || others_mapping(s, number(ctx, 0)))
		return 0;
	step(s, FUNC_MAP, err, 0);
	if (!err && ctx[2]) {
		s->rec.have &= ~HAVE_UNMAPPED;
		look_at_others(s);
		walk_table(s, c, (void *)ctx[2]);
	}
	if (s->rec.kind == KIND_MAP)
		close_scope(s, err);
	return 0;
}

/* dma_buf_unmap_attachment(attach, table, direction) */
SEC("fentry/dma_buf_unmap_attachment")
int unmapped(u64 *ctx)
{
	struct attach_state *a;
	struct scope *s = scope();

	if (s && s->rec.attach == ctx[0]) {
		s->rec.have |= HAVE_UNMAPPED;
		step(s, FUNC_UNMAP, 0, 0);
		return 0;
	}
	a = known(KEYS_ATTACHES, &attaches, number(ctx, 0));
	if (a)
		send_attach(EVENT_UNMAP, ctx[0], a, 0);
	return 0;
}

/* dma_buf_detach(dmabuf, attach) */
SEC("fentry/dma_buf_detach")
int detached(u64 *ctx)
{
	struct attach_state *a = known(KEYS_ATTACHES, &attaches, number(ctx, 1));
	struct scope *s = scope();

	if (a && !(s && s->rec.h.id == a->id)) {
		send_attach(EVENT_DETACH, ctx[1], a, 0);
	} else if (s && (s->rec.attach == ctx[1] || !s->rec.attach)) {
		/* The traced call fails, and undoes its attach. */
		s->rec.have |= HAVE_DETACHED;
		step(s, FUNC_DETACH, 0, 0);
	}
	if (a)
		forget(KEYS_ATTACHES, &attaches, number(ctx, 1));
	return 0;
}

INLINE int moved(u64 dmabuf)
{
	struct buf_state *b = known(KEYS_BUFS, &bufs, dmabuf);
	struct event e = {};

	if (!b)
		return 0;
	fill_event(&e, EVENT_MOVE, 0);
	e.object = e.dmabuf = dmabuf;
	e.inode = b->inode;
	send(&e, sizeof(e), EVENT_MOVE);
	return 0;
}

/* dma_buf_move_notify(dmabuf), renamed in 7.x */
SEC("fentry/dma_buf_move_notify")
int move_notify(u64 *ctx)
{
	return moved(number(ctx, 0));
}

SEC("fentry/dma_buf_invalidate_mappings")
int invalidate_mappings(u64 *ctx)
{
	return moved(number(ctx, 0));
}

/* dma_buf_release(struct dentry *): the kernel frees the buffer */
SEC("fentry/dma_buf_release")
int released(u64 *ctx)
{
	struct dentry *d = (void *)ctx[0];
	u64 dmabuf = (u64)FIELD(d, d_fsdata); /* as a number: 7.2 loads a void * as a pointer */
	struct buf_state *b = known(KEYS_BUFS, &bufs, dmabuf);
	struct event e = {};

	if (!b)
		return 0;
	fill_event(&e, EVENT_RELEASE, 0);
	e.object = e.dmabuf = dmabuf;
	e.inode = b->inode;
	forget(KEYS_BUFS, &bufs, dmabuf);
	send(&e, sizeof(e), EVENT_RELEASE);
	return 0;
}

/* dma_buf_vmap(dmabuf, map) */
SEC("fexit/dma_buf_vmap")
int vmapped(u64 *ctx)
{
	struct iosys_map *m = (void *)ctx[1];
	struct scope *s = scope();

	if (!s)
		return 0;
	step(s, FUNC_VMAP, (s32)ctx[2], 0);
	if ((s32)ctx[2])
		return 0;
	s->rec.have |= HAVE_VMAP;
	if (m->is_iomem)
		s->rec.have |= HAVE_IOMEM;
	return 0;
}

/* dma_map_resource(dev, phys, size, direction, attrs): for MMIO, on no hot path */
SEC("fexit/dma_map_resource")
int mapped_resource(u64 *ctx)
{
	struct scope *s = scope();

	if (!s)
		return 0;
	if (ctx[5] == ~0ULL) { /* DMA_MAPPING_ERROR */
		step(s, FUNC_DMA_MAP_RESOURCE, -5, 0);
		return 0;
	}
	add_resource(&s->rec, ctx[1], ctx[5], ctx[2]);
	return 0;
}

/* dma_map_sgtable(dev, table, direction, attrs): recorded only if it fails */
SEC("fexit/dma_map_sgtable")
int mapped_sgtable(u64 *ctx)
{
	struct scope *s;

	if (!(s32)ctx[4])
		return 0;
	s = scope();
	if (s)
		step(s, FUNC_DMA_MAP_SGTABLE, (s32)ctx[4], 0);
	return 0;
}

struct vectors {
	struct scope *s;
	struct phys_vec *first;
	u64 stride;
	u64 n;
};

static long add_vector(u32 i, struct vectors *v)
{
	struct phys_vec *p;

	if (i >= v->n)
		return 1;
	p = (void *)((u64)v->first + i * v->stride);
	add_resource(&v->s->rec, FIELD(p, paddr), 0, FIELD(p, len));
	return 0;
}

/* dma_buf_phys_vec_to_sgt(attach, provider, phys_vec, nr_ranges, size, dir), 7.2 */
SEC("fexit/dma_buf_phys_vec_to_sgt")
int phys_vec_to_sgt(u64 *ctx)
{
	struct vectors v = { .first = (void *)ctx[2], .n = ctx[3] };
	struct p2pdma_provider *p = (void *)ctx[1];
	struct scope *s = scope();
	s32 err = ptr_err(ctx[6]);

	if (!s)
		return 0;
	step(s, FUNC_PHYS_VEC, err, 0);
	if (p)
		device_name(s->rec.provider, sizeof(s->rec.provider), p->owner);
	if (err)
		return 0; /* nothing was mapped: no evidence */
	v.s = s;
	v.stride = TYPE_SIZE(struct phys_vec);
	loop(4096, add_vector, &v, 0);
	return 0;
}

/* The tracer's numbers for enum pci_p2pdma_map_type, those of placement.MapType. */
INLINE u32 map_type(u64 t)
{
	if (ENUM_EXISTS(enum pci_p2pdma_map_type, PCI_P2PDMA_MAP_BUS_ADDR) &&
	    t == ENUM_VALUE(enum pci_p2pdma_map_type, PCI_P2PDMA_MAP_BUS_ADDR))
		return 3;
	if (ENUM_EXISTS(enum pci_p2pdma_map_type, PCI_P2PDMA_MAP_THRU_HOST_BRIDGE) &&
	    t == ENUM_VALUE(enum pci_p2pdma_map_type, PCI_P2PDMA_MAP_THRU_HOST_BRIDGE))
		return 4;
	if (ENUM_EXISTS(enum pci_p2pdma_map_type, PCI_P2PDMA_MAP_NOT_SUPPORTED) &&
	    t == ENUM_VALUE(enum pci_p2pdma_map_type, PCI_P2PDMA_MAP_NOT_SUPPORTED))
		return 2;
	return t ? 1 : 0;
}

/* pci_p2pdma_map_type(provider, dev), 7.2 */
SEC("fexit/pci_p2pdma_map_type")
int p2p_type(u64 *ctx)
{
	struct scope *s = scope();

	if (!s)
		return 0;
	s->rec.map_type = map_type((u32)ctx[2]);
	step(s, FUNC_P2P_TYPE, 0, s->rec.map_type);
	return 0;
}

/*
 * calc_map_type_and_dist(provider, client, distance, verbose): which way there is
 * between two PCI functions. The kernel also calls it where a driver asks for the
 * distance only, so a mapping need not go that way.
 */
SEC("fexit/calc_map_type_and_dist")
int p2p_reach(u64 *ctx)
{
	struct scope *s = scope();

	if (s)
		s->rec.reach = map_type((u32)ctx[4]);
	return 0;
}

/* pci_p2pdma_distance_many(provider, clients, n, verbose) */
SEC("fexit/pci_p2pdma_distance_many")
int p2p_distance(u64 *ctx)
{
	struct pci_dev *p = (void *)ctx[0];
	struct scope *s = scope();

	if (!s)
		return 0;
	device_name(s->rec.provider, sizeof(s->rec.provider), &p->dev);
	s->rec.distance = (s32)ctx[4];
	step(s, FUNC_P2P_DISTANCE, (s32)ctx[4], 0);
	return 0;
}

/* sched_process_fork(parent, child): children of a followed process are followed, too */
SEC("tp_btf/sched_process_fork")
int forked(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	u64 from = parent->tgid, to = child->tgid;
	u8 one = 1;

	if (from == to || !known(KEYS_PIDS, &pids, from))
		return 0;
	if (keep(KEYS_PIDS, &pids, to, &one))
		lose(EVENT_TRACKING);
	return 0;
}

/*
 * sched_process_exit(task): the kernel may soon give the number to another thread. This
 * thread has left all traced calls: a scope that it still has is of a call whose exit the
 * kernel did not report. The kernel closes the thread's files, and its MRs, later.
 */
SEC("tp_btf/sched_process_exit")
int exited(u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	struct dereg_state *d = dereg();
	struct scope *s = scope();
	u32 tgid = t->tgid;

	if (s) {
		lose(EVENT_RECORD);
		free_slot(OWNS_SCOPE, s->slot);
	}
	if (d)
		drop_dereg(d);
	/* The leader may go long before the last thread does. */
	if (!t->signal->live.counter)
		forget(KEYS_PIDS, &pids, tgid);
	return 0;
}

/* module_load(struct module *) */
SEC("tp_btf/module_load")
int module_loaded(u64 *ctx)
{
	struct module *m = (void *)ctx[0];
	struct export x = {};

	fill_event(&x.e, EVENT_MODULE, 0);
	read_kernel_str(x.exporter, sizeof(x.exporter), &m->name);
	send(&x, sizeof(x), EVENT_MODULE);
	return 0;
}

char license_text[] SEC("license") = "Dual BSD/GPL";
