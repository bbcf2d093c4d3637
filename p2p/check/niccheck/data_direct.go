// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// anyVirtual is the device ID of the virtual functions of all cards, with and without direct data. Only the
// link to the physical function tells the card of such a function.
const anyVirtual = 0x101e

// ofOneCard is the field of VPD that functions of one card share. (The kernel compares another field,
// VU, which it asks the NIC's firmware for.)
const ofOneCard = "V3"

// dataDirect judges the way that the data of programs takes which ask mlx5 for direct data
// (mlx5dv_reg_dmabuf_mr). The card's second function then pins the buffer, and reaches the GPU by other ports
// than the NIC. The data of other programs takes the NIC's own way.
func dataDirect(l *check.Look) {
	nics := l.Imported("mlx5_core")
	if len(nics) == 0 {
		l.Skip("no NIC of mlx5")
		return
	}
	for _, n := range nics {
		own := physical(l, n)
		if own == nil {
			l.Unknown(n.Name, nil, noFunction)
			continue
		}
		f := l.Function(*own)
		at := []string{"/sys/" + f.Dir + "/device"}
		if f.Err != nil {
			l.Unknown(n.Name, nil, "%s", machine.Reading{Err: f.Err}.Why())
			continue
		}
		if f.Vendor == machine.VendorMellanox && f.Device < machine.ConnectX8 && f.Device != anyVirtual {
			l.Pass(n.Name, at, "%04x:%04x has none", f.Vendor, f.Device)
			continue
		}
		switch all, err := directFunctions(l); {
		case err != nil:
			l.Unknown(n.Name, []string{"/sys/bus/pci/devices"}, "whether there is one is not known: %s", machine.Reading{Err: err}.Why())
		default:
			direct(l, n, all, at)
		}
	}
}

// directFunctions returns the functions for direct data that the driver can use.
func directFunctions(l *check.Look) ([]*check.Function, error) {
	second := check.Once(l, "functions for direct data", func() secondFunctions {
		all, err := readDirectFunctions(l)
		return secondFunctions{all, err}
	})
	return second.all, second.err
}

// secondFunctions is the result of directFunctions.
type secondFunctions struct {
	all []*check.Function
	err error
}

func readDirectFunctions(l *check.Look) ([]*check.Function, error) {
	names, bound, err := directNames(l)
	errs := []error{err}
	var out []*check.Function
	for _, name := range names {
		a, err := pciaddr.Parse(name)
		if err != nil {
			continue
		}
		if !bound {
			dir := "bus/pci/devices/" + name
			driver, err := l.Machine.Sys.Link(dir + "/driver")
			if err == nil && driver != machine.DirectDriver || errors.Is(err, fs.ErrNotExist) && l.Machine.Sys.Exists(dir+"/vendor") {
				continue
			}
			vendor, err1 := l.Machine.Sys.ReadUint(dir+"/vendor", 16)
			device, err2 := l.Machine.Sys.ReadUint(dir+"/device", 16)
			if err := errors.Join(err1, err2); err != nil && l.Machine.Sys.Exists(dir) {
				errs = append(errs, err)
			}
			if vendor != machine.VendorMellanox || device != machine.DirectData {
				continue
			}
		}
		f := l.Function(a)
		if f.Err != nil {
			errs = append(errs, f.Err)
		} else if bound || f.Driver == machine.DirectDriver {
			out = append(out, f)
		}
	}
	return out, errors.Join(errs...)
}

// directNames returns the functions that are bound to machine.DirectDriver, and true. Only a kernel's own
// sysfs lists them: in it a driver's directory has the file "bind". For any other sysfs directNames returns
// all functions, and false.
func directNames(l *check.Look) (names []string, bound bool, err error) {
	if !l.Machine.Sys.Exists("bus/pci/drivers/mlx5_core/bind") {
		names, r := l.List("sys/bus/pci/devices")
		return names, false, r.Err
	}
	names, r := l.List("sys/bus/pci/drivers", machine.DirectDriver)
	if r.Gone() { // before 6.12, or not loaded
		return nil, true, nil
	}
	return names, true, r.Err
}

// direct reports the outcome of a NIC's pairs through the second function of its card.
func direct(l *check.Look, n drivers.NIC, all []*check.Function, at []string) {
	if len(all) == 0 {
		l.Pass(n.Name, at, "no function for direct data is bound to %s", machine.DirectDriver)
		return
	}
	own, known := ofCard(l, n, all)
	switch {
	case known && len(own) == 0:
		l.Pass(n.Name, at, "no function for direct data is of this card")
		return
	case !known:
		own = all
	}
	names := make([]string, len(own))
	for i, f := range own {
		names[i] = f.PCI.String()
	}
	tried := false
	for _, p := range l.Pairs {
		if p.NIC.Name != n.Name {
			continue
		}
		tried = true
		directPair(l, p, own, names, known)
	}
	if !tried {
		l.Say(p2p.ResultSkip, n.Name, at, "%s moves data if programs ask for it, and there is no GPU", check.Some(names))
	}
}

// directPair compares the NIC's own way with the ways of the functions that may move its data.
func directPair(l *check.Look, p p2p.Pair, own []*check.Function, names []string, known bool) {
	var ways []string
	worse, open := false, false
	for _, f := range own {
		by := drivers.Predict(l.Machine, p.GPU.Exporter, directImporter(p.NIC.Importer, f.PCI))
		worse = worse || by.Outcome == chain.OutcomeUnknown || by.Outcome != chain.Direct && by.Outcome != p.Prediction.Outcome
		open = open || by.Outcome == chain.OutcomeUnknown
		if losesTheWay(p, by) {
			worse = true
			open = open || by.Decision.Supported != placement.No || p.Prediction.Decision.Supported != placement.Yes
		}
		ways = append(ways, fmt.Sprintf("by %v %s (%v)", f.PCI, by.Short(), by.Decision.Type))
	}
	at := []string{"/sys/" + own[0].Dir + "/device"}
	whose := "if a program asks for direct data: "
	if !known {
		whose = "which function is this card's its VPD says, and that could not be read; if a program asks for direct data: "
	}
	read := whose + strings.Join(slices.Compact(ways), ", ")
	switch {
	case !worse:
		l.Pass(p.Name(), at, "%s", read)
	case !known || open:
		f := l.Unknown(p.Name(), at, "%s", read)
		if !known {
			f.AsRoot(l.Machine)
		}
	default:
		l.Warn(p.Name(), at, "%s; by the NIC itself %s (%v)", read, p.Prediction.Short(), p.Prediction.Decision.Type).
			Fix("ask for no direct data with this pair, or mend the way of "+check.Some(names), "p2pcheck topo", "")
	}
}

// losesTheWay reports whether the second function gets the same addresses as the NIC, over a way that the
// kernel does not allow, or may not allow, and that no driver refuses: NVIDIA's driver does not ask the
// kernel. Memory with pages has no such way, because devices reach it like the host's memory.
func losesTheWay(p p2p.Pair, by drivers.Prediction) bool {
	was := p.Prediction
	return p.GPU.Exporter.Class != drivers.ClassNVIDIACoherent && by.Outcome == chain.Direct && (was.Outcome == chain.Direct || was.Outcome == chain.OutcomeUnknown) &&
		by.Decision.Supported != placement.Yes && was.Decision.Supported != placement.No
}

// directImporter returns the second function as an importer. The kernel's own driver pins for it. For a driver
// from outside the kernel the kind is not known.
func directImporter(nic drivers.Importer, a pciaddr.Addr) drivers.Importer {
	nic.PCI = &a
	switch {
	case nic.Kind == drivers.NoImporter:
	case nic.OutOfTree:
		nic.Kind = drivers.KindUnknown
	default:
		nic.Kind = drivers.Pinned
	}
	return nic
}

// ofCard returns the functions whose VPD names the card of the NIC; false if the VPD of one of them cannot be
// read. Only root can read VPD.
func ofCard(l *check.Look, n drivers.NIC, all []*check.Function) (own []*check.Function, known bool) {
	its := card(l, *physical(l, n))
	for _, f := range all {
		of := card(l, f.PCI)
		if its == "" || of == "" {
			return nil, false
		}
		if of == its {
			own = append(own, f)
		}
	}
	return own, true
}

func card(l *check.Look, a pciaddr.Addr) string {
	return check.Once(l, "card of "+a.String(), func() string {
		r := l.Read("sys/bus/pci/devices", a.String(), "vpd")
		return pci.VPDKeyword([]byte(r.Text), ofOneCard)
	})
}
