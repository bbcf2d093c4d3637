// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// virtual is whether a machine is a hypervisor's guest.
type virtual struct {
	is    placement.Answer
	why   string
	where []string
}

// hypervisors are words by which their machines call themselves.
var hypervisors = []string{
	"QEMU", "KVM", "VMware", "Virtual Machine", "VirtualBox", "Google Compute Engine", "OpenStack", "HVM domU",
	"Nutanix", "oVirt", "RHEV", "Xen", "BHYVE", "Parallels",
}

// makers are words of those who build servers with processors other than x86,
// which have no flag for a hypervisor. Of all others it is not known.
var makers = []string{
	"NVIDIA", "Supermicro", "GIGABYTE", "Giga Computing", "Hewlett", "HPE", "Dell", "Lenovo", "IBM", "Ampere", "ADLINK",
	"ASUS", "ASRock", "Quanta", "QCT", "Wiwynn", "Wistron", "Foxconn", "Ingrasys", "Inventec", "Pegatron", "MiTAC", "Fujitsu",
	"Huawei", "Inspur", "H3C", "ZTE", "Cisco", "Cavium", "Marvell", "Apple",
}

func (m *Machine) readVirtual() virtual {
	cpu := m.read("proc/cpuinfo")
	flags, x86 := cpu.line("flags")
	product, vendor := m.read("sys/class/dmi/id/product_name"), m.read("sys/class/dmi/id/sys_vendor")
	name := strings.TrimSpace(vendor.text + " " + product.text)
	if x86 && strings.Contains(" "+flags+" ", " hypervisor ") {
		return virtual{placement.Yes, strings.TrimSuffix("the processor says so: "+name, ": "), cpu.at()}
	}
	for _, word := range hypervisors {
		if strings.Contains(name, word) {
			return virtual{placement.Yes, name, vendor.at()}
		}
	}
	switch {
	case x86:
		return virtual{placement.No, strings.TrimSuffix("the processor knows of no hypervisor: "+name, ": "), cpu.at()}
	case cpu.err == nil && cpu.text != "" && product.text != "" && vendor.text != "" && built(vendor.text, product.text):
		return virtual{placement.No, name, product.at()}
	case cpu.err == nil && cpu.text != "" && name != "":
		return virtual{placement.AnswerUnknown, "the processor does not say, and neither does the firmware: " + name, product.at()}
	case cpu.err != nil:
		return virtual{placement.AnswerUnknown, cpu.why(), cpu.at()}
	}
	return virtual{placement.AnswerUnknown, "neither the processor nor the firmware says", cpu.at()}
}

// built reports a machine by a maker's name; a cloud's says so of its own.
func built(vendor, product string) bool {
	return slices.ContainsFunc(makers, func(word string) bool { return strings.Contains(vendor, word) }) || strings.Contains(product, ".metal")
}
