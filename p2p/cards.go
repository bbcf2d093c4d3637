// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
	"strconv"
	"strings"
)

// classNetwork is the base class of network controllers, classInfiniBand the
// class of those that have no other use than RDMA.
const (
	classNetwork    = 0x02
	classInfiniBand = 0x0207
)

// amazon has EFA at the devices efa0 to efaf; connectIB is the first of
// Mellanox's for mlx5.
const (
	amazon    = 0x1d0f
	efaDevice = 0xefa0
	connectIB = 0x1011
)

// rdmaCards are the modules that would make RDMA devices of the PCI functions
// there are, and these. known is false where not all functions can be read.
func (l *look) rdmaCards() (modules, functions []string, known bool) {
	names, r := l.list("sys/bus/pci/devices")
	known = r.err == nil
	for _, name := range names {
		dir := "sys/bus/pci/devices/" + name
		class, ok := l.read(dir, "class").number()
		if !ok {
			known = false
			continue
		}
		if class>>16 != classNetwork {
			continue
		}
		vendor, ok1 := l.read(dir, "vendor").number()
		device, ok2 := l.read(dir, "device").number()
		driver := l.link(dir, "driver")
		known = known && ok1 && ok2 && (driver.err == nil || driver.gone())
		module := rdmaDrivers[base(driver.text)].module
		switch {
		case module != "":
		case vendor == mellanox && device >= connectIB:
			module = "mlx5_ib"
		case vendor == mellanox:
			module = "mlx4_ib"
		case vendor == amazon && device&^0xf == efaDevice:
			module = "efa"
		case class>>8 != classInfiniBand:
			continue
		}
		functions = append(functions, name)
		if module != "" && !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	return modules, functions, known
}

// noNIC says what is missing for there to be an RDMA device.
func (l *look) noNIC() {
	at := []string{"/sys/class/infiniband"}
	modules, functions, known := l.rdmaCards()
	switch {
	case len(modules) > 0:
		l.fail("", at, "none, of %s", some(functions)).fix("load the RDMA driver of the NIC", "modprobe -a "+strings.Join(modules, " "), "")
	case len(functions) > 0:
		l.fail("", at, "none, of %s", some(functions)).fix("load the RDMA driver of the NIC", "", "")
	case known:
		l.fail("", at, "none, and no PCI function is an RDMA NIC that is known here").fix("put an RDMA NIC into the machine, or load its driver if it is another", "", "")
	default:
		l.fail("", at, "none").fix("load the RDMA driver of the NIC, if there is one", "", "")
	}
}

// some names a few functions.
func some(names []string) string {
	if n := len(names) - shownFiles; n > 0 {
		return strings.Join(names[:shownFiles], ", ") + " and " + strconv.Itoa(n) + " more"
	}
	return strings.Join(names, ", ")
}
