// SPDX-License-Identifier: Apache-2.0

package loader

// Hook is a kernel function that is watched, or why it is not: see trace.Hook.
type Hook struct {
	Function, Module, How, Absent, What string
}

// hook is a line of the table: which program belongs to which function.
type hook struct {
	program  string // in the object
	kprobe   string // its replacement where the module has no BTF
	function string
	how      string
	what     string
	since    string // the kernels that have the function, for the reason of an absence
	always   bool   // without it there is nothing to trace
	tidies   bool   // sends no event: a run that the kernel skips loses none
}

// coreHooks are functions of vmlinux. Exits come before entries: a scope that
// an entry opens must find the program that closes it.
var coreHooks = []hook{
	{program: "attach_exit", function: "dma_buf_dynamic_attach", how: "fexit", what: "attachments", always: true},
	{program: "map_exit", function: "dma_buf_map_attachment", how: "fexit", what: "mappings", always: true},
	{program: "unmapped", function: "dma_buf_unmap_attachment", how: "fentry", what: "unmapping", always: true},
	{program: "detached", function: "dma_buf_detach", how: "fentry", what: "the end of attachments", always: true},
	{program: "got", function: "dma_buf_get", how: "fexit", what: "which descriptor was used"},
	{program: "pinned", function: "dma_buf_pin", how: "fexit", what: "pinning"},
	{program: "unpinned", function: "dma_buf_unpin", how: "fentry", what: "unpinning"},
	{program: "move_notify", function: "dma_buf_move_notify", how: "fentry", what: "moves", since: "up to 7.0"},
	{program: "invalidate_mappings", function: "dma_buf_invalidate_mappings", how: "fentry", what: "moves", since: "7.1 and later"},
	{program: "released", function: "dma_buf_release", how: "fentry", what: "the end of buffers"},
	{program: "vmapped", function: "dma_buf_vmap", how: "fexit", what: "the CPU's mapping by software devices"},
	{program: "exported", function: "dma_buf_export", how: "fexit", what: "exports"},
	{program: "mapped_resource", function: "dma_map_resource", how: "fexit", what: "physical addresses of device memory"},
	{program: "mapped_sgtable", function: "dma_map_sgtable", how: "fexit", what: "refusals of the DMA API"},
	{program: "phys_vec_to_sgt", function: "dma_buf_phys_vec_to_sgt", how: "fexit", what: "physical vectors of exporters", since: "6.19 and later"},
	{program: "p2p_type", function: "pci_p2pdma_map_type", how: "fexit", what: "the kernel's peer-to-peer decision", since: "kernels with CONFIG_PCI_P2PDMA, and as a function of its own since 6.19"},
	{program: "p2p_reach", function: "calc_map_type_and_dist", how: "fexit", what: "which way the kernel sees for peer-to-peer", since: "kernels with CONFIG_PCI_P2PDMA, where it is not compiled in another shape"},
	{program: "p2p_distance", function: "pci_p2pdma_distance_many", how: "fexit", what: "the kernel's peer-to-peer distance", since: "kernels with CONFIG_PCI_P2PDMA"},
	{program: "attach_enter", function: "dma_buf_dynamic_attach", how: "fentry", what: "attachments", always: true},
	{program: "map_enter", function: "dma_buf_map_attachment", how: "fentry", what: "mappings", always: true},
}

// WhatModules is the Hook.What of the hook that reports modules when they are loaded.
const WhatModules = "modules that are loaded later"

// The tracepoints of vmlinux, by program.
var (
	forkHook   = hook{program: "forked", function: "sched_process_fork", how: "tracepoint", what: "children of the process"}
	exitHook   = hook{program: "exited", function: "sched_process_exit", how: "tracepoint", what: "the end of threads", tidies: true}
	moduleHook = hook{program: "module_loaded", function: "module_load", how: "tracepoint", what: WhatModules}
)

// Restrack is the function at whose return an MR has its keys.
const Restrack = "rdma_restrack_add"

// ReregDMABuf handles a method that kernel/patches/rdma-rereg adds. No released kernel has it.
const ReregDMABuf = "ib_uverbs_handler_UVERBS_METHOD_REREG_DMABUF_MR"

// rdmaHooks are functions of ib_core and ib_uverbs.
var rdmaHooks = []hook{
	{program: "reg_dmabuf_exit", kprobe: "k_handler_exit", function: "ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR", how: "fexit", what: "registrations"},
	{program: "reg_mr_exit", kprobe: "k_handler_exit", function: "ib_uverbs_handler_UVERBS_METHOD_REG_MR", how: "fexit", what: "registrations with DMA handles", since: "6.17 and later"},
	{program: "rereg_exit", kprobe: "k_handler_exit", function: "ib_uverbs_rereg_mr", how: "fexit", what: "reregistrations"},
	{program: "rereg_dmabuf_exit", function: ReregDMABuf, how: "fexit", what: "reregistrations of dma-bufs", since: "patched kernels"},
	{program: "umem_get_exit_leaf", kprobe: "k_umem_get_exit", function: "ib_umem_dmabuf_get_with_dma_device", how: "fexit", what: "a stage of a registration", since: "6.12 and later"},
	{program: "umem_get_6_1_exit", kprobe: "k_umem_get_exit", function: "ib_umem_dmabuf_get", how: "fexit", what: "a stage of a registration"},
	{program: "umem_mapped", kprobe: "k_umem_mapped", function: "ib_umem_dmabuf_map_pages", how: "fexit", what: "a stage of a registration"},
	{program: "umem_unmapped", kprobe: "k_umem_unmapped", function: "ib_umem_dmabuf_unmap_pages", how: "fentry", what: "a stage of a registration"},
	{program: "umem_revoked", kprobe: "k_umem_revoked", function: "ib_umem_dmabuf_revoke_locked", how: "fentry", what: "revocations", since: "6.12 and later"},
	{program: "restracked", kprobe: "k_restrack_exit", function: Restrack, how: "fexit", what: "keys of MRs"},
	{program: "dereg_end", kprobe: "k_dereg_end", function: "ib_dereg_mr_user", how: "fexit", what: "deregistrations"},
	{program: "dereg_begin", kprobe: "k_dereg_begin", function: "ib_dereg_mr_user", how: "fentry", what: "deregistrations"},
	{program: "umem_get_enter_leaf", kprobe: "k_umem_get_enter", function: "ib_umem_dmabuf_get_with_dma_device", how: "fentry", what: "a stage of a registration", since: "6.12 and later"},
	{program: "umem_get_6_1_enter", kprobe: "k_umem_get_6_1_enter", function: "ib_umem_dmabuf_get", how: "fentry", what: "a stage of a registration"},
	{kprobe: "k_restrack_enter", function: Restrack, how: "fentry", what: "keys of MRs"},
	{program: "rereg_enter", kprobe: "k_rereg_enter", function: "ib_uverbs_rereg_mr", how: "fentry", what: "reregistrations"},
	{program: "rereg_dmabuf_enter", function: ReregDMABuf, how: "fentry", what: "reregistrations of dma-bufs", since: "patched kernels"},
	{program: "reg_mr_enter", kprobe: "k_reg_mr_enter", function: "ib_uverbs_handler_UVERBS_METHOD_REG_MR", how: "fentry", what: "registrations with DMA handles", since: "6.17 and later"},
	{program: "reg_dmabuf_enter", kprobe: "k_reg_dmabuf_enter", function: "ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR", how: "fentry", what: "registrations"},
}

// programs are the names of the hooks' programs.
func programs(list []hook) []string {
	names := make([]string, len(list))
	for i, h := range list {
		names[i] = h.program
	}
	return names
}

// asKprobe is the hook as it is attached without BTF.
func (h hook) asKprobe() hook {
	h.program = h.kprobe
	if h.how == "fexit" {
		h.how = "kretprobe"
	} else {
		h.how = "kprobe"
	}
	return h
}

// probe reports whether the hook is a kprobe or kretprobe, whose skipped runs the kernel counts
// apart.
func (h hook) probe() bool { return h.how == "kprobe" || h.how == "kretprobe" }
