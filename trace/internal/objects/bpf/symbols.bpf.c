// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The symbols that the loader asks for. The kernel has two hundred thousand: to print all
 * of them as text and to read that takes longer than the rest of the tracer's start.
 */
#define KNOWN_POINTERS
#include "kernel.h"

struct found_symbol {
	u64 addr;
	u8 type;
	char name[128];
	char module[56]; /* "" for vmlinux */
} answer; /* one question is asked at a time */

/* The question: one address, or names by the automaton of symbols/filter.go. */
u64 wanted;
u8 next[256 * 256];
u8 found[256];
u64 lengths[256];

SEC("iter/ksym")
int list_symbols(struct bpf_iter__ksym *ctx)
{
	struct kallsym_iter *k = ctx->ksym;
	struct found_symbol *s = &answer;
	u64 state = 0, at;
	u32 i;
	u8 c;

	if (!k)
		return 0;
	s->addr = READ(k, value);
	if (wanted && s->addr != wanted)
		return 0;
	read_kernel_str(s->name, sizeof(s->name), &k->name);
	if (wanted)
		goto tell;
	for (i = 0; i < sizeof(s->name); i++) {
		c = s->name[i];
		if (!c)
			break;
		at = state << 8 | c;
		HIDE(at); /* up to 6.1 the verifier needs the mask */
		state = next[at & 0xffff];
		if (found[state])
			goto tell;
	}
	c = s->name[0];
	if (!(lengths[c] >> (i & 63) & 1))
		return 0;
tell:
	s->type = READ(k, type);
	read_kernel_str(s->module, sizeof(s->module), &k->module_name);
	seq_write(ctx->meta->seq, s, sizeof(*s));
	return 0;
}

char license_text[] SEC("license") = "Dual BSD/GPL";
