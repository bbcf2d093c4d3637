// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"os"
	"path"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

func inbox(s *subject) bool    { return !s.ofed }
func mlx5(s *subject) bool     { return s.importer == "mlx5" }
func bnxt(s *subject) bool     { return s.importer == "bnxt" }
func byDMABuf(s *subject) bool { return s.dmabuf }
func hasPeer(s *subject) bool  { return s.peer }
func onlyPeer(s *subject) bool { return s.peer && !s.dmabuf }
func noPeer(s *subject) bool   { return !s.peer }

// module is the RDMA module of the NIC's driver.
func (s *subject) module() string {
	return map[string]string{"mlx5": "mlx5_ib", "bnxt": "bnxt_re"}[s.importer]
}

// taint changes the taint of a module.
func taint(module, letters string) func(*bed) {
	return func(b *bed) { b.put("sys/module/"+module+"/taint", letters+"\n") }
}

// ofRDMA edits a file of the RDMA module of the NIC's driver.
func ofRDMA(edit func(b *bed, dir string)) func(*bed) {
	return func(b *bed) { edit(b, "sys/module/"+b.s.module()) }
}

// client is the file by which ib_core shows the peer-memory client.
func client(s *subject) string {
	if s.exporter == amdDKMS {
		return "sys/kernel/mm/memory_peers/amdkfd/version"
	}
	return "sys/kernel/mm/memory_peers/nv_mem/version"
}

func routeMutations() []mutation {
	const (
		openOnly = "open-gpu-kernel-modules nv-dmabuf.c: the open modules alone export dma-bufs; microsoft/mscclpp#657"
		tables   = "the tables have no rule for this driver"
		mr       = "drivers/infiniband/core/uverbs_std_types_mr.c: the method asks the driver's reg_user_mr_dmabuf"
		ofed     = "linux-rdma/perftest#280: what a driver of MLNX_OFED imports depends on its release"
		peers    = "NVIDIA/nccl#1939: a client is registered where memory_peers has it, and nowhere else"
		uverbs   = "drivers/infiniband/core/uverbs_main.c: programs register memory by the character device of ib_uverbs"
	)
	proprietary := both(taint("nvidia", "POE"), func(b *bed) {
		b.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n")
	})
	openDMABuf := all(isNVIDIA, byDMABuf)
	return []mutation{
		{"the link to the GPU's driver was not copied", nil, func(b *bed) {
			b.drop(b.dir(b.s.gpu) + "/driver")
			b.must(os.MkdirAll(b.take("proc/driver/nvidia/gpus/"+b.s.gpu), 0o700))
		}, unsure(chain.Attach, chain.Library), "nv-procfs.c: the driver lists the functions that it is bound to"},
		{"the NIC's place was copied as a directory", byDMABuf, func(b *bed) {
			dir := "sys/class/infiniband/" + b.s.nic
			b.must(os.MkdirAll(b.take(dir), 0o700))
			b.link(dir+"/device/driver", "sys/bus/pci/drivers/mlx5_core")
		}, goes(chain.Attach, chain.Route), "cp -L copies what a link leads to"},
		{"the NIC's place was copied as a directory, beside a peer-memory client", onlyPeer, func(b *bed) {
			b.must(os.MkdirAll(b.take("sys/class/infiniband/"+b.s.nic), 0o700))
		}, goes(chain.Route), "cp -L copies what a link leads to"},
		{"no driver is bound to the GPU", nil, func(b *bed) { b.driver(b.s.gpu, "") }, goes(chain.Attach, chain.Library), "drivers/dma-buf/dma-buf.c: a driver has to export"},
		{"the GPU's driver is in no table", nil, func(b *bed) { b.driver(b.s.gpu, "acme") }, goes(chain.Attach, chain.Library), tables},
		{"the GPU's driver is nouveau", all(isNVIDIA, byDMABuf), both(func(b *bed) { b.driver(b.s.gpu, "nouveau") }, taint("nouveau", "")), breaks(chain.Staged, chain.Attach), "nouveau_prime.c nouveau_gem_prime_pin()"},
		{"the GPU's driver is radeon", isAMD, both(func(b *bed) { b.driver(b.s.gpu, "radeon") }, taint("radeon", "")), goes(chain.Library, chain.Attach), "radeon_prime.c radeon_gem_prime_pin()"},

		{"NVIDIA's modules are the proprietary ones", all(openDMABuf, noPeer), proprietary, breaks(chain.Refused, chain.Route), openOnly},
		{"NVIDIA's modules are the proprietary ones, beside a peer-memory client", all(openDMABuf, hasPeer), proprietary, staysDirect, "nvidia-peermem.c registers memory of either modules: microsoft/mscclpp#657"},
		{"the taint of nvidia says proprietary, and the version open", all(openDMABuf, noPeer), taint("nvidia", "POE"), goes(chain.Route), openOnly},
		{"the taint of nvidia cannot be read", all(openDMABuf, noPeer), func(b *bed) { b.deny("sys/module/nvidia/taint") }, unsure(chain.Route), openOnly},
		{"the taint of nvidia is empty", all(openDMABuf, noPeer), taint("nvidia", ""), unsure(chain.Route), openOnly},
		{"the taint of nvidia is noise", all(openDMABuf, noPeer), taint("nvidia", "\xff?"), unsure(chain.Route), openOnly},
		{"the module nvidia has no taint", all(openDMABuf, noPeer), func(b *bed) { b.drop("sys/module/nvidia/taint") }, goes(chain.Route), openOnly},

		{"the NIC's driver is in no table", byDMABuf, func(b *bed) { b.driver(b.s.at, "acme_core") }, goes(chain.Route), tables},
		{"no driver is bound to the NIC", byDMABuf, func(b *bed) { b.driver(b.s.at, "") }, goes(chain.Route), tables},
		{"the taint of the NIC's module is a file without its line feed", all(byDMABuf, inbox, noPeer), ofRDMA(func(b *bed, dir string) { b.put(dir+"/taint", "") }), goes(chain.Route, chain.Attach), "kernel/module/sysfs.c show_taint() ends the file with a line feed; tar makes empty files of some"},
		{"the NIC's driver is mlx4", all(byDMABuf, inbox), both(func(b *bed) { b.driver(b.s.at, "mlx4_core") }, taint("mlx4_ib", "")), breaks(chain.Refused, chain.Route), "drivers/infiniband/hw/mlx4/main.c: no reg_user_mr_dmabuf"},
		{"the NIC's driver is one that asks no peer-memory client", onlyPeer, func(b *bed) { b.driver(b.s.at, "bnxt_en") }, goes(chain.Route), "MLNX_OFED: ib_umem_get_peer() is called by mlx4 and mlx5"},
		{"the NIC's driver is in no table, beside a peer-memory client", onlyPeer, func(b *bed) { b.driver(b.s.at, "acme_core") }, goes(chain.Route), tables},
		{"the NIC's module is not the kernel's own", all(byDMABuf, inbox), ofRDMA(func(b *bed, dir string) { b.put(dir+"/taint", "OE\n") }), goes(chain.Route), ofed},
		{"the NIC's module is of an MLNX_OFED before dma-bufs", all(byDMABuf, mlx5, noPeer), ofRDMA(func(b *bed, dir string) {
			b.put(dir+"/taint", "OE\n")
			b.put(dir+"/version", "5.8-1.1.2\n")
		}), goes(chain.Route), ofed},
		{"the NIC's module is of an MLNX_OFED that was not read", all(byDMABuf, mlx5, noPeer), ofRDMA(func(b *bed, dir string) {
			b.put(dir+"/taint", "OE\n")
			b.put(dir+"/version", "47.01-0.1.0\n")
		}), unsure(chain.Route), ofed},
		{"the taint of the NIC's module cannot be read", all(byDMABuf, noPeer), ofRDMA(func(b *bed, dir string) { b.deny(dir + "/taint") }), unsure(chain.Route), ofed},
		{"the NIC's module is not in sysfs", all(byDMABuf, noPeer), ofRDMA(func(b *bed, dir string) { b.drop(dir) }), goes(chain.Route), ofed},
		{"the version of MLNX_OFED cannot be read", all(byDMABuf, noPeer, not(inbox)), ofRDMA(func(b *bed, dir string) { b.deny(dir + "/version") }), unsure(chain.Route), ofed},
		{"ib_uverbs is of another source than the NIC's module", all(byDMABuf, inbox), taint("ib_uverbs", "OE"), goes(chain.Route), "linux-rdma/perftest#280: an ib_uverbs that is not the kernel's own may not have REG_DMABUF_MR"},
		{"the taint of ib_uverbs cannot be read", all(byDMABuf, inbox), func(b *bed) { b.deny("sys/module/ib_uverbs/taint") }, unsure(chain.Route), "linux-rdma/perftest#280"},

		{"the peer-memory client is not registered", onlyPeer, func(b *bed) { b.drop(path.Dir(client(b.s))) }, goes(chain.Route, chain.Attach, chain.Decision, chain.Library), peers},
		{"whether the peer-memory client is registered cannot be read", onlyPeer, func(b *bed) { b.deny(client(b.s)) }, unsure(chain.Route, chain.Attach, chain.Decision, chain.Library), peers},
		{"the peer-memory client is not registered, and not needed", all(hasPeer, byDMABuf), func(b *bed) { b.drop(path.Dir(client(b.s))) }, changesNothing, "siderolabs/talos#12021: dma-bufs need no client"},
		{"the peer-memory client is that of another vendor", onlyPeer, func(b *bed) {
			b.drop(path.Dir(client(b.s)))
			b.put("sys/kernel/mm/memory_peers/acme/version", "1.0\n")
		}, goes(chain.Route, chain.Attach, chain.Decision, chain.Library), peers},

		{"ib_uverbs is not loaded", nil, func(b *bed) {
			b.drop("sys/class/infiniband_verbs")
		}, goes(chain.Route), uverbs},
		{"ib_uverbs does not serve the NIC", nil, func(b *bed) { b.drop(b.uverbs()) }, goes(chain.Route), uverbs},
		{"which NIC ib_uverbs serves cannot be read", nil, func(b *bed) { b.deny(b.uverbs() + "/ibdev") }, unsure(chain.Route), uverbs},
		{"the version of the verbs ABI cannot be read", nil, func(b *bed) { b.deny("sys/class/infiniband_verbs/abi_version") }, changesNothing, uverbs + ", and the NIC has one"},
	}
}
