// SPDX-License-Identifier: Apache-2.0

package p2pdma

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// listed is a host bridge, or the root port that stands for it, that the kernel
// trusts to pass peer-to-peer traffic.
type listed struct {
	vendor, device uint16
	name           string
	sameBridge     bool // only if both functions are below the same host bridge
	anyDevice      bool
	added          machine.Version // V6_1: it is in the oldest list that was read
}

// whitelist is pci_p2pdma_whitelist of drivers/pci/p2pdma.c. 6.1 and 6.12 have
// the same ten entries. For these rules, 7.3 differs from 7.2 in this list only.
var whitelist = []listed{
	{vendor: machine.VendorIntel, device: 0x3c00, name: "Xeon E5", sameBridge: true, added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x3c01, name: "Xeon E5", sameBridge: true, added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2f00, name: "Xeon E5 v3", sameBridge: true, added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2f01, name: "Xeon E5 v3", sameBridge: true, added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2030, name: "Skylake-E", added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2031, name: "Skylake-E", added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2032, name: "Skylake-E", added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2033, name: "Skylake-E", added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x2020, name: "Skylake-E", added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x09a2, name: "Ice Lake and later", added: machine.V6_1},
	{vendor: machine.VendorIntel, device: 0x0b25, name: "DSA of Sapphire Rapids", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x0cfe, name: "IAX of Sapphire Rapids", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x11fb, name: "DSA of Granite Rapids-D", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x1212, name: "DSA of Diamond Rapids", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x1216, name: "IAA of Diamond Rapids", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x4940, name: "QAT 4xxx", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x4942, name: "QAT 401xx", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x4944, name: "QAT 402xx", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x4946, name: "QAT 420xx", added: machine.V7_2},
	{vendor: machine.VendorIntel, device: 0x4948, name: "QAT 6xxx", added: machine.V7_2},
	{vendor: machine.VendorGoogle, anyDevice: true, name: "Google", added: machine.V7_2},
	{vendor: machine.VendorNVIDIA, device: 0x2f95, name: "NVIDIA's processors", added: machine.V7_3},
	{vendor: machine.VendorNVIDIA, device: 0x2f96, name: "NVIDIA's processors", added: machine.V7_3},
	{vendor: machine.VendorNVIDIA, device: 0x2f97, name: "NVIDIA's processors", added: machine.V7_3},
	{vendor: machine.VendorNVIDIA, device: 0x2f98, name: "NVIDIA's processors", added: machine.V7_3},
}

// Trusts says whether the list of a kernel has a host bridge, and why. same says that
// both functions of the pair are below this host bridge.
func Trusts(k machine.Kernel, h *machine.HostBridge, same bool) (placement.Answer, string) {
	if h.Err != nil {
		return placement.AnswerUnknown, "the host bridge cannot be read: " + h.Err.Error()
	}
	if h.Picked && (h.Empty || h.First.Addr.Device != 0 || h.First.Addr.Function != 0) {
		return placement.AnswerUnknown, fmt.Sprintf("the copy has not all functions of %s, and the kernel knows the host bridge by the first", h.Bus)
	}
	if h.Empty {
		return placement.No, fmt.Sprintf("there is no function on %s by which the kernel could know the host bridge", h.Bus)
	}
	f := h.First
	first := fmt.Sprintf("the host bridge of %s, known by %v (%04x:%04x)", h.Bus, f.Addr, f.Vendor, f.Device)
	if f.Addr.Device != 0 || f.Addr.Function != 0 {
		switch {
		case h.RootOf != nil:
			return placement.AnswerUnknown, fmt.Sprintf("whether %v, the first function of %s, is a root port: %v", f.Addr, h.Bus, h.RootOf)
		case !h.Root:
			return placement.No, fmt.Sprintf("%v, the first function of %s, is neither function 00.0 nor a root port, by which the kernel knows host bridges", f.Addr, h.Bus)
		}
	}
	for _, e := range whitelist {
		if e.vendor != f.Vendor || e.device != f.Device && !e.anyDevice {
			continue
		}
		has := k.Between(machine.V6_12, machine.V7_2)
		switch {
		case e.added == machine.V7_3:
			has = k.Between(machine.V7_2, machine.V7_3)
		case e.added == machine.V6_1 && !k.UnreadYet():
			has = placement.Yes
		}
		switch {
		case has == placement.AnswerUnknown:
			return has, fmt.Sprintf("%s: %s is on the list of Linux %v, and whether it is on that of %s is not known", first, e.name, machine.Newest, k.Release)
		case has == placement.No:
			return has, fmt.Sprintf("%s, is not on the list of %s; Linux %v has it (%s)", first, k.Release, e.added, e.name)
		case e.sameBridge && !same:
			return placement.No, fmt.Sprintf("%s, is trusted for traffic that stays below it only (%s)", first, e.name)
		}
		return placement.Yes, fmt.Sprintf("%s, is on the kernel's list (%s)", first, e.name)
	}
	if !k.Version.Known() || k.UnreadYet() || k.Backports() {
		return placement.AnswerUnknown, fmt.Sprintf("%s, is not on the list of Linux %v; that of %s is not known", first, machine.Newest, k.Release)
	}
	return placement.No, fmt.Sprintf("%s, is not on the kernel's list", first)
}
