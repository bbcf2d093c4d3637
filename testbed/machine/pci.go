// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// PCIPaths says where the guest finds the node's PCI devices, by their ID: the
// name of the host bridge's directory in sysfs, then slot and function ("10.0")
// on each bus on the way down. Bus numbers are not part of it: the firmware
// chooses them. Devices whose place QEMU chooses are left out.
func (n Node) PCIPaths() map[string][]string {
	byID := map[string]Device{}
	for _, d := range n.Devices {
		byID[d.ID] = d
	}
	paths := map[string][]string{}
	for _, d := range n.Devices {
		if p := pciPath(byID, d); d.ID != "" && d.Driver != "pxb-pcie" && p != nil {
			paths[d.ID] = p
		}
	}
	return paths
}

// pciPath is nil when the device's place is not known.
func pciPath(byID map[string]Device, d Device) []string {
	parent, below := byID[d.Bus]
	addr, given := d.Props["addr"]
	if !given && (parent.Driver == "pcie-root-port" || parent.Driver == "xio3130-downstream") {
		addr, given = "0", true // a port leads to a single slot
	}
	place, number, several := strings.Cut(addr, ".")
	slot, err := strconv.ParseUint(place, 0, 5)
	function := uint64(0)
	if several && err == nil {
		function, err = strconv.ParseUint(number, 0, 3)
	}
	if !given || err != nil {
		return nil
	}
	here := fmt.Sprintf("%02x.%x", slot, function)
	switch {
	case parent.Driver == "pxb-pcie":
		bus, err := strconv.ParseUint(parent.Props["bus_nr"], 0, 8)
		if err != nil {
			return nil
		}
		return []string{fmt.Sprintf("pci0000:%02x", bus), here}
	case below && d.Bus != "":
		up := pciPath(byID, parent)
		if up == nil {
			return nil
		}
		return append(up, here)
	case d.Bus == "" || d.Bus == "pcie.0":
		return []string{"pci0000:00", here}
	}
	return nil
}
