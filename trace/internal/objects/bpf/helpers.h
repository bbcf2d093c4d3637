/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Types, BPF helpers and CO-RE operators: what these programs use, and no more. */
#ifndef GPURDMA_HELPERS_H
#define GPURDMA_HELPERS_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define PAI __attribute__((preserve_access_index))

/*
 * Makes the compiler forget what it knows of v. Otherwise it leaves out a mask that the
 * verifier needs, because the verifier knows less.
 */
#define HIDE(v) asm volatile("" : "+r"(v))

/* Map definitions, as the BTF loaders read them. */
#define MAP_UINT(name, val) int (*name)[val]
#define MAP_TYPE(name, val) typeof(val) *name

/* include/uapi/linux/bpf.h: enum bpf_map_type */
enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_CGROUP_ARRAY = 8,
	MAP_RINGBUF = 27,
};

/* include/uapi/linux/bpf.h: map and ring buffer flags */
enum {
	F_ANY = 0,
	F_NO_PREALLOC = 1,
	F_NOEXIST = 1, /* of an update */
	F_MMAPABLE = 1 << 10,
	RB_NO_WAKEUP = 1,
	RB_FORCE_WAKEUP = 2,
	RB_AVAIL_DATA = 0,
};

/* include/uapi/linux/bpf.h: __BPF_FUNC_MAPPER numbers the helpers. */
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime)(void) = (void *)5;
static u32 (*cpu_id)(void) = (void *)8;
static u64 (*pid_tgid)(void) = (void *)14;
static long (*get_comm)(void *buf, u32 size) = (void *)16;
static long (*under_cgroup)(void *map, u32 index) = (void *)37;
static long (*get_stack)(void *ctx, void *buf, u32 size, u64 flags) = (void *)67;
static u64 (*cgroup_id)(void) = (void *)80;
static long (*read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static long (*read_kernel_str)(void *dst, u32 size, const void *src) = (void *)115;
static long (*seq_write)(void *seq, const void *data, u32 len) = (void *)127;
static long (*ring_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ring_submit)(void *data, u64 flags) = (void *)132;
static u64 (*ring_query)(void *ring, u64 flags) = (void *)134;
static long (*print)(char *str, u32 size, const char *format, u64 *args, u32 len) = (void *)165; /* bpf_snprintf */
static void *(*current_task)(void) = (void *)158; /* get_current_task_btf */
static u64 (*attach_cookie)(void *ctx) = (void *)174;
static long (*loop)(u32 n, void *callback, void *ctx, u64 flags) = (void *)181;
static long (*func_arg)(void *ctx, u32 n, u64 *value) = (void *)183;
static long (*func_ret)(void *ctx, u64 *value) = (void *)184;

/*
 * Returns an argument as a number: the verifier refuses arithmetic on an argument that it
 * knows as a pointer. The verifier replaces the call of func_arg by loads.
 */
INLINE u64 number(u64 *ctx, u32 n)
{
	u64 value = 0;

	func_arg(ctx, n, &value);
	return value;
}

/*
 * CO-RE. FIELD reads p->f wherever the running kernel has it. The value is zero if
 * p does not point to readable memory.
 */
#define FIELD(p, f)                                                          \
	({                                                                   \
		typeof((p)->f) value_;                                       \
		__builtin_memset(&value_, 0, sizeof(value_));                \
		read_kernel(&value_, sizeof(value_), &(p)->f);               \
		value_;                                                      \
	})
/*
 * The verifier knows the types of a hook's arguments and of the pointers that these lead
 * to. READ loads a field of theirs without a call. An object that defines KNOWN_POINTERS
 * passes no other pointers to READ; a pointer that was kept in a map needs FIELD.
 */
#ifdef KNOWN_POINTERS
#define READ(p, f) ((p)->f)
#else
#define READ(p, f) FIELD(p, f)
#endif
#define FIELD_EXISTS(type, f) __builtin_preserve_field_info(((type *)0)->f, 2)
#define FIELD_OFFSET(type, f) __builtin_preserve_field_info(((type *)0)->f, 0)
#define TYPE_EXISTS(type) __builtin_preserve_type_info(*(type *)0, 0)
#define TYPE_SIZE(type) __builtin_preserve_type_info(*(type *)0, 1)
#define ENUM_EXISTS(type, v) __builtin_preserve_enum_value(*(type *)v, 0)
#define ENUM_VALUE(type, v) __builtin_preserve_enum_value(*(type *)v, 1)

#define EEXIST 17

/* include/linux/err.h: IS_ERR_VALUE */
#define MAX_ERRNO 4095
INLINE bool is_err(u64 p)
{
	return p >= (u64)-MAX_ERRNO;
}

/* The errno in a pointer, 0 for a good one. A null pointer is not an error. */
INLINE s32 ptr_err(u64 p)
{
	return is_err(p) ? (s32)p : 0;
}

#endif
