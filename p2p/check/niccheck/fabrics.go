// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// fabric is a kind of NIC that registers GPU memory by another interface than verbs.
type fabric struct {
	name string
	by   string // the interface that registers GPU memory in place of verbs
}

var (
	slingshot = fabric{"HPE Slingshot", "libfabric's provider cxi registers GPU memory with the driver cxi_ss1 itself"}
	omniPath  = fabric{"Omni-Path", "libfabric's providers opx and psm2 move GPU memory by the vendor's hfi1; verbs of hfi1 register no dma-bufs"}
)

// fabrics are known by vendor and device: Cassini 1 and 2 (shs-cxi-driver, cass_core.h;
// libfabric, cxip_telemetry.c), Omni-Path 100, CN5000 and CN6000 (hfi1's table, pci.ids).
var fabrics = map[[2]uint16]fabric{
	{0x17db, 0x0501}: slingshot, {0x1590, 0x0371}: slingshot,
	{0x8086, 0x24f0}: omniPath, {0x8086, 0x24f1}: omniPath, {0x434e, 0x0001}: omniPath, {0x434e, 0x0002}: omniPath,
}

// fabricNIC is a NIC of such a kind.
type fabricNIC struct {
	fabric
	function string   // its PCI function; "" if it is not known
	devices  []string // "cxi0", "hfi1_0"
	driver   string
}

func (n fabricNIC) String() string {
	text := n.name
	if len(n.devices) > 0 {
		text = strings.Join(n.devices, ", ") + ", " + text
	}
	if n.driver == "" {
		return text + ", no driver is bound to it"
	}
	return text + ", driven by " + n.driver
}

// fabricNICs finds these NICs by their PCI IDs, and by the class of cxi devices. The Reading has the error if
// not all of them could be found.
func fabricNICs(l *check.Look) (out []fabricNIC, r machine.Reading) {
	all, unread, err := networkFunctions(l)
	if err == nil && len(unread) > 0 {
		err = unread[0].err
	}
	names, r := l.List("sys/class/cxi")
	if r.Gone() {
		r.Err = nil
	}
	r.Err = machine.FirstError(err, r.Err)
	cxi := map[string][]string{} // by function
	for _, name := range names {
		a, _ := pci.DeviceOf(l.Machine.Sys, "class/cxi/"+name)
		cxi[a.String()] = append(cxi[a.String()], name)
	}
	for _, f := range all {
		is, ok := fabrics[[2]uint16{f.Vendor, f.Device}]
		name := f.Addr.String()
		if !ok && len(cxi[name]) > 0 {
			is, ok = slingshot, true
		}
		if !ok {
			continue
		}
		devices := cxi[name]
		delete(cxi, name)
		for _, n := range l.Subject.NICs {
			if n.Importer.PCI != nil && *n.Importer.PCI == f.Addr {
				devices = append(devices, n.Name)
			}
		}
		out = append(out, fabricNIC{is, name, devices, f.Driver})
	}
	for _, devices := range cxi {
		out = append(out, fabricNIC{slingshot, "", devices, "a driver that is not known"})
	}
	slices.SortFunc(out, func(a, b fabricNIC) int { return strings.Compare(a.function, b.function) })
	return out, r
}

// otherFabrics names the NICs that verbs do not reach. No check judges their registrations.
func otherFabrics(l *check.Look) {
	all, r := fabricNICs(l)
	for _, n := range all {
		scope := n.function
		if scope == "" {
			scope = n.devices[0]
		}
		at := []string{"/sys/bus/pci/devices/" + n.function + "/device"}
		if n.name == slingshot.name && len(n.devices) > 0 {
			at = []string{"/sys/class/cxi"}
		}
		l.Warn(scope, at, "%v: no check judges it; %s", n, n.by).Fix("look at it by its own tools: fi_info -p "+provider(n), "", "")
	}
	switch {
	case len(all) > 0:
	case r.Err != nil:
		l.Unknown("", []string{"/sys/bus/pci/devices", "/sys/class/cxi"}, "whether there are others is not known: %s", r.Why())
	default:
		l.Pass("", []string{"/sys/bus/pci/devices", "/sys/class/cxi"}, "none").Expect = ""
	}
}

func provider(n fabricNIC) string {
	if n.name == slingshot.name {
		return "cxi"
	}
	return "opx"
}

// ofFabric returns the kind of a NIC that verbs do not reach, by its PCI function; false for another NIC.
func ofFabric(l *check.Look, function string) (fabric, bool) {
	all := check.Once(l, "fabric NICs", func() []fabricNIC { all, _ := fabricNICs(l); return all })
	i := slices.IndexFunc(all, func(n fabricNIC) bool { return n.function == function })
	if i < 0 {
		return fabric{}, false
	}
	return all[i].fabric, true
}

// withoutVerbs skips the check on a machine without an RDMA device that has NICs of another fabric: no driver
// would make RDMA devices of them. It returns false if there is no such NIC.
func withoutVerbs(l *check.Look) bool {
	all, r := fabricNICs(l)
	if len(all) == 0 || r.Err != nil {
		return false
	}
	var names []string
	for _, n := range all {
		names = append(names, fmt.Sprintf("%s (%s)", n.function, n.name))
	}
	l.Say(p2p.ResultSkip, "", []string{"/sys/class/infiniband"}, "no verbs device; NIC-FABRIC names %s", check.Some(names))
	return true
}
