// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// classNetwork is the base class of network controllers, classInfiniBand the
// class of those that have no other use than RDMA.
const (
	classNetwork    = 0x02
	classInfiniBand = 0x0207
)

// networkFunctions returns the network controllers among the PCI functions, and in unread the functions
// whose class cannot be read. The error is that of listing the functions.
func networkFunctions(l *check.Look) (all []pci.Function, unread []lostNIC, err error) {
	names, err := l.Machine.Sys.List("bus/pci/devices")
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		a, err := pciaddr.Parse(name)
		if err != nil {
			continue
		}
		class, ok := drivers.SeenClass(l.Machine, a)
		if !ok {
			class, err = l.Machine.Sys.ReadUint("bus/pci/devices/"+name+"/class", 24)
		}
		if err == nil && class>>16 != classNetwork {
			continue
		}
		f, err2 := pci.ReadFunction(l.Machine.Sys, a)
		switch err = machine.FirstError(err, err2); {
		case err == nil:
			all = append(all, f)
		case l.Machine.Sys.Exists("bus/pci/devices/" + name): // it was not removed meanwhile
			unread = append(unread, lostNIC{pci: a, err: err})
		}
	}
	return all, unread, nil
}

// cardModule returns the module that makes the RDMA devices of a card, by the card's PCI IDs alone: the card may
// have another driver, or none. It returns "" for a card that it does not know.
func cardModule(vendor, device uint16) string {
	const (
		amazon, efa   = 0x1d0f, 0xefa0 // to efaf
		alibaba, elas = 0x1ded, 0x107f
		connectIB     = 0x1011 // the first of Mellanox's for mlx5
	)
	switch {
	case vendor == machine.VendorMellanox && device >= connectIB:
		return "mlx5_ib"
	case vendor == machine.VendorMellanox:
		return "mlx4_ib"
	case vendor == amazon && device&^0xf == efa:
		return "efa"
	case vendor == alibaba && device == elas:
		return "erdma"
	}
	return ""
}

// rdmaCards looks for RDMA NICs among the PCI functions. modules are those that would make their RDMA devices,
// functions are the NICs of the host, and given are the NICs that the host gives to guests. known is false if
// not all functions could be read.
func rdmaCards(l *check.Look) (modules, functions, given []string, known bool) {
	all, unread, err := networkFunctions(l)
	for _, f := range all {
		module := drivers.RdmaDrivers[f.Driver].Module
		if module == "" {
			module = cardModule(f.Vendor, f.Device)
		}
		if module == "" && f.Class>>8 != classInfiniBand {
			continue
		}
		if directnic.GivenAway(f.Driver) {
			given = append(given, f.Addr.String())
			continue
		}
		functions = append(functions, f.Addr.String())
		if module != "" && !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	return modules, functions, given, err == nil && len(unread) == 0
}

// noNIC reports why the machine has no RDMA device: no card, no driver or no module.
func noNIC(l *check.Look) {
	at := []string{"/sys/class/infiniband"}
	modules, functions, given, known := rdmaCards(l)
	switch {
	case len(given) > 0 && len(functions) == 0:
		l.Say(p2p.ResultSkip, "", at, "none: %s is given to guests, where the RDMA device is", check.Some(given))
	case len(modules) > 0:
		l.Fail("", at, "none, of %s", check.Some(functions)).Fix("load the RDMA driver of the NIC", "modprobe -a "+strings.Join(modules, " "), "")
	case len(functions) > 0:
		l.Fail("", at, "none, of %s", check.Some(functions)).Fix("load the RDMA driver of the NIC", "", "")
	case known:
		l.Fail("", at, "none, and no PCI function is an RDMA NIC that is known here").Fix("put an RDMA NIC into the machine, or load its driver if it is another", "", "")
	default:
		l.Fail("", at, "none").Fix("load the RDMA driver of the NIC, if there is one", "", "")
	}
}
