// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ib_uverbs and ib_core, where a module carries no BTF: the kernel then offers neither
 * fentry nor the module's own types.
 */
#include "hooks.h"

/* arch/x86/include/asm/ptrace.h, arch/arm64/include/asm/ptrace.h */
struct pt_regs___x86 {
	unsigned long di, si, dx, cx, r8, r9, ax, sp;
} PAI;

struct pt_regs___arm64 {
	u64 regs[31];
} PAI;

#define X86_ARG(ctx, reg) FIELD((struct pt_regs___x86 *)(ctx), reg)

INLINE u64 arg(void *ctx, u32 n)
{
	struct pt_regs___x86 *x = ctx;
	struct pt_regs___arm64 *a = ctx;

	if (FIELD_EXISTS(struct pt_regs___x86, di)) {
		switch (n) {
		case 0: return FIELD(x, di);
		case 1: return FIELD(x, si);
		case 2: return FIELD(x, dx);
		case 3: return FIELD(x, cx);
		case 4: return FIELD(x, r8);
		case 5: return FIELD(x, r9);
		}
		return 0;
	}
	if (FIELD_EXISTS(struct pt_regs___arm64, regs)) {
		switch (n) {
		case 0: return FIELD(a, regs[0]);
		case 1: return FIELD(a, regs[1]);
		case 2: return FIELD(a, regs[2]);
		case 3: return FIELD(a, regs[3]);
		case 4: return FIELD(a, regs[4]);
		case 5: return FIELD(a, regs[5]);
		}
	}
	return 0;
}

INLINE u64 result(void *ctx)
{
	struct pt_regs___x86 *x = ctx;
	struct pt_regs___arm64 *a = ctx;

	if (FIELD_EXISTS(struct pt_regs___x86, di))
		return FIELD(x, ax);
	if (FIELD_EXISTS(struct pt_regs___arm64, regs))
		return FIELD(a, regs[0]);
	return 0;
}

SEC("kprobe/ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR")
int k_reg_dmabuf_enter(void *ctx)
{
	handler_enter(KIND_REG_DMABUF);
	return 0;
}

SEC("kprobe/ib_uverbs_handler_UVERBS_METHOD_REG_MR")
int k_reg_mr_enter(void *ctx)
{
	handler_enter(KIND_REG_MR);
	return 0;
}

SEC("kprobe/ib_uverbs_rereg_mr")
int k_rereg_enter(void *ctx)
{
	handler_enter(KIND_REREG);
	return 0;
}

SEC("kretprobe/ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR")
int k_handler_exit(void *ctx)
{
	handler_exit((s32)result(ctx));
	return 0;
}

SEC("kprobe/ib_umem_dmabuf_get")
int k_umem_get_6_1_enter(void *ctx)
{
	umem_get_enter(ctx, (void *)arg(ctx, 0), arg(ctx, 1), arg(ctx, 2), (s32)arg(ctx, 3), (u32)arg(ctx, 4));
	return 0;
}

SEC("kprobe/ib_umem_dmabuf_get_with_dma_device")
int k_umem_get_enter(void *ctx)
{
	umem_get_enter(ctx, (void *)arg(ctx, 0), arg(ctx, 2), arg(ctx, 3), (s32)arg(ctx, 4), (u32)arg(ctx, 5));
	return 0;
}

SEC("kretprobe/ib_umem_dmabuf_get")
int k_umem_get_exit(void *ctx)
{
	umem_get_exit(result(ctx));
	return 0;
}

SEC("kretprobe/ib_umem_dmabuf_map_pages")
int k_umem_mapped(void *ctx)
{
	umem_map_exit((s32)result(ctx));
	return 0;
}

SEC("kprobe/ib_umem_dmabuf_unmap_pages")
int k_umem_unmapped(void *ctx)
{
	umem_unmap_enter();
	return 0;
}

SEC("kprobe/ib_umem_dmabuf_revoke_locked")
int k_umem_revoked(void *ctx)
{
	revoke_enter(arg(ctx, 0));
	return 0;
}

SEC("kprobe/rdma_restrack_add")
int k_restrack_enter(void *ctx)
{
	restrack_enter(arg(ctx, 0));
	return 0;
}

SEC("kretprobe/rdma_restrack_add")
int k_restrack_exit(void *ctx)
{
	restrack_exit(0);
	return 0;
}

SEC("kprobe/ib_dereg_mr_user")
int k_dereg_begin(void *ctx)
{
	dereg_enter(arg(ctx, 0), 0);
	return 0;
}

SEC("kretprobe/ib_dereg_mr_user")
int k_dereg_end(void *ctx)
{
	dereg_exit((s32)result(ctx));
	return 0;
}

char license_text[] SEC("license") = "Dual BSD/GPL";
