// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// release runs another kernel with the same configuration.
func release(name string) func(*bed) { return func(b *bed) { b.release(name) } }

// option changes the kernel's configuration.
func option(name, value string) func(*bed) { return func(b *bed) { b.option(name, value) } }

// noConfig takes the kernel's configuration away: no file has it.
func noConfig(b *bed) {
	_, file := b.config()
	b.drop(file)
}

// configDenied keeps the kernel's configuration, unreadable.
func configDenied(b *bed) {
	_, file := b.config()
	b.deny(file)
}

// symbols are the lines of /proc/kallsyms of a kernel with these functions.
func symbols(names ...string) func(*bed) {
	return func(b *bed) {
		text := ""
		for _, name := range append(names, "pci_enable_device", "_etext", "mlx5_ib_reg_user_mr\t[mlx5_ib]") {
			text += "0000000000000000 T " + name + "\n"
		}
		b.put("proc/kallsyms", text)
	}
}

// of reports a subject whose kernel is one of these.
func of(kernels ...string) func(*subject) bool {
	return func(s *subject) bool {
		for _, k := range kernels {
			if s.kernel == k {
				return true
			}
		}
		return false
	}
}

func kernelMutations() []mutation {
	const (
		method   = "drivers/infiniband/core/uverbs_std_types_mr.c: UVERBS_METHOD_REG_DMABUF_MR came with Linux 5.12"
		unread   = "the rules of this kernel were not read"
		selects  = "drivers/infiniband/Kconfig: INFINIBAND_USER_MEM selects DMA_SHARED_BUFFER, and ib_uverbs is there"
		odp      = "drivers/infiniband/hw/mlx5/mr.c mlx5_ib_reg_user_mr_dmabuf(): EOPNOTSUPP without INFINIBAND_ON_DEMAND_PAGING"
		notAsked = "nv-dmabuf.c does not ask the P2PDMA code: siderolabs/talos#12021"
		asks     = "amdgpu_dma_buf.c amdgpu_dma_buf_attach(): pci_p2pdma_distance()"
		notify   = "drivers/dma-buf/dma-buf.c up to 6.12: a dynamic importer pins without DMABUF_MOVE_NOTIFY"
		symbol   = "drivers/infiniband/hw/mlx5/Makefile: odp.o, which has mlx5_ib_odp_init_one(), is built with INFINIBAND_ON_DEMAND_PAGING only"
	)
	ttm := is(amdgpu)
	asksMLX5 := all(byDMABuf, inbox, mlx5)
	return []mutation{
		{"the kernel is from before 5.12", all(byDMABuf, inbox), release("5.10.0-21-amd64"), breaks(chain.Refused, chain.Route), method},
		{"the kernel is from before 5.12, beside a peer-memory client", all(byDMABuf, hasPeer, not(inbox)), release("5.4.0-216-generic"), staysDirect, "the client of MLNX_OFED needs no such method: " + method},
		{"the kernel is RHEL 8's", all(byDMABuf, inbox), release("4.18.0-553.el8_10.x86_64"), goes(chain.Route), "it has backports, and what of this it has was not read"},
		{"the release is noise", all(byDMABuf, noPeer), release("frobnicate"), unsure(chain.Route), method},
		{"the release is cut", all(byDMABuf, noPeer), func(b *bed) { b.put("proc/sys/kernel/osrelease", "6.1") }, unsure(chain.Route), "kernel/utsname_sysctl.c: proc_dostring() ends the file with a line feed"},
		{"the release cannot be read", all(byDMABuf, noPeer), func(b *bed) {
			b.deny("proc/sys/kernel/osrelease")
			b.drop("proc/version")
		}, unsure(chain.Route), method},
		{"the release is not in the copy, beside a peer-memory client", onlyPeer, func(b *bed) {
			b.drop("proc/sys/kernel/osrelease")
			b.drop("proc/version")
		}, unsure(chain.Route), unread},
		{"the release is not in the copy", all(byDMABuf, noPeer), func(b *bed) { b.drop("proc/sys/kernel/osrelease") }, unsure(chain.Route), method},
		{"the kernel is newer than all that were read", nil, release("7.4.0"), unsure(chain.Route, chain.Attach), unread},
		{"the kernel is of the next age", nil, release("8.0.1-generic"), goes(chain.Route, chain.Attach), unread},
		{"the kernel is 6.2, on which bnxt_re may import or not", bnxt, release("6.2.16"), goes(chain.Route, chain.Attach), "bnxt_re imports in 6.12, and does not in 6.1"},
		{"the kernel is 6.1, on which bnxt_re imports nothing", bnxt, release("6.1.0-18-amd64"), breaks(chain.Refused, chain.Route), "drivers/infiniband/hw/bnxt_re of 6.1: no reg_user_mr_dmabuf"},
		{"the kernel is 5.15, whose P2PDMA rules were not read", ttm, release("5.15.180"), goes(chain.Decision, chain.Route, chain.Attach), "drivers/pci/p2pdma.c was read from 6.1 on"},
		{"the kernel is 6.12, where a pinned buffer of amdgpu goes to system memory", all(ttm, bnxt), release("6.12.48"), breaks(chain.Staged, chain.Attach), "amdgpu_dma_buf.c amdgpu_dma_buf_pin() of 6.12"},

		{"the kernel has no P2PDMA, and the exporter asks for it", ttm, option("CONFIG_PCI_P2PDMA", "n"), breaks(chain.Staged, chain.Decision), asks},
		{"the kernel has no P2PDMA, and the exporter does not ask", not(ttm), option("CONFIG_PCI_P2PDMA", "n"), staysDirect, notAsked},
		{"the kernel has no dma-bufs", all(byDMABuf, noPeer), option("CONFIG_DMA_SHARED_BUFFER", "n"), breaks(chain.Refused, chain.Route), selects},
		{"the kernel has no dma-bufs, beside a peer-memory client", all(byDMABuf, hasPeer), option("CONFIG_DMA_SHARED_BUFFER", "n"), staysDirect, "nvidia-peermem.c uses no dma-buf"},
		{"the kernel has no dma-bufs, and the pair none either", onlyPeer, option("CONFIG_DMA_SHARED_BUFFER", "n"), staysDirect, "nvidia-peermem.c uses no dma-buf"},
		{"the kernel has no on-demand paging", asksMLX5, option("CONFIG_INFINIBAND_ON_DEMAND_PAGING", "n"), breaks(chain.Refused, chain.Route), odp},
		{"the kernel has no on-demand paging, and the NIC is no mlx5", bnxt, option("CONFIG_INFINIBAND_ON_DEMAND_PAGING", "n"), changesNothing, odp},
		{"the kernel pins for dynamic importers", all(ttm, of("6.8"), mlx5), option("CONFIG_DMABUF_MOVE_NOTIFY", "n"), goes(chain.Attach), notify},
		{"the kernel pins for dynamic importers, and the exporter never moves", isNVIDIA, option("CONFIG_DMABUF_MOVE_NOTIFY", "n"), changesNothing, "nv-dmabuf.c has no pin, and never moves a buffer"},

		{"the configuration cannot be read, and amdgpu asks for P2PDMA", ttm, configDenied, unsure(chain.Decision, chain.Route, chain.Attach), asks},
		{"no file has the configuration, and amdgpu asks for P2PDMA", ttm, noConfig, unsure(chain.Decision, chain.Route, chain.Attach), asks},
		{"the configuration is empty, and amdgpu asks for P2PDMA", ttm, func(b *bed) {
			_, file := b.config()
			b.put(file, "")
		}, unsure(chain.Decision, chain.Route, chain.Attach), asks},
		{"the configuration cannot be read, and mlx5 asks for on-demand paging", asksMLX5, configDenied, unsure(chain.Route, chain.Decision), odp},
		{"no file has the configuration, and mlx5 asks for on-demand paging", asksMLX5, noConfig, unsure(chain.Route, chain.Decision), odp},
		{"the configuration is the symbols', which have on-demand paging", all(asksMLX5, isNVIDIA), both(noConfig, symbols("pci_p2pdma_distance_many", "mlx5_ib_odp_init_one\t[mlx5_ib]")), staysDirect, symbol},
		{"the configuration is the symbols', which have no on-demand paging", all(asksMLX5, isNVIDIA), both(noConfig, symbols("pci_p2pdma_distance_many")), goes(chain.Route), symbol},
		{"the configuration cannot be read, and neither NIC nor GPU ask for an option", all(isNVIDIA, bnxt), configDenied, staysDirect, selects},
		{"the configuration cannot be read, and the way is peer memory", onlyPeer, configDenied, staysDirect, "nvidia-peermem.c, kfd_peerdirect.c: no option of the kernel is asked"},

		{"the command line has words of others", nil, func(b *bed) {
			b.put("proc/cmdline", strings.TrimSpace(b.read("proc/cmdline"))+" mitigations=off hugepages=1024 quiet\n")
		}, changesNothing, "no link rests on the command line: what it brings about is in the other files"},
		{"the command line cannot be read", nil, func(b *bed) { b.deny("proc/cmdline") }, changesNothing, "no link rests on the command line: what it brings about is in the other files"},
	}
}
