// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"path"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// lostNIC is a PCI function that should have an RDMA device, and has none.
type lostNIC struct {
	pci    pciaddr.Addr
	driver string // "" without one
	module string // the module that makes RDMA devices of the driver's functions
	like   string // a function of the same kind that has one
	err    error  // why it is not known whether the function should have one
}

// alwaysRDMA are drivers that make an RDMA device for each of their functions, unless a setting
// turns that off. Cards of other drivers often run without RDMA.
var alwaysRDMA = []string{"mlx5_core", "mlx4_core", "efa", "erdma"}

// withoutRDMA returns the network functions that should have an RDMA device, and have none.
func withoutRDMA(l *check.Look) []lostNIC {
	all, out, err := networkFunctions(l)
	if err != nil {
		return nil // drivers.NICs has returned this error
	}
	serving := map[pciaddr.Addr]bool{} // functions that have an RDMA device
	devices, _ := l.Machine.Sys.List("class/infiniband")
	for _, name := range devices {
		if a, ok := pci.DeviceOf(l.Machine.Sys, path.Join("class/infiniband", name)); ok {
			serving[a] = true
		}
	}
	for _, f := range all {
		if !serving[f.Addr] {
			if n, ok := lost(l, f, all, serving); ok {
				out = append(out, n)
			}
		}
	}
	return out
}

// lost returns a network function that has no RDMA device as a lostNIC, and true if it should have one, or if that
// is not known.
func lost(l *check.Look, f pci.Function, all []pci.Function, serving map[pciaddr.Addr]bool) (lostNIC, bool) {
	n := lostNIC{pci: f.Addr, driver: f.Driver, module: drivers.RdmaDrivers[f.Driver].Module}
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
		n.err = machine.ErrUnreadable
		return n, alike() || cardModule(f.Vendor, f.Device) != ""
	case f.Driver == "":
		// Virtual functions wait for guests.
		return n, (alike() || cardModule(f.Vendor, f.Device) != "") && !l.Machine.Sys.Exists("bus/pci/devices/"+f.Addr.String()+"/physfn")
	case n.module == "": // no driver of RDMA NICs, or one that gives the function to a guest
		return n, false
	case bonded(l, f):
		return n, false
	}
	return n, like(func(g pci.Function) bool { return g.Driver == f.Driver }) || slices.Contains(alwaysRDMA, f.Driver)
}

// bonded reports whether a function is a port of a LAG: its ports share the RDMA device of another function of
// the card.
func bonded(l *check.Look, f pci.Function) bool {
	return slices.ContainsFunc(l.Subject.NICs, func(n drivers.NIC) bool {
		if n.Importer.PCI == nil {
			return false
		}
		a := *n.Importer.PCI
		a.Function = f.Addr.Function
		return a == f.Addr && check.LAGOf(l, n).Is == placement.Yes
	})
}

func (n lostNIC) say(l *check.Look) {
	name := n.pci.String()
	dir := "/sys/bus/pci/devices/" + name
	switch {
	case n.err != nil:
		l.Unknown(name, []string{dir + "/class"}, "whether it is a NIC is not known: %s", machine.Reading{Err: n.err}.Why())
	case n.driver == "":
		l.Warn(name, []string{dir + "/driver"}, "no driver is bound to it%s", n.compared()).
			Fix("let its driver take it, and see in the log why it does not", "echo "+name+" > /sys/bus/pci/drivers_probe", "")
	default:
		l.Warn(name, []string{dir + "/infiniband", "/sys/class/infiniband"}, "%s is bound to it, and it has no RDMA device%s", n.driver, n.compared()).
			Fix("load "+n.module+", and see in the log why it does not take this function", "modprobe "+n.module, "")
	}
}

func (n lostNIC) compared() string {
	if n.like == "" {
		return ""
	}
	return "; " + n.like + " has an RDMA device"
}
