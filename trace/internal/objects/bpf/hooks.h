/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The code that runs at the entries and exits of RDMA functions. fentry/fexit and
 * kprobe/kretprobe programs share it, so it needs none of the traced function's
 * arguments at an exit.
 */
#ifndef GPURDMA_HOOKS_H
#define GPURDMA_HOOKS_H

#include "callers.h"

INLINE struct scope *handler_enter(u32 kind)
{
	struct config *c = settings();

	if (!c || !wanted(c))
		return NULL;
	return open_scope(c, kind, 0);
}

/* A call of the dma-buf method counts even if it fails before it has a dma-buf. */
INLINE bool about_dmabuf(struct scope *s)
{
	return s->rec.kind == KIND_REG_DMABUF || (s->rec.have & (HAVE_FD | HAVE_ATTACH));
}

/* A filter on inodes also leaves out a call that found no buffer. */
INLINE bool wanted_inode(struct scope *s)
{
	struct config *c = settings();

	if (!c || !(c->flags & CONFIG_INODES))
		return true;
	return (s->rec.have & HAVE_BUF) && find(&inodes, s->rec.inode);
}

INLINE void handler_exit(s32 ret)
{
	struct scope *s = scope();

	if (!s)
		return;
	step(s, FUNC_HANDLER, ret, 0);
	if (!about_dmabuf(s) || !wanted_inode(s))
		s->skip = 1;
	close_scope(s, ret);
}

/* Where the modules carry no BTF, the BTF of vmlinux may lack this type. */
INLINE void device_name(struct record *r, struct ib_device *dev)
{
	if (!r->ibdev[0] && FIELD_EXISTS(struct ib_device, name))
		read_kernel_str(r->ibdev, sizeof(r->ibdev), &dev->name);
}

/*
 * Outside of a registration the RDMA core attaches for an object that is no MR: the
 * buffer of a CQ or QP, a completion counter. The callers' names say for which.
 */
INLINE struct scope *umem_scope(void *ctx)
{
	struct scope *s = scope();

	if (s && s->rec.kind != KIND_UMEM)
		return s;
	s = handler_enter(KIND_UMEM);
	if (s)
		send_callers(ctx, s);
	return s;
}

INLINE void umem_get_enter(void *ctx, struct ib_device *dev, u64 offset, u64 length, s32 fd, u32 access)
{
	struct scope *s = umem_scope(ctx);

	if (!s)
		return;
	s->rec.have |= HAVE_UMEM_ARGS | HAVE_FD;
	s->rec.offset = offset;
	s->rec.length = length;
	s->rec.fd = fd;
	s->rec.access = access;
	device_name(&s->rec, dev);
}

INLINE void umem_get_exit(u64 ret)
{
	struct scope *s = scope();

	if (!s)
		return;
	step(s, FUNC_UMEM_GET, ptr_err(ret), 0);
	if (!is_err(ret))
		s->rec.have |= HAVE_UMEM;
	if (s->rec.kind != KIND_UMEM)
		return;
	/* An attach ends the scope. The scope is still there, so the call did not attach. */
	if (!is_err(ret) || !wanted_inode(s))
		s->skip = 1;
	close_scope(s, ptr_err(ret));
}

INLINE void umem_map_exit(s32 ret)
{
	struct scope *s = scope();

	if (s)
		step(s, FUNC_UMEM_MAP, ret, 0);
}

/* A step of a call that fails or maps again. Outside of one, unmapped() reports it. */
INLINE void umem_unmap_enter(void)
{
	struct scope *s = scope();

	if (s)
		step(s, FUNC_UMEM_UNMAP, 0, 0);
}

/*
 * The kernel also calls the function at every deregistration, and when a registration
 * fails. Only a call outside of both is a revocation.
 */
INLINE void revoke_enter(u64 attach)
{
	struct attach_state *a;

	if (own_slot(OWNS_SCOPE) < SLOTS || own_slot(OWNS_DEREG) < SLOTS)
		return;
	a = known(KEYS_ATTACHES, &attaches, attach);
	if (a)
		send_attach(EVENT_REVOKE, attach, a, 0);
}

INLINE void restrack_enter(u64 res)
{
	struct scope *s = scope();

	if (s)
		s->restrack = res;
}

/* One read takes the MR from its first field, the device, to its length. */
INLINE void fill_mr(struct scope *s, struct ib_mr *mr)
{
	u64 size = FIELD_OFFSET(struct ib_mr, length) + sizeof(u64);
	struct record *r = &s->rec;

	if (size > sizeof(s->block) || read_kernel(s->block, size, mr))
		return;
#define MR(f) (*(typeof(((struct ib_mr *)0)->f) *)((char *)s->block + \
	(FIELD_OFFSET(struct ib_mr, f) & (sizeof(s->block) - 1))))
	r->lkey = MR(lkey);
	r->rkey = MR(rkey);
	r->mr_iova = MR(iova);
	r->mr_length = MR(length);
	r->pdn = FIELD(MR(pd), res.id);
	r->mrn = FIELD(mr, res.id);
	device_name(r, MR(device));
#undef MR
}

/* The driver has filled in keys and address; restrack has given the number. */
INLINE void restrack_exit(u64 res)
{
	struct rdma_restrack_entry *e = (void *)res;
	struct scope *s = scope();
	struct mr_state m;
	struct ib_mr *mr;

	if (!s)
		return;
	if (!res)
		e = (void *)s->restrack;
	if (!TYPE_EXISTS(struct rdma_restrack_entry) || !TYPE_EXISTS(struct ib_mr))
		return;
	if (FIELD(e, type) != ENUM_VALUE(enum rdma_restrack_type, RDMA_RESTRACK_MR))
		return;
	mr = (void *)((u64)e - FIELD_OFFSET(struct ib_mr, res));
	s->rec.have |= HAVE_MR;
	s->rec.mr = (u64)mr;
	fill_mr(s, mr);
	step(s, FUNC_RESTRACK, 0, 0);
	m.id = s->rec.h.id;
	/* The tracer does not follow MRs of host memory. */
	if (!s->skip && about_dmabuf(s) && keep(KEYS_MRS, &mrs, s->rec.mr, &m)) {
		s->rec.have |= HAVE_UNTRACKED;
		lose(EVENT_TRACKING);
	}
}

/* At the entry the MR is valid; at the exit another MR may have its address. */
INLINE void dereg_enter(u64 mr, u64 flags)
{
	struct mr_state *m = known(KEYS_MRS, &mrs, mr);
	struct dereg_state *d = dereg();
	u32 n;

	if (d)
		drop_dereg(d);
	n = slot(OWNS_DEREG, pid_tgid(), 0);
	d = n < SLOTS ? map_lookup(&deregs, &n) : NULL;
	if (!d) {
		if (m)
			lose(EVENT_DEREG);
		return;
	}
	/* An unknown MR has an entry, too: without it, revoke_enter() would report a revocation. */
	d->id = m ? m->id : 0;
	d->mr = mr;
	d->slot = n;
	d->flags = flags;
	if (m)
		forget(KEYS_MRS, &mrs, mr);
}

INLINE void dereg_exit(s32 ret)
{
	struct dereg_state *d = dereg();
	struct event e = {};
	struct mr_state m;

	if (!d)
		return;
	if (!d->id) {
		free_slot(OWNS_DEREG, d->slot);
		return;
	}
	fill_event(&e, EVENT_DEREG, d->id);
	e.object = d->mr;
	e.ret = ret;
	if (ret) { /* it lives on */
		m.id = d->id;
		if (keep(KEYS_MRS, &mrs, e.object, &m))
			lose(EVENT_TRACKING);
	}
	send(&e, sizeof(e), EVENT_DEREG);
	free_slot(OWNS_DEREG, d->slot);
}

/*
 * A re-registration gives an MR other memory under the same keys. The use of the old
 * memory ends as in a deregistration; that of the new memory begins as in a registration.
 */
INLINE void rereg_dmabuf_begin(struct scope *s, u64 mr)
{
	s->rec.mr = mr;
	dereg_enter(mr, EVENT_IN_REREG);
}

INLINE void rereg_dmabuf_end(struct scope *s, s32 ret)
{
	struct mr_state m;

	if (!s->rec.mr)
		return;
	dereg_exit(ret);
	if (ret || !TYPE_EXISTS(struct ib_mr)) {
		s->rec.mr = 0;
		return;
	}
	s->rec.have |= HAVE_MR;
	fill_mr(s, (void *)s->rec.mr);
	m.id = s->rec.h.id;
	if (!s->skip && keep(KEYS_MRS, &mrs, s->rec.mr, &m)) {
		s->rec.have |= HAVE_UNTRACKED;
		lose(EVENT_TRACKING);
	}
}

#endif
