/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The state that the programs share, in maps that all objects have in common:
 * one scope for each thread inside a traced call, and the objects that are followed.
 */
#ifndef GPURDMA_STATE_H
#define GPURDMA_STATE_H

#include "kernel.h"
#include "record.h"

/* Entries of a scatter list that are read at once, and how large one may be. */
#define BLOCK 8
#define ENTRY_SIZE 64

/* A sum over entries that lie in one window. */
struct plain {
	struct window window;
	u64 low;
	u64 high;
	u64 bytes;
};

/*
 * A call that is being traced in this thread. The walk's state is here and
 * not on the stack: Linux 6.1 verifies a bpf_loop callback once, with the
 * stack as it is at first, and drops the branches that it takes for dead.
 */
struct scope {
	struct record rec;
	u64 block[BLOCK * ENTRY_SIZE / 8]; /* of the scatter list, as the kernel has it */
	u64 sg;                            /* where the next block is */
	u32 at;                            /* offset of the next entry in this one, in bytes */
	u32 filled;
	u32 entry; /* entries that the walk has read */
	u32 stop;  /* entries that it reads at most */
	u32 entries;
	u32 done; /* an entry was marked as the last */
	u32 odd;  /* entries that were not plain */
	u32 even; /* as many DMA addresses as pages */
	u32 shift;
	u32 skip;
	u32 slot; /* the scope's own */
	u32 pad;
	u64 range_end; /* of the last range */
	u64 settled;   /* the address up to which the record has it */
	u64 next_page; /* the page behind it, if an entry there is plain and of the same kind */
	u64 page_mask;
	u64 vmemmap;
	u64 node;
	struct plain plain;
	struct window dma_window; /* of the last DMA address */
	struct window page_window;
	u64 restrack;  /* the argument of rdma_restrack_add, for the kretprobe */
	u64 attaching; /* the buffer, during the attach */
	u64 nested;    /* an exporter's own attaches and maps inside of the call */
};

/*
 * The threads that own the scopes and the deregistrations. A thread has the slot that its
 * number hashes to, or one of the next. A hash map would copy a whole scope at each
 * registration, and allocate.
 */
enum { OWNS_SCOPE, OWNS_DEREG, OWNERS };
#define SLOTS 1024
#define PROBES 8
#define GROUPS 64

struct owners {
	u32 taken[GROUPS]; /* slots that the threads of each group have: mostly none */
	u64 thread[SLOTS]; /* 0: free */
};

struct attach_state {
	u64 id;
	u64 dmabuf;
	u64 inode;
};

struct buf_state {
	u64 inode;
};

struct mr_state {
	u64 id;
};

struct dereg_state {
	u64 id;
	u64 mr;
	u64 slot; /* the entry's own */
	u64 flags; /* of the events during the deregistration */
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 4 << 20);
} events SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct config);
} config SEC(".maps");

/* User space maps it: while a system call reads a map, its CPU skips kprobes. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, EVENT_TYPES);
	MAP_UINT(map_flags, F_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} lost SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, OWNERS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct owners);
} owners SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, SLOTS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct scope);
} scopes SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 1 << 16);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct attach_state);
} attaches SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 1 << 16);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct buf_state);
} bufs SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 1 << 16);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct mr_state);
} mrs SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, SLOTS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct dereg_state);
} deregs SEC(".maps");

/*
 * How many of a map's keys are in each group of keys. Most objects are not followed, and
 * one load shows that, where a look-up in the map takes a call. User space counts the
 * keys of the inventory apart, because it cannot add atomically.
 */
enum { KEYS_ATTACHES, KEYS_BUFS, KEYS_MRS, KEYS_PIDS };
#define KEY_GROUPS 2048 /* of all kinds, 256 each */

struct keys {
	u32 n[KEY_GROUPS];
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 2); /* the programs', and user space's */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct keys);
} keys SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 1 << 14);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u8);
} pids SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u8);
} inodes SEC(".maps");

struct {
	MAP_UINT(type, MAP_CGROUP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} cgroups SEC(".maps");

INLINE struct config *settings(void)
{
	u32 zero = 0;

	return map_lookup(&config, &zero);
}

/* Takes the key by value: the copy is on the stack, where the verifier accepts it. */
INLINE void *find(void *map, u64 key)
{
	return map_lookup(map, &key);
}

INLINE void lose(u32 type)
{
	u64 *n = map_lookup(&lost, &type);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* The reader polls; a wake-up for every event would cost more than the event. */
INLINE void send(void *data, u64 size, u32 type)
{
	struct config *c = settings();
	u64 flags = RB_NO_WAKEUP;

	if (!c)
		return;
	if (ring_query(&events, RB_AVAIL_DATA) >= c->wake)
		flags = RB_FORCE_WAKEUP;
	if (ring_output(&events, data, size, flags))
		lose(type);
}

INLINE u64 spread(u64 key)
{
	return key * 0x9e3779b97f4a7c15ULL;
}

INLINE u32 key_group(u32 kind, u64 key)
{
	return (kind << 8 | spread(key) >> 56) & (KEY_GROUPS - 1);
}

/* The map's value for the key, or NULL; kind selects the counts of its keys. */
INLINE void *known(u32 kind, void *map, u64 key)
{
	u32 zero = 0, one = 1, i = key_group(kind, key);
	struct keys *now = map_lookup(&keys, &zero), *before = map_lookup(&keys, &one);

	if (!now || !before || !(now->n[i] | before->n[i]))
		return NULL;
	return map_lookup(map, &key);
}

/*
 * Counts the key before it inserts the value, because known() does not look for a key that
 * is not counted. Up to Linux 6.3 the program calls the map's function directly. Its result
 * is an int, which leaves the upper half of the register undefined: err is an s32.
 */
INLINE long keep(u32 kind, void *map, u64 key, void *value)
{
	u32 zero = 0, i = key_group(kind, key);
	struct keys *now = map_lookup(&keys, &zero);
	s32 err;

	if (!now)
		return -1;
	__sync_fetch_and_add(&now->n[i], 1);
	err = map_update(map, &key, value, F_NOEXIST);
	if (!err)
		return 0;
	__sync_fetch_and_add(&now->n[i], -1);
	return err == -EEXIST ? map_update(map, &key, value, F_ANY) : err;
}

INLINE void forget(u32 kind, void *map, u64 key)
{
	u32 zero = 0, i = key_group(kind, key);
	struct keys *now = map_lookup(&keys, &zero);

	if (now && !map_delete(map, &key))
		__sync_fetch_and_add(&now->n[i], -1);
}

/* This and group_of() take a spread number, and use its upper bits. */
INLINE u32 first_slot(u64 hash)
{
	return hash >> 54;
}

INLINE u32 group_of(u64 hash)
{
	return hash >> 58;
}

/*
 * Returns the slot that has the owner, among those that the thread may have, or SLOTS. The
 * owner is the thread, or 0 for a free slot, which slot() then takes for the thread. The
 * idle thread has the number 0, and therefore no slot.
 */
static __attribute__((noinline)) u32 slot(u32 what, u64 thread, u64 owner)
{
	u64 hash = spread(thread);
	struct owners *o = map_lookup(&owners, &what);
	u32 first = first_slot(hash), i;

	if (!o || !thread)
		return SLOTS;
	for (i = 0; i < PROBES; i++) {
		u32 n = (first + i) & (SLOTS - 1);

		if (o->thread[n] != owner)
			continue;
		if (owner)
			return n;
		if (!__sync_val_compare_and_swap(&o->thread[n], 0, thread)) {
			__sync_fetch_and_add(&o->taken[group_of(hash)], 1);
			return n;
		}
	}
	return SLOTS;
}

/* The slot of this thread, or SLOTS. The count sorts out most threads that have none. */
INLINE u32 own_slot(u32 what)
{
	u64 thread = pid_tgid(), hash = spread(thread);
	struct owners *o = map_lookup(&owners, &what);

	if (!o || !o->taken[group_of(hash)])
		return SLOTS;
	if (thread && o->thread[first_slot(hash)] == thread) /* mostly */
		return first_slot(hash);
	return slot(what, thread, thread);
}

INLINE void free_slot(u32 what, u32 n)
{
	struct owners *o = map_lookup(&owners, &what);

	if (!o || n >= SLOTS)
		return;
	HIDE(n);
	o->thread[n & (SLOTS - 1)] = 0;
	__sync_fetch_and_add(&o->taken[group_of(spread(pid_tgid()))], -1);
}

INLINE struct scope *scope(void)
{
	u32 n = own_slot(OWNS_SCOPE);

	return n < SLOTS ? map_lookup(&scopes, &n) : NULL;
}

/* The deregistration that this thread is in. */
INLINE struct dereg_state *dereg(void)
{
	u32 n = own_slot(OWNS_DEREG);

	return n < SLOTS ? map_lookup(&deregs, &n) : NULL;
}

/* Gives up one whose exit the kernel did not report. That of an unknown MR is no loss. */
INLINE void drop_dereg(struct dereg_state *d)
{
	if (d->id)
		lose(EVENT_DEREG);
	free_slot(OWNS_DEREG, d->slot);
}

/* Filters that look at the caller. */
INLINE bool wanted(struct config *c)
{
	u64 tgid = pid_tgid() >> 32;

	if (c->flags & CONFIG_STOPPED)
		return false;
	if ((c->flags & CONFIG_PIDS) && !known(KEYS_PIDS, &pids, tgid))
		return false;
	if ((c->flags & CONFIG_CGROUP) && under_cgroup(&cgroups, 0) != 1)
		return false;
	return true;
}

INLINE void fill_caller(struct record *r)
{
	u64 thread = pid_tgid();

	r->tgid = thread >> 32;
	r->tid = (u32)thread;
	r->cgroup = cgroup_id();
	get_comm(r->comm, sizeof(r->comm));
}

/*
 * Begins a scope. If the thread still has one, the kernel did not report the exit of
 * that call, as with a kretprobe in too many threads at once. The record of that call
 * is lost.
 */
INLINE struct scope *open_scope(struct config *c, u32 kind, u64 id)
{
	struct scope *s = scope();

	if (s) {
		lose(EVENT_RECORD);
	} else {
		u32 n = slot(OWNS_SCOPE, pid_tgid(), 0);

		s = n < SLOTS ? map_lookup(&scopes, &n) : NULL;
		if (!s) {
			lose(EVENT_RECORD);
			return NULL;
		}
		s->slot = n;
	}
	/* The arrays keep old entries: the reader looks at as many as are counted. */
	__builtin_memset(&s->rec, 0, __builtin_offsetof(struct record, steps));
	s->skip = 0;
	s->restrack = 0;
	s->attaching = 0;
	s->nested = 0;
	if (!id)
		id = __sync_fetch_and_add(&c->next_id, 1) + 1;
	s->rec.h.id = id;
	s->rec.kind = kind;
	s->rec.start = ktime();
	s->rec.fd = -1;
	fill_caller(&s->rec);
	return s;
}

/* If more calls seem to be inside of another one, the kernel did not report its exit. */
#define NESTED 8

/*
 * Inside of a traced call an exporter may attach to and map other buffers, of which its
 * own buffer consists. The traced call's record leaves these out. Returns whether the
 * traced call goes on after so many of them. If not, its scope is freed.
 */
INLINE bool goes_on(struct scope *s)
{
	if (s->nested++ < NESTED || (s->rec.kind != KIND_ATTACH && s->rec.kind != KIND_MAP))
		return true;
	lose(EVENT_RECORD);
	free_slot(OWNS_SCOPE, s->slot);
	return false;
}

INLINE bool others_attaching(struct scope *s, u64 dmabuf)
{
	return s->rec.kind == KIND_MAP || (s->attaching && s->attaching != dmabuf);
}

INLINE bool others_mapping(struct scope *s, u64 attach)
{
	return s->attaching || (s->rec.attach && s->rec.attach != attach);
}

/* An attach that no registration makes: by the RDMA core, or by another importer. */
INLINE bool others_attach(struct scope *s)
{
	return s->rec.kind == KIND_ATTACH || s->rec.kind == KIND_UMEM;
}

INLINE void send_record(struct record *r)
{
	u32 n = r->n_ranges, m = r->n_resources;
	u64 size;

	if (n > RANGES)
		n = RANGES;
	if (m > RESOURCES)
		m = RESOURCES;
	size = __builtin_offsetof(struct record, ranges) + n * sizeof(struct range);
	if (m)
		size = __builtin_offsetof(struct record, resources) + m * sizeof(struct resource);
	r->h.type = EVENT_RECORD;
	r->h.cpu = cpu_id();
	r->h.time = ktime();
	if (size <= sizeof(*r))
		send(r, size, EVENT_RECORD);
}

INLINE void close_scope(struct scope *s, s32 ret)
{
	s->rec.ret = ret;
	if (!s->skip)
		send_record(&s->rec);
	free_slot(OWNS_SCOPE, s->slot);
}

/* Notes that a function of the chain returned. */
INLINE void step(struct scope *s, u8 func, s32 ret, u16 arg)
{
	u32 n = s->rec.n_steps;
	struct step *t;

	s->rec.n_steps = n + 1;
	if (n >= STEPS)
		return;
	t = &s->rec.steps[n & (STEPS - 1)];
	t->func = func;
	t->pad = 0;
	t->arg = arg;
	t->ret = ret;
	t->time = ktime();
}

INLINE void fill_event(struct event *e, u32 type, u64 id)
{
	struct dereg_state *d = dereg();
	u64 thread = pid_tgid();

	e->h.type = type;
	e->h.cpu = cpu_id();
	e->h.time = ktime();
	e->h.id = id;
	e->tgid = thread >> 32;
	e->tid = (u32)thread;
	if (d)
		e->flags |= EVENT_IN_DEREG | d->flags;
	if (((struct task_struct *)current_task())->flags & PF_EXITING)
		e->flags |= EVENT_EXITING;
}

/* Sends what happened to a followed attachment. */
INLINE void send_attach(u32 type, u64 attach, struct attach_state *a, s32 ret)
{
	struct event e = {};

	fill_event(&e, type, a->id);
	e.object = attach;
	e.dmabuf = a->dmabuf;
	e.inode = a->inode;
	e.ret = ret;
	send(&e, sizeof(e), type);
}

#endif
