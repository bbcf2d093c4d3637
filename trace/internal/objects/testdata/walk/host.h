/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Replaces bpf/helpers.h in an ordinary program, with as much of it as the walk needs. */
#ifndef GPURDMA_HELPERS_H
#define GPURDMA_HELPERS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;

#define SEC(name)
#define INLINE static inline
#define PAI
#define HIDE(v) asm volatile("" : "+r"(v))
#define MAP_UINT(name, val) int (*name)[val]
#define MAP_TYPE(name, val) typeof(val) *name
#define FIELD(p, f) ((p)->f)
#define READ(p, f) ((p)->f)
#define FIELD_EXISTS(type, f) 0
#define FIELD_OFFSET(type, f) offsetof(type, f)
#define TYPE_SIZE(type) sizeof(type)
#define EEXIST 17

enum { MAP_HASH = 1, MAP_ARRAY, MAP_CGROUP_ARRAY, MAP_RINGBUF };
enum { F_ANY, F_NO_PREALLOC, F_NOEXIST, F_MMAPABLE, RB_NO_WAKEUP, RB_FORCE_WAKEUP, RB_AVAIL_DATA };

/* The walk calls the first three of these. */
static u64 ktime(void) { return 1; }
static long read_kernel(void *to, u32 size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}
static long loop(u32 n, void *callback, void *ctx, u64 flags)
{
	long (*f)(u32, void *) = callback;
	u32 i;

	(void)flags;
	for (i = 0; i < n && !f(i, ctx); i++)
		;
	return i;
}
void *map_lookup(void *map, const void *key);
long map_update(void *map, const void *key, const void *value, u64 flags);
long map_delete(void *map, const void *key);
u32 cpu_id(void);
u64 pid_tgid(void);
u64 cgroup_id(void);
long get_comm(void *buf, u32 size);
long under_cgroup(void *map, u32 index);
long ring_output(void *ring, void *data, u64 size, u64 flags);
u64 ring_query(void *ring, u64 flags);
void *current_task(void);

#endif
