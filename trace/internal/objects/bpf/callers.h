/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which functions of the kernel led to a call. */
#ifndef GPURDMA_CALLERS_H
#define GPURDMA_CALLERS_H

#include "state.h"

/* Keeps the layout in the object's BTF, where a test finds it. */
struct callers *layout_callers;

static const char caller_format[] = "%ps";

/*
 * Sends the callers of a scope that has just begun, before the scope's record. The kernel
 * prints their names now, because a module may be unloaded before the reader could ask.
 */
INLINE void send_callers(void *ctx, struct scope *s)
{
	u64 *at = s->block;
	struct callers *to;
	long size;
	u32 i;

	size = get_stack(ctx, at, CALLERS * sizeof(u64), 0);
	if (size <= 0)
		return;
	to = ring_reserve(&events, sizeof(*to), 0);
	if (!to) {
		lose(EVENT_CALLERS);
		return;
	}
	__builtin_memset(to, 0, sizeof(to->e));
	fill_event(&to->e, EVENT_CALLERS, s->rec.h.id);
	for (i = 0; i < CALLERS; i++) {
		to->name[i][0] = 0;
		if (i < size / sizeof(u64))
			print(to->name[i], CALLER_NAME, caller_format, &at[i], sizeof(u64));
	}
	ring_submit(to, RB_NO_WAKEUP);
}

#endif
