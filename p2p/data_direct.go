// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

// mellanox is the vendor of mlx5, connectX8 the first of its cards with direct
// data, directData the function of such a card that moves it, and directDriver
// what binds that function for the NIC's driver (from 6.12 on).
const (
	mellanox     = 0x15b3
	connectX8    = 0x1023
	directData   = 0x2100
	directDriver = "mlx5_ib"
)

// anyVirtual are the virtual functions of cards that may have direct data, as of
// others: where nothing leads to the physical one, that is open.
const anyVirtual = 0x101e

// mlx5Virtual are the virtual functions of mlx5, by mlx5_core's table. The last
// two are of cards of all later kinds.
var mlx5Virtual = []uint16{0x1012, 0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e, 0xa2d3}

// ofOneCard is the field of VPD that functions of one card have in common. (The
// kernel goes by another, VU, which it asks the NIC's firmware for.)
const ofOneCard = "V3"

// dataDirect judges what a program gets that asks mlx5 for the direct way
// (mlx5dv_reg_dmabuf_mr): the card's second function pins the buffer then, and its
// way to the GPU is another than the NIC's. Who does not ask gets the NIC's.
func (l *look) dataDirect() {
	nics := l.imported("mlx5_core")
	if len(nics) == 0 {
		l.skip("no NIC of mlx5")
		return
	}
	for _, n := range nics {
		own := l.physical(n)
		if own == nil {
			l.unknown(n.Name, nil, noFunction)
			continue
		}
		f := l.function(*own)
		at := []string{"/sys/" + f.dir + "/device"}
		if f.err != nil {
			l.unknown(n.Name, nil, "%s", reading{err: f.err}.why())
			continue
		}
		if f.Vendor == mellanox && f.Device < connectX8 && f.Device != anyVirtual {
			l.pass(n.Name, at, "%04x:%04x has none", f.Vendor, f.Device)
			continue
		}
		switch all, err := l.directFunctions(); {
		case err != nil:
			l.unknown(n.Name, []string{"/sys/bus/pci/devices"}, "whether there is one is not known: %s", reading{err: err}.why())
		default:
			l.direct(n, all, at)
		}
	}
}

// directFunctions are those that the driver can use.
func (l *look) directFunctions() ([]*function, error) {
	second := once(l, "functions for direct data", func() secondFunctions {
		all, err := l.readDirectFunctions()
		return secondFunctions{all, err}
	})
	return second.all, second.err
}

// secondFunctions are what directFunctions found.
type secondFunctions struct {
	all []*function
	err error
}

func (l *look) readDirectFunctions() ([]*function, error) {
	names, bound, err := l.directNames()
	errs := []error{err}
	var out []*function
	for _, name := range names {
		a, err := pci.ParseAddr(name)
		if err != nil {
			continue
		}
		if !bound {
			dir := "bus/pci/devices/" + name
			driver, err := l.m.sys.Link(dir + "/driver")
			if err == nil && driver != directDriver || errors.Is(err, fs.ErrNotExist) && l.m.sys.Exists(dir+"/vendor") {
				continue
			}
			vendor, err1 := l.m.sys.ReadUint(dir+"/vendor", 16)
			device, err2 := l.m.sys.ReadUint(dir+"/device", 16)
			if err := errors.Join(err1, err2); err != nil && l.m.sys.Exists(dir) {
				errs = append(errs, err)
			}
			if vendor != mellanox || device != directData {
				continue
			}
		}
		f := l.function(a)
		if f.err != nil {
			errs = append(errs, f.err)
		} else if bound || f.Driver == directDriver {
			out = append(out, f)
		}
	}
	return out, errors.Join(errs...)
}

// directNames are the functions that are bound to directDriver, which a kernel's own
// sysfs lists: there a driver's directory has "bind" in it. Elsewhere it is all
// functions.
func (l *look) directNames() (names []string, bound bool, err error) {
	if !l.m.sys.Exists("bus/pci/drivers/mlx5_core/bind") {
		names, r := l.list("sys/bus/pci/devices")
		return names, false, r.err
	}
	names, r := l.list("sys/bus/pci/drivers", directDriver)
	if r.gone() { // before 6.12, or not loaded
		return nil, true, nil
	}
	return names, true, r.err
}

// direct says what becomes of the pairs of a NIC by the second function of its card.
func (l *look) direct(n NIC, all []*function, at []string) {
	if len(all) == 0 {
		l.pass(n.Name, at, "no function for direct data is bound to %s", directDriver)
		return
	}
	own, known := l.ofCard(n, all)
	switch {
	case known && len(own) == 0:
		l.pass(n.Name, at, "no function for direct data is of this card")
		return
	case !known:
		own = all
	}
	names := make([]string, len(own))
	for i, f := range own {
		names[i] = f.PCI.String()
	}
	tried := false
	for _, p := range l.pairs {
		if p.NIC.Name != n.Name {
			continue
		}
		tried = true
		l.directPair(p, own, names, known)
	}
	if !tried {
		l.say(ResultSkip, n.Name, at, "%s moves data if programs ask for it, and there is no GPU", some(names))
	}
}

// directPair compares the NIC's own way with those of the functions that may move
// its data.
func (l *look) directPair(p Pair, own []*function, names []string, known bool) {
	var ways []string
	worse, open := false, false
	for _, f := range own {
		by := l.m.Predict(p.GPU.Exporter, directImporter(p.NIC.Importer, f.PCI))
		worse = worse || by.Outcome == OutcomeUnknown || by.Outcome != Direct && by.Outcome != p.Prediction.Outcome
		open = open || by.Outcome == OutcomeUnknown
		if wayFalls(p, by) {
			worse = true
			open = open || by.Decision.Supported != placement.No || p.Prediction.Decision.Supported != placement.Yes
		}
		ways = append(ways, fmt.Sprintf("by %v %s (%v)", f.PCI, by.short(), by.Decision.Type))
	}
	at := []string{"/sys/" + own[0].dir + "/device"}
	whose := "if a program asks for direct data: "
	if !known {
		whose = "which function is this card's its VPD says, and that could not be read; if a program asks for direct data: "
	}
	read := whose + strings.Join(slices.Compact(ways), ", ")
	switch {
	case !worse:
		l.pass(p.name(), at, "%s", read)
	case !known || open:
		f := l.unknown(p.name(), at, "%s", read)
		if !known {
			f.asRoot(l.m)
		}
	default:
		l.warn(p.name(), at, "%s; by the NIC itself %s (%v)", read, p.Prediction.short(), p.Prediction.Decision.Type).
			fix("ask for no direct data with this pair, or mend the way of "+some(names), "p2pcheck topo", "")
	}
}

// wayFalls reports a function that the GPU's driver gives the same addresses as the
// NIC, over a way that the kernel would not take, or that may be such a one. NVIDIA's
// driver asks nobody. Memory with pages is reached as the host's is.
func wayFalls(p Pair, by Prediction) bool {
	was := p.Prediction
	return p.GPU.Exporter.Class != ClassNVIDIACoherent && by.Outcome == Direct && (was.Outcome == Direct || was.Outcome == OutcomeUnknown) &&
		by.Decision.Supported != placement.Yes && was.Decision.Supported != placement.No
}

// directImporter is the second function as an importer: it pins. Of a driver that
// is not the kernel's own nobody knows.
func directImporter(nic Importer, a Addr) Importer {
	nic.PCI = &a
	switch {
	case nic.Kind == NoImporter:
	case nic.OutOfTree:
		nic.Kind = KindUnknown
	default:
		nic.Kind = Pinned
	}
	return nic
}

// ofCard are the functions that have the NIC's card in their VPD; false if some
// VPD is missing that would tell. Root alone reads it, and no snapshot has it.
func (l *look) ofCard(n NIC, all []*function) (own []*function, known bool) {
	card := l.card(*l.physical(n))
	for _, f := range all {
		of := l.card(f.PCI)
		if card == "" || of == "" {
			return nil, false
		}
		if of == card {
			own = append(own, f)
		}
	}
	return own, true
}

func (l *look) card(a Addr) string {
	return once(l, "card of "+a.String(), func() string {
		r := l.read("sys/bus/pci/devices", a.String(), "vpd")
		return pci.VPDKeyword([]byte(r.text), ofOneCard)
	})
}
