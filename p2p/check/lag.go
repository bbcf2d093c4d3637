// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// LAG says whether an RDMA device stands for several ports, and by which evidence.
type LAG struct {
	Is     placement.Answer
	Why    string   // the evidence, in words
	At     []string // the files that have it
	Others []string // PCI functions of the other ports, as far as they are known
}

// LAGOf returns the LAG of an RDMA device. It reads mlx5's debugfs, which is certain, then the network
// devices of the device's GIDs, then the other functions of the card. The device's name is evidence for a LAG, and another name
// is no evidence against one, because udev may rename a LAG (rdma_rename of rdma-core).
func LAGOf(l *Look, n drivers.NIC) LAG {
	return Once(l, "LAG of "+n.Name, func() LAG { return readLAG(l, n) })
}

func readLAG(l *Look, n drivers.NIC) LAG {
	if n.Software || n.Importer.PCI == nil {
		return LAG{Is: placement.No, Why: "no PCI function"}
	}
	own := *n.Importer.PCI
	dir := path.Join("sys/kernel/debug/mlx5", own.String(), "lag")
	switch state := l.Read(dir, "state"); state.Text {
	case "active":
		kind := l.Read(dir, "type").Text
		if kind == "" {
			kind = "of a kind that debugfs does not name"
		}
		return LAG{placement.Yes, "mlx5's debugfs: active, " + kind, state.At(), without(strings.Fields(l.Read(dir, "members").Text), own)}
	case "disabled":
		return LAG{Is: placement.No, Why: "mlx5's debugfs: disabled", At: state.At()}
	default:
		if state.Err == nil {
			return LAG{Why: fmt.Sprintf("mlx5's debugfs: state %q", state.Text), At: state.At()}
		}
	}
	var unread *machine.Reading
	for _, dev := range n.NetDevs {
		names, there := l.List("sys/class/net", dev)
		if there.Err != nil {
			unread = &there
		}
		for _, bond := range append([]string{dev}, lower(names)...) {
			slaves := l.Read("sys/class/net", bond, "bonding/slaves")
			if slaves.Err == nil {
				return LAG{placement.Yes, "its GIDs are of " + dev + ", a bond of " + strings.Join(strings.Fields(slaves.Text), " and "), slaves.At(), functionsOf(l, slaves.Text, own)}
			}
		}
	}
	if others, at := bondedFunctions(l, own); len(others) > 0 {
		return LAG{placement.Yes, "another port of the card is in a bond, and has no RDMA device", at, others}
	}
	for _, prefix := range []string{"mlx5_bond_", "bnxt_re_bond"} {
		if strings.HasPrefix(n.Name, prefix) {
			return LAG{Is: placement.Yes, Why: "its name, which the driver gives to a LAG", At: []string{"/" + IBDir(n)}}
		}
	}
	for _, p := range n.Ports {
		// Only a port with an address has a GID that names its network device.
		if p.LinkLayer != ibdev.LinkInfiniBand && (len(p.GIDs) == 0 || len(n.NetDevs) == 0) {
			return LAG{Why: "the network devices of its GIDs are not known", At: []string{"/" + PortDir(n, p, "gid_attrs/ndevs")}}
		}
	}
	if unread != nil {
		return LAG{Why: "whether the network device of its GIDs is a bond is not known: " + unread.Why(), At: unread.At()}
	}
	if len(n.Ports) == 0 {
		return LAG{Why: "no port can be read", At: []string{"/" + IBDir(n) + "/ports"}}
	}
	return LAG{Is: placement.No, Why: "one port", At: []string{"/" + PortDir(n, n.Ports[0], "gid_attrs/ndevs")}}
}

// lower picks the devices below a network device, such as the bond below a VLAN, from the names of its
// files.
func lower(names []string) []string {
	var out []string
	for _, name := range names {
		if under, ok := strings.CutPrefix(name, "lower_"); ok {
			out = append(out, under)
		}
	}
	return out
}

// functionsOf returns the PCI functions of network devices, except the function but.
func functionsOf(l *Look, devs string, but pciaddr.Addr) []string {
	var out []string
	for _, dev := range strings.Fields(devs) {
		if a, ok := pci.DeviceOf(l.Machine.Sys, path.Join("class/net", dev)); ok && a != but {
			out = append(out, a.String())
		}
	}
	return out
}

// bondedFunctions returns the functions of the same card whose network device is in a bond, and that
// have no RDMA device of their own. at are the files that show it.
func bondedFunctions(l *Look, own pciaddr.Addr) (others, at []string) {
	for f := range uint8(8) {
		a := own
		if a.Function = f; a == own {
			continue
		}
		dir := "bus/pci/devices/" + a.String()
		if l.Machine.Sys.Exists(dir + "/infiniband") {
			continue
		}
		names, _ := l.Machine.Sys.List(dir + "/net")
		for _, name := range names {
			if l.Machine.Sys.Exists(path.Join(dir, "net", name, "bonding_slave")) {
				others = append(others, a.String())
				at = append(at, "/sys/"+path.Join(dir, "net", name, "bonding_slave"))
			}
		}
	}
	return others, at
}

// without returns the names of functions, except the function but.
func without(names []string, but pciaddr.Addr) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == but.String() })
}
