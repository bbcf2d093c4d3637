// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"path"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
)

// lostNIC is a PCI function that should have an RDMA device, and has none.
type lostNIC struct {
	pci    Addr
	driver string // "" without one
	module string // what makes RDMA devices of the driver's functions
	like   string // a function of the same kind that has one
	err    error  // why nobody knows whether it is one
}

// alwaysRDMA are drivers each of whose functions has an RDMA device, if nobody
// turned that off. The cards of others are used without it as well.
var alwaysRDMA = []string{"mlx5_core", "mlx4_core", "efa", "erdma"}

// withoutRDMA looks through all network functions.
func (l *look) withoutRDMA() []lostNIC {
	all, out, err := l.networkFunctions()
	if err != nil {
		return nil // the inventory says so
	}
	serving := map[Addr]bool{} // functions that have an RDMA device
	devices, _ := l.m.sys.List("class/infiniband")
	for _, name := range devices {
		if a, ok := pci.DeviceOf(l.m.sys, path.Join("class/infiniband", name)); ok {
			serving[a] = true
		}
	}
	for _, f := range all {
		if !serving[f.Addr] {
			if n, ok := l.lost(f, all, serving); ok {
				out = append(out, n)
			}
		}
	}
	return out
}

// lost judges a network function that has no RDMA device.
func (l *look) lost(f pci.Function, all []pci.Function, serving map[Addr]bool) (lostNIC, bool) {
	n := lostNIC{pci: f.Addr, driver: f.Driver, module: rdmaDrivers[f.Driver].module}
	like := func(same func(pci.Function) bool) bool {
		i := slices.IndexFunc(all, func(g pci.Function) bool { return serving[g.Addr] && same(g) })
		if i >= 0 {
			n.like = all[i].Addr.String()
		}
		return i >= 0
	}
	alike := func() bool {
		return like(func(g pci.Function) bool { return g.Vendor == f.Vendor && g.Device == f.Device })
	}
	switch {
	case f.Driver == "driver": // the link leads to itself: it could not be read
		n.err = errUnreadable
		return n, alike() || cardModule(f.Vendor, f.Device) != ""
	case f.Driver == "":
		// Virtual functions wait for guests.
		return n, (alike() || cardModule(f.Vendor, f.Device) != "") && !l.m.sys.Exists("bus/pci/devices/"+f.Addr.String()+"/physfn")
	case n.module == "": // no driver of RDMA NICs, or one that gives them away
		return n, false
	case l.bonded(f, serving):
		return n, false
	}
	return n, like(func(g pci.Function) bool { return g.Driver == f.Driver }) || slices.Contains(alwaysRDMA, f.Driver)
}

// bonded reports a function of a bond, whose ports share the RDMA device of
// another function of the card.
func (l *look) bonded(f pci.Function, serving map[Addr]bool) bool {
	dir := "bus/pci/devices/" + f.Addr.String() + "/net"
	names, _ := l.m.sys.List(dir)
	for _, name := range names {
		if !l.m.sys.Exists(path.Join(dir, name, "bonding_slave")) {
			continue
		}
		for a := range serving {
			if a.Function = f.Addr.Function; a == f.Addr {
				return true
			}
		}
	}
	return false
}

func (n lostNIC) say(l *look) {
	name := n.pci.String()
	dir := "/sys/bus/pci/devices/" + name
	switch {
	case n.err != nil:
		l.unknown(name, []string{dir + "/class"}, "whether it is a NIC is not known: %s", reading{err: n.err}.why())
	case n.driver == "":
		l.warn(name, []string{dir + "/driver"}, "no driver is bound to it%s", n.compared()).
			fix("let its driver take it, and see in the log why it does not", "echo "+name+" > /sys/bus/pci/drivers_probe", "")
	default:
		l.warn(name, []string{dir + "/infiniband", "/sys/class/infiniband"}, "%s is bound to it, and it has no RDMA device%s", n.driver, n.compared()).
			fix("load "+n.module+", and see in the log why it does not take this function", "modprobe "+n.module, "")
	}
}

func (n lostNIC) compared() string {
	if n.like == "" {
		return ""
	}
	return "; " + n.like + " has an RDMA device"
}
