// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Fact is an answer to one question about the machine, and why.
type Fact struct {
	Is    placement.Answer
	Why   string
	Where []string
}

// hypervisors are words in the firmware's names of virtual machines.
var hypervisors = []string{
	"QEMU", "KVM", "VMware", "Virtual Machine", "VirtualBox", "Google Compute Engine", "OpenStack", "HVM domU",
	"Nutanix", "oVirt", "RHEV", "Xen", "BHYVE", "Parallels",
}

// makers are words in the names of companies that build servers with processors other than
// x86. Such processors have no flag for a hypervisor, so a machine of any other maker may be
// a guest.
var makers = []string{
	"NVIDIA", "Supermicro", "GIGABYTE", "Giga Computing", "Hewlett", "HPE", "Dell", "Lenovo", "IBM", "Ampere", "ADLINK",
	"ASUS", "ASRock", "Quanta", "QCT", "Wiwynn", "Wistron", "Foxconn", "Ingrasys", "Inventec", "Pegatron", "MiTAC", "Fujitsu",
	"Huawei", "Inspur", "H3C", "ZTE", "Cisco", "Cavium", "Marvell", "Apple",
	"Atos", "Bull", "Eviden", "ZT Systems", "AIVRES", "Hyve", "Compal",
	"Microsoft", // the product of whose guests is a Virtual Machine
}

// readVirtual reads whether the machine is a hypervisor's guest.
func (m *Machine) readVirtual() Fact {
	cpu := m.Read("proc/cpuinfo")
	flags, x86 := cpuFlags(cpu)
	product, vendor := m.Read("sys/class/dmi/id/product_name"), m.Read("sys/class/dmi/id/sys_vendor")
	name := strings.TrimSpace(vendor.Text + " " + product.Text)
	if x86 && slices.Contains(strings.Fields(flags), "hypervisor") {
		return Fact{placement.Yes, strings.TrimSuffix("the processor says so: "+name, ": "), cpu.At()}
	}
	for _, word := range hypervisors {
		if strings.Contains(name, word) {
			return Fact{placement.Yes, name, vendor.At()}
		}
	}
	switch {
	case x86:
		return Fact{placement.No, strings.TrimSuffix("the processor knows of no hypervisor: "+name, ": "), cpu.At()}
	case cpu.Err == nil && cpu.Text != "" && (m.CPU.Vendor != "" || !m.CPU.Known):
		return Fact{placement.AnswerUnknown, "the processor's flags, which name a hypervisor, were not read", cpu.At()}
	case cpu.Err == nil && cpu.Text != "" && product.Text != "" && vendor.Text != "" && built(vendor.Text, product.Text):
		return Fact{placement.No, name, product.At()}
	case cpu.Err == nil && cpu.Text != "" && name != "":
		return Fact{placement.AnswerUnknown, "the processor does not say, and neither does the firmware: " + name, product.At()}
	case cpu.Err != nil:
		return Fact{placement.AnswerUnknown, cpu.Why(), cpu.At()}
	}
	return Fact{placement.AnswerUnknown, "neither the processor nor the firmware says", cpu.At()}
}

// cpuFlags are the flags of the first processor. A line that is empty, or without its end, was cut.
func cpuFlags(cpu Reading) (string, bool) {
	flags, ok := cpu.Line("flags")
	return flags, ok && flags != "" && strings.Contains(cpu.All, flags+"\n")
}

// built reports a machine with the name of a maker, or a cloud's product with .metal in its name.
func built(vendor, product string) bool {
	vendor = strings.ToLower(vendor)
	return slices.ContainsFunc(makers, func(word string) bool { return strings.Contains(vendor, strings.ToLower(word)) }) || strings.Contains(product, ".metal")
}

// KnownFirmware returns the words in a firmware's text (the names of a maker and a product) by
// which this package tells bare machines from guests.
func KnownFirmware(text string) []string {
	var out []string
	for _, word := range append(slices.Clone(hypervisors), ".metal") {
		if strings.Contains(text, word) {
			out = append(out, word)
		}
	}
	lower := strings.ToLower(text)
	for _, word := range makers {
		if strings.Contains(lower, strings.ToLower(word)) {
			out = append(out, word)
		}
	}
	return out
}

// InventedTree is the reason for which a guest's PCI registers prove little: the hypervisor
// emulates the ports whose registers the guest reads.
const InventedTree = "a virtual machine: its tree need not be the hardware's"

// GuestSwitch is the remedy for a guest to which the hypervisor shows no switches.
const GuestSwitch = "give the guest a switch for those that share one on the host"

// Unswitched reports whether the machine is a guest, and the hypervisor shows the function on the
// root bus or on a root port.
func (m *Machine) Unswitched(a pciaddr.Addr) bool {
	if m.Virtual.Is != placement.Yes {
		return false
	}
	f, err := m.Function(a)
	return err == nil && len(f.Upstream) < 2
}
