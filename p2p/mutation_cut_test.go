// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"encoding/binary"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// dropAll takes away what matches a pattern.
func dropAll(pattern string) func(*bed) {
	return func(b *bed) {
		found, err := filepath.Glob(filepath.Join(b.root, pattern))
		b.must(err)
		for _, at := range found {
			name, err := filepath.Rel(b.root, at)
			b.must(err)
			b.drop(name)
		}
	}
}

// dirAt makes an empty directory of what is at a path.
func dirAt(name string) func(*bed) {
	return func(b *bed) { b.must(os.MkdirAll(b.take(name), 0o700)) }
}

// headerOf writes the header that a kernel's configuration begins with.
func headerOf(series string) func(*bed) {
	return func(b *bed) {
		_, file := b.config()
		b.put(file, "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 "+series+" Kernel Configuration\n#\n"+b.read(file))
	}
}

// cutMutations are of files that a copy has in part, from another boot, or of another function: they
// are unread, and what such a file lacks may be on the machine.
func cutMutations() []mutation {
	const (
		zeros    = "tar makes a file as long as the kernel says it is, and fills what could not be read with zeros"
		link     = "lib/kobject: each link of a device is in sysfs or the device has none; a copy may lack it"
		twoBoots = "a copy that was taken in parts may have files of two boots"
		groups   = "drivers/iommu/iommu.c: an IOMMU that is on is in class/iommu, and each function is in a group"
		function = "PCI Express SR-IOV: vendor and device of a virtual function read as ones"
		feed     = "drivers/pci/pci-sysfs.c ends each number with a line feed"
	)
	portOfNIC := func(b *bed) string { return above(b, b.s.at) }
	translated := all(translates, handsIOVAs)
	asksPorts := all(onSwitch, not(translates))
	return []mutation{
		{"the version of the peer-memory client is empty", onlyPeer, func(b *bed) { b.put(client(b.s), "") }, unsure(chain.Route, chain.Library), zeros},
		{"the version of the peer-memory client is zeros", onlyPeer, func(b *bed) { b.put(client(b.s), "\x00\x00\x00\x00") }, unsure(chain.Route, chain.Library), zeros},
		{"the directory of the peer-memory client was copied without its version", onlyPeer, func(b *bed) { b.drop(client(b.s)) }, unsure(chain.Route, chain.Library), "a client of ib_core has a version in its directory"},
		{"the kernel's directory of memory was not copied", onlyPeer, func(b *bed) { b.drop("sys/kernel/mm") }, unsure(chain.Route, chain.Library), "mm/mm_init.c: each kernel makes /sys/kernel/mm, and a client is shown below it"},

		{"the directory of the verbs devices was not copied, and ib_uverbs is loaded", nil, both(
			func(b *bed) { b.drop("sys/class/infiniband_verbs") }, dirAt("sys/module/ib_uverbs/holders"),
			taint("ib_uverbs", "")), unsure(chain.Route), link},
		{"the directory of the verbs devices was not copied, nor the modules", noPeer, both(
			func(b *bed) { b.drop("sys/class/infiniband_verbs") }, func(b *bed) { b.drop("sys/module/ib_uverbs") }, ofRDMA(func(b *bed, dir string) { b.drop(dir) })),
			unsure(chain.Route), "drivers/infiniband/core/Makefile: ib_umem_get() is in ib_uverbs, which each driver of a NIC needs"},

		{"the kernel's directory of groups was not copied, nor the links to them", translated, both(
			dropAll("sys/devices/pci*/*/iommu_group"), dropAll("sys/devices/pci*/*/*/iommu_group"), dropAll("sys/devices/pci*/*/*/*/iommu_group"),
			dropAll("sys/devices/pci*/*/*/*/*/iommu_group"), func(b *bed) { b.drop("sys/kernel/iommu_groups") },
			func(b *bed) { b.drop("sys/class/mem") }), unsure(chain.Addresses, chain.Attach, chain.Decision), groups},
		{"the links to the groups were not copied", translates, func(b *bed) { b.drop(b.dir(b.s.at) + "/iommu_group") }, unsure(chain.Addresses, chain.Attach, chain.Decision), groups},
		{"the NIC's link to its group was not copied, nor the links of the groups", translates, both(
			func(b *bed) { b.drop(b.dir(b.s.at) + "/iommu_group") }, func(b *bed) {
				b.must(os.RemoveAll(b.take(path.Dir(b.group(b.s.gpu)) + "/devices")))
				b.must(os.MkdirAll(b.take(path.Dir(b.group(b.s.gpu))+"/devices"), 0o700))
			}), unsure(chain.Addresses, chain.Attach, chain.Decision), groups},
		{"the groups are gone, and an IOMMU is on", translates, both(
			func(b *bed) { b.drop(b.dir(b.s.at) + "/iommu_group") }, dirAt("sys/kernel/iommu_groups"),
			func(b *bed) { b.put("sys/class/iommu/dmar0/intel-iommu/version", "4:0\n") }), goes(chain.Addresses, chain.Attach, chain.Decision), groups},

		{"a port's configuration space is zeros", asksPorts, func(b *bed) {
			b.put(b.dir(portOfNIC(b))+"/config", strings.Repeat("\x00", 4096))
		}, unsure(chain.Fabric, chain.Decision, chain.Attach), zeros},
		{"a port's configuration space is zeros behind 256 bytes", asksPorts, func(b *bed) { b.fill(portOfNIC(b), 256, 0) }, unsure(chain.Fabric, chain.Decision), zeros},
		{"a port's configuration space is another function's", asksPorts, func(b *bed) {
			config := []byte(b.read(b.dir(portOfNIC(b)) + "/config"))
			binary.LittleEndian.PutUint16(config[2:], 0xabcd)
			b.put(b.dir(portOfNIC(b))+"/config", string(config))
		}, goes(chain.Fabric, chain.Decision, chain.Attach), twoBoots},
		{"the NIC's configuration space is zeros behind 256 bytes", nil, func(b *bed) { b.fill(b.s.at, 256, 0) }, staysDirect, "PCI Express: a header of zeros says that an endpoint has no extended capability"},

		{"the GPU is a virtual function", is(nvidia), func(b *bed) { b.link(b.dir(b.s.gpu)+"/physfn", b.dir(b.s.at)) }, breaks(chain.Refused, chain.Library), "NVIDIA vGPU: the driver of the host makes virtual functions for guests"},
		{"the GPU is a virtual function of amdgpu", isAMD, func(b *bed) { b.link(b.dir(b.s.gpu)+"/physfn", b.dir(b.s.at)) }, goes(chain.Library), "GIM, ROCm's driver of hosts, makes virtual functions for guests"},
		{"the GPU is a virtual function of a driver that the kernel has", all(is(nvidia), of("7.2")), both(
			func(b *bed) { b.link(b.dir(b.s.gpu)+"/physfn", b.dir(b.s.at)) }, func(b *bed) { b.driver(b.s.gpu, "vfio-pci") }, taint("vfio_pci", "")), staysDirect, "drivers/vfio/pci/vfio_pci_dmabuf.c asks for no kind of function"},
		{"the GPU is a virtual function, and its link was not copied", nil, func(b *bed) {
			config := []byte(b.read(b.dir(b.s.gpu) + "/config"))
			copy(config, "\xff\xff\xff\xff")
			b.put(b.dir(b.s.gpu)+"/config", string(config))
		}, unsure(chain.Library), function},

		{"the text of the version is of the proprietary modules, and the taint of the open ones", all(isNVIDIA, byDMABuf, noPeer), func(b *bed) {
			b.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n")
		}, goes(chain.Library, chain.Route, chain.Attach), twoBoots},

		{"the configuration is another series'", is(amdgpu), headerOf("5.4.0"), goes(chain.Decision, chain.Route, chain.Attach), twoBoots},
		{"the version is of another kernel than the release", all(byDMABuf, noPeer), func(b *bed) {
			b.put("proc/version", "Linux version 5.4.0-99-generic (build@host) #1 SMP\n")
		}, goes(chain.Route, chain.Attach), twoBoots},
		{"the symbols are cut among mlx5_ib's", all(byDMABuf, inbox, mlx5, isNVIDIA), func(b *bed) {
			noConfig(b)
			b.put("proc/kallsyms", "0 T pci_p2pdma_distance_many\n0 T pci_enable_device\n0 T _etext\n0 t mlx5_ib_reg_user_mr\t[mlx5_ib]\n")
		}, unsure(chain.Route), "the symbols of a module stand together, and what follows them is not there"},

		{"a host bridge has empty ids", func(s *subject) bool { return s.root == listed && s.below == "" }, func(b *bed) {
			for _, addr := range b.hosts() {
				b.put(b.dir(addr)+"/vendor", "")
				b.put(b.dir(addr)+"/device", "")
			}
		}, unsure(chain.Fabric), feed},
		{"the NIC's address bits have no line feed", untranslated, func(b *bed) { b.put(b.dir(b.s.at)+"/dma_mask_bits", "6") }, goes(chain.Addresses), feed},
		{"the GPU's place was copied as a directory", all(is(nvidia), translates, not(before612)), func(b *bed) {
			b.must(os.MkdirAll(b.take("sys/bus/pci/devices/"+b.s.gpu), 0o700))
			for _, name := range []string{"class", "vendor", "device", "resource", "config", "dma_mask_bits", "numa_node"} {
				b.must(os.WriteFile(filepath.Join(b.root, "sys/bus/pci/devices", b.s.gpu, name), []byte(b.read(b.dir(b.s.gpu)+"/"+name)), 0o600))
			}
			b.must(os.Symlink(filepath.Join(b.root, "sys/bus/pci/drivers/nvidia"), filepath.Join(b.root, "sys/bus/pci/devices", b.s.gpu, "driver")))
		}, unsure(chain.Addresses, chain.Fabric, chain.Attach), "cp -L copies what a link leads to"},
		{"the link to the GPU's driver was not copied, and the driver's to the GPU was", nil, both(
			func(b *bed) { b.driver(b.s.gpu, "") }, func(b *bed) { b.link("sys/bus/pci/drivers/some/"+b.s.gpu, b.dir(b.s.gpu)) }), unsure(chain.Attach, chain.Library), link},
		{"the kernel is from before 5.12, and the taint of ib_uverbs cannot be read", all(isNVIDIA, byDMABuf, noPeer), both(release("5.10.0-21-amd64"), taint("ib_uverbs", "OE"),
			func(b *bed) { b.deny("sys/module/ib_uverbs/taint") }, ofRDMA(func(b *bed, dir string) { b.put(dir+"/taint", "OE\n") })), unsure(chain.Route, chain.Attach), "MLNX_OFED has an ib_uverbs of its own for such kernels"},
		{"the kernel is from before 5.12, ib_uverbs is its own, and another NIC's driver is not", all(isNVIDIA, inbox, byDMABuf, noPeer), both(release("5.10.0-21-amd64"),
			taint("ib_uverbs", ""), taint("irdma", "OE")), breaks(chain.Refused, chain.Route), "uverbs_std_types_mr.c came with Linux 5.12, and is in ib_uverbs"},
		{"the peer-memory clients were not copied", onlyPeer, both(func(b *bed) { b.drop("sys/kernel/mm/memory_peers") }, func(b *bed) { b.drop("sys/class/mem") },
			func(b *bed) { b.must(os.MkdirAll(b.take("sys/module/nvidia_peermem"), 0o700)) }), unsure(chain.Route, chain.Library), "a copy without the class of /dev/mem is a part of a sysfs"},
		{"the GPU's regions are cut", not(is(coherent)), func(b *bed) {
			first, _, _ := strings.Cut(b.read(b.dir(b.s.gpu)+"/resource"), "\n")
			b.put(b.dir(b.s.gpu)+"/resource", first)
		}, unsure(chain.Addresses), "drivers/pci/pci-sysfs.c resource_show(): a line a region, seven of them at least"},
	}
}

// cutLogMutations are of logs that are of another boot or name functions in other words. They contradict nothing.
func cutLogMutations() []mutation {
	fault := dmar("DMAR: [DMA Write NO_PASID] Request device [BB:DD.F] fault addr %#x [fault reason 0x05] PTE Write access is not set", inWindow)
	bar := all(x86, inDomain0, untranslated)
	return []mutation{
		{"the IOMMU stopped the NIC on another kernel's boot", bar, func(b *bed) {
			b.put("dev/kmsg", "5,0,0,-;Linux version 4.9.0-99-generic (build@host) #1 SMP\n")
			fault(b)
		}, staysDirect, "a log of another kernel is of another boot"},
		{"VT-d stopped the NIC, and another PCI domain has a function with its number", bar, func(b *bed) {
			b.link("sys/bus/pci/devices/0001:"+short(b.s.at), b.dir(b.s.at))
			fault(b)
		}, goes(chain.Log), "drivers/iommu/intel/dmar.c names no domain"},
	}
}
