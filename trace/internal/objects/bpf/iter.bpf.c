// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The inventory: every dma-buf that a descriptor or the kernel's list leads to, and its
 * attachments, as records of kind KIND_INVENTORY. Also two programs that the loader
 * runs by a system call: whoami and reclaim.
 */
#include "fill.h"
#include "walk.h"

#define DMA_BUF_MAGIC 0x444d4142 /* include/uapi/linux/magic.h */

/* More attachments of one buffer than this are not counted. */
#define ATTACHMENTS (1 << 16)

/*
 * Attachments of one dma-buf that a pass lists at most. The kernel has 32 KiB for a dma-buf
 * and ends the whole list at one that writes more (kernel/bpf/bpf_iter.c). One more record
 * fits, that of the dma-buf itself. The reader makes further passes for the rest.
 */
#define AT_ONCE 13

/* Earlier passes listed this many attachments of each buffer, or all that it has. */
u32 first;

/* The callback's state, in a map for the reason that struct scope gives. */
struct desk {
	struct scope scope;
	u32 seen;
	u32 listed;
	u32 whole; /* the walk came to the list's end */
	u32 pad;
};

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct desk);
} desk SEC(".maps");

struct listing {
	struct desk *d;
	struct config *c;
	void *seq;
	struct list_head *head;
};

/* Writes a record in full size, because the reader sees one stream of bytes. */
INLINE void put(void *seq, struct record *r)
{
	r->h.type = EVENT_RECORD;
	r->h.time = ktime();
	seq_write(seq, r, sizeof(*r));
}

static long list_one(u32 i, struct listing *l)
{
	struct desk *d = l->d;
	struct scope *s = &d->scope;
	struct dma_buf_attachment *a;
	struct list_head *n = (void *)s->node;
	struct sg_table *t;

	d->whole = n == l->head;
	if (!n || d->whole)
		return 1;
	a = (void *)((u64)n - FIELD_OFFSET(struct dma_buf_attachment, node));
	s->node = (u64)FIELD(n, next);
	if (d->seen++ < first || d->listed >= AT_ONCE)
		return 0;
	d->listed++;
	s->rec.have &= HAVE_BUF | HAVE_FD;
	__builtin_memset(&s->rec.dev, 0, sizeof(s->rec.dev));
	__builtin_memset(&s->rec.dma, 0, sizeof(s->rec.dma));
	__builtin_memset(&s->rec.pages, 0, sizeof(s->rec.pages));
	s->rec.n_ranges = 0;
	s->rec.importer_cb = 0;
	fill_attach(&s->rec, a);
	fill_device(&s->rec, FIELD(a, dev));
	t = cached_table(a);
	if (t)
		walk_table(s, l->c, t);
	put(l->seq, &s->rec);
	return 0;
}

INLINE int list_buf(struct bpf_iter_meta *meta, struct dma_buf *b, struct task_struct *t, s32 fd)
{
	struct config *c = settings();
	struct listing l = { .c = c };
	u32 zero = 0;
	struct scope *s;
	struct desk *d;

	d = map_lookup(&desk, &zero);
	if (!c || !d)
		return 0;
	s = &d->scope;
	d->seen = d->listed = d->whole = 0;
	__builtin_memset(&s->rec, 0, __builtin_offsetof(struct record, steps));
	s->rec.kind = KIND_INVENTORY;
	s->rec.fd = fd;
	if (t) {
		s->rec.tgid = FIELD(t, tgid);
		read_kernel_str(s->rec.comm, sizeof(s->rec.comm), &t->comm);
	}
	if (fd >= 0)
		s->rec.have |= HAVE_FD;
	fill_buf(&s->rec, b);
	l.d = d;
	l.seq = meta->seq;
	l.head = &b->attachments;
	s->node = (u64)FIELD(b, attachments.next);
	loop(ATTACHMENTS, list_one, &l, 0);
	if (first && d->seen <= first)
		return 0; /* it was listed to its end */
	/* The buffer itself, and how many attachments it has. */
	s->rec.have &= HAVE_BUF | HAVE_FD;
	s->rec.n_others = d->seen;
	if (!d->whole)
		s->rec.have |= HAVE_WALK_CUT;
	put(l.seq, &s->rec);
	return 0;
}

SEC("iter/task_file")
int list_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *f = ctx->file;
	struct super_block *sb;
	struct inode *i;

	if (!t || !f)
		return 0;
	i = FIELD(f, f_inode);
	sb = FIELD(i, i_sb);
	if (FIELD(sb, s_magic) != DMA_BUF_MAGIC)
		return 0;
	return list_buf(ctx->meta, FIELD(f, private_data), t, ctx->fd);
}

SEC("iter/dmabuf")
int list_dmabufs(struct bpf_iter__dmabuf *ctx)
{
	struct dma_buf *b = ctx->dmabuf;

	if (!b)
		return 0;
	return list_buf(ctx->meta, b, NULL, -1);
}

/* The caller's process number as the other programs see it. */
SEC("syscall")
int whoami(u64 *answer)
{
	*answer = pid_tgid() >> 32;
	return 0;
}

/*
 * Does the work of exited() for an ended thread. The kernel skips exited() while another
 * thread, interrupted inside it, waits on the same processor. The ended thread is in no
 * call and does not come back, so the slot stays its own until this program frees it.
 */
SEC("syscall")
int reclaim(struct holding *h)
{
	u32 what = h->what, n = h->slot & (SLOTS - 1);
	struct owners *o = map_lookup(&owners, &what);
	struct dereg_state *d = map_lookup(&deregs, &n);
	u64 thread = h->thread, id = d ? d->id : 0;

	HIDE(n);
	n &= SLOTS - 1;
	if (!o || !thread || __sync_val_compare_and_swap(&o->thread[n], thread, 0) != thread)
		return 0;
	__sync_fetch_and_add(&o->taken[group_of(spread(thread))], -1);
	if (what == OWNS_SCOPE)
		lose(EVENT_RECORD);
	else if (id)
		lose(EVENT_DEREG);
	return 1;
}

char license_text[] SEC("license") = "Dual BSD/GPL";
