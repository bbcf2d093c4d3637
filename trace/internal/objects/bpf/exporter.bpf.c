// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An exporter's own operations, which the core calls by pointer. The loader makes a
 * copy of a program for each function; the cookie of the copy stands for the function.
 */
#include "state.h"

#define ENOMEM 12

INLINE int returned(void *ctx, u8 func, s32 ret)
{
	struct scope *s = scope();

	if (s)
		step(s, func, ret, (u16)attach_cookie(ctx));
	return 0;
}

INLINE u64 returned_value(void *ctx)
{
	u64 ret = 0;

	func_ret(ctx, &ret);
	return ret;
}

SEC("fexit/exporter_attach")
int exporter_attach(void *ctx)
{
	return returned(ctx, FUNC_EXPORTER_ATTACH, (s32)returned_value(ctx));
}

SEC("fexit/exporter_pin")
int exporter_pin(void *ctx)
{
	return returned(ctx, FUNC_EXPORTER_PIN, (s32)returned_value(ctx));
}

/* NVIDIA's map operation returns NULL if it refuses, and the core turns that into ENOMEM. */
SEC("fexit/exporter_map")
int exporter_map(void *ctx)
{
	u64 table = 0;
	s32 err = func_ret(ctx, &table) || table ? ptr_err(table) : -ENOMEM;

	return returned(ctx, FUNC_EXPORTER_MAP, err);
}

char license_text[] SEC("license") = "Dual BSD/GPL";
