// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// cpu replaces text of the first processor in cpuinfo.
func cpu(key, value string) func(*bed) {
	return func(b *bed) {
		text := ""
		for line := range strings.Lines(b.read("proc/cpuinfo")) {
			if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				if value == "" {
					continue
				}
				line = key + "\t: " + value + "\n"
			}
			text += line
		}
		b.put("proc/cpuinfo", text)
	}
}

// dmi is what the firmware calls the machine.
func dmi(vendor, product string) func(*bed) {
	return func(b *bed) {
		b.put("sys/class/dmi/id/sys_vendor", vendor+"\n")
		b.put("sys/class/dmi/id/product_name", product+"\n")
	}
}

func x86(s *subject) bool { return s.root != grace }
func byRoot(r root) func(*subject) bool {
	return func(s *subject) bool { return s.root == r }
}

func rootMutations() []mutation {
	const (
		list    = "drivers/pci/p2pdma.c pci_p2pdma_whitelist"
		amd     = "drivers/pci/p2pdma.c cpu_supports_p2pdma(): AMD from family 17h on"
		guest   = "in a guest the host's ports decide, and the guest does not see them: NVIDIA/nccl-tests#380"
		flag    = "Intel SDM and AMD APM, CPUID 1 ECX 31: the processor itself says that there is a hypervisor"
		c2c     = "nv-dmabuf.c nv_dma_buf_map_pages(): the NIC reaches memory with pages as it reaches the host's"
		chipset = "open-gpu-kernel-modules osinit.c _checkP2pChipsetSupport()"
		faulty  = "open-gpu-kernel-modules#1253; intel/compute-runtime#935"
	)
	host := func(vendor, device string) func(*bed) {
		return func(b *bed) {
			for _, addr := range b.hosts() {
				b.identify(addr, vendor, device)
			}
		}
	}
	far := all(overRoot, x86)
	hypervisor := func(b *bed) {
		text := b.read("proc/cpuinfo")
		if !strings.Contains(text, "flags") {
			text = strings.Replace(text, "\n", "\nflags\t\t: hypervisor fpu\n", 1)
		} else {
			text = strings.Replace(text, "flags\t\t: ", "flags\t\t: hypervisor ", 1)
			text = strings.Replace(text, "flags\t: ", "flags\t: hypervisor ", 1)
		}
		b.put("proc/cpuinfo", text)
	}
	return []mutation{
		{"the host bridge is on no list: over the root", all(far, byRoot(listed)), host("0x8086", "0xfff0"), goes(chain.Fabric), list},
		{"the host bridge is on no list, of AMD's: over the root", all(far, byRoot(zen)), host("0x1022", "0xfff0"), changesNothing, amd},
		{"the host bridge is on no list: below one switch", all(onSwitch, x86), host("0x8086", "0xfff0"), changesNothing, "the traffic does not reach the host bridge"},
		{"the host bridge is trusted for itself only, and there are two", func(s *subject) bool { return s.name == "wrong-socket" || s.name == "daos-h100-nvl-rocky10" }, host("0x8086", "0x2f00"), goes(chain.Fabric), list + ": REQ_SAME_HOST_BRIDGE"},
		{"the host bridge passes wrong data", all(far, byRoot(listed)), host("0x8086", "0x4c43"), goes(chain.Fabric), faulty},
		{"the host bridge loses reads", far, host("0x8086", "0x7d1b"), goes(chain.Fabric), faulty},
		{"the host bridge's id cannot be read: over the root", all(far, byRoot(listed)), func(b *bed) { b.deny(b.dir(b.hosts()[0]) + "/device") }, unsure(chain.Fabric), list},
		{"the root complex is one that NVIDIA holds unable", all(far, func(s *subject) bool { return s.exporter == nvidia }), host("0x1def", "0xe100"), goes(chain.Fabric, chain.Attach), chipset},

		{"the processor is AMD's from before Zen: over the root", all(far, byRoot(zen)), cpu("cpu family", "21"), goes(chain.Fabric), amd},
		{"the family of AMD's processor cannot be read: over the root", all(far, byRoot(zen)), cpu("cpu family", ""), unsure(chain.Fabric), amd},
		{"the family of AMD's processor is noise: over the root", all(far, byRoot(zen)), cpu("cpu family", "many"), unsure(chain.Fabric), amd},
		{"the processor is of a vendor that is on no list: over the root", all(far, byRoot(zen)), cpu("vendor_id", "AcmeProcessor"), goes(chain.Fabric), amd},
		{"the processor is of a vendor that is on no list, and the host bridge is listed", all(x86, byRoot(listed)), cpu("vendor_id", "AcmeProcessor"), staysDirect, list + ": it goes by the host bridge"},
		{"the family of AMD's processor is noise: below one switch", all(onSwitch, byRoot(zen)), cpu("cpu family", "many"), changesNothing, "the traffic does not reach the root complex"},

		{"cpuinfo cannot be read", nil, func(b *bed) { b.deny("proc/cpuinfo") }, unsure(chain.Fabric, chain.Decision, chain.Library, chain.Attach), guest},
		{"cpuinfo is not in the copy", nil, func(b *bed) { b.drop("proc/cpuinfo") }, unsure(chain.Fabric, chain.Decision, chain.Library, chain.Attach), guest},
		{"cpuinfo is cut within the flags", x86, func(b *bed) {
			text := b.read("proc/cpuinfo")
			b.put("proc/cpuinfo", text[:strings.Index(text, "flags")+len("flags\t\t: fp")])
		}, unsure(chain.Fabric, chain.Library), guest},
		{"cpuinfo has a line of flags that is empty", x86, func(b *bed) {
			b.put("proc/cpuinfo", strings.Replace(b.read("proc/cpuinfo"), "flags\t\t: ", "flags\t\t: \nwas\t: ", 1))
		}, unsure(chain.Fabric, chain.Library), guest},
		{"cpuinfo has no flags", x86, cpu("flags", ""), goes(chain.Fabric, chain.Library), guest},
		{"the firmware's names are not in the copy, and only they say that the machine is no guest", is(coherent), func(b *bed) { b.drop("sys/class/dmi") }, unsure(chain.Fabric, chain.Library), guest},
		{"cpuinfo is empty", nil, func(b *bed) { b.put("proc/cpuinfo", "") }, unsure(chain.Fabric, chain.Decision, chain.Library, chain.Attach), guest},
		{"the processor says that there is a hypervisor", nil, hypervisor, goes(chain.Fabric, chain.Library), flag},
		{"the firmware is QEMU's", nil, dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)"), goes(chain.Fabric, chain.Library), guest},
		{"the firmware is KVM's", nil, dmi("Red Hat", "KVM"), goes(chain.Fabric, chain.Library), guest},
		{"the firmware is VMware's", nil, dmi("VMware, Inc.", "VMware20,1"), goes(chain.Fabric, chain.Library), guest},
		{"the firmware is Hyper-V's", nil, dmi("Microsoft Corporation", "Virtual Machine"), goes(chain.Fabric, chain.Library), guest},
		{"the firmware is Google's", nil, dmi("Google", "Google Compute Engine"), goes(chain.Fabric, chain.Library), guest},
		{"the firmware is a maker's without a name here", x86, dmi("Acme", "Rocket"), changesNothing, flag},
		{"the firmware cannot be read", x86, func(b *bed) {
			b.deny("sys/class/dmi/id/sys_vendor")
			b.deny("sys/class/dmi/id/product_name")
		}, changesNothing, flag},

		{"GPU and NIC are on two nodes: over the root", all(far, func(s *subject) bool { return s.name == "case-08-emerald-rapids" && s.as == "" }), func(b *bed) {
			b.put(b.dir(b.s.at)+"/numa_node", "1\n")
		}, costs, "NVIDIA/nccl#465: traffic between sockets is slow"},
		{"the firmware names no node", onSwitch, func(b *bed) {
			b.put(b.dir(b.s.at)+"/numa_node", "-1\n")
			b.put(b.dir(b.s.gpu)+"/numa_node", "-1\n")
		}, changesNothing, "Documentation/ABI/testing/sysfs-bus-pci: a node is a hint"},
		{"a root port has egress control: over the root", all(far), func(b *bed) { b.space(rootPort(b, b.s.at), "acs=0x20") }, goes(chain.Fabric), "PCI Express, ACS P2P Egress Control: a vector says which root ports are blocked"},
		{"the GPU's root port has egress control: over the root", all(far), func(b *bed) { b.space(rootPort(b, b.s.gpu), "acs=0x2c") }, goes(chain.Fabric), "PCI Express, ACS P2P Egress Control: a vector says which root ports are blocked"},
		{"a root port can be read in 64 bytes, as without root: over the root", all(far), func(b *bed) { b.space(rootPort(b, b.s.at), "config=64") }, unsure(chain.Fabric), "PCI Express, ACS P2P Egress Control: whether the root port blocks is in its ACS"},
		{"the GPU's root port is one of which the kernel reaches 256 bytes: over the root", all(far), func(b *bed) { b.space(rootPort(b, b.s.gpu), "config=256") }, goes(chain.Fabric), "PCI Express, ACS P2P Egress Control: whether the root port blocks is in its ACS"},
		{"a root port redirects, as the kernel sets it: over the root", far, func(b *bed) { b.space(rootPort(b, b.s.at), "acs=0x1d") }, changesNothing, "the traffic goes to the root complex anyway: drivers/pci/p2pdma.c asks no port above a host bridge"},
		{"a root port redirects requests only: over the root", far, func(b *bed) { b.space(rootPort(b, b.s.at), "acs=0x04") }, changesNothing, "the traffic goes to the root complex anyway: drivers/pci/p2pdma.c asks no port above a host bridge"},
	}
}
