// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"errors"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

const (
	rdmaTopo   = "rdma-core, kernel-boot/rdma_topo at 691953d8d"
	bridge     = 0x060400
	display    = 0x030200
	network    = 0x020000
	infiniband = 0x020700
	everyBit   = 0x7f
)

var errUnread = errors.New("64 bytes of 4096 were read")

// machine is a list of functions that a test changes by address.
type machine []Function

func (m machine) at(s string) *Function {
	a := addr(s)
	i := slices.IndexFunc(m, func(f Function) bool { return f.Addr == a })
	if i < 0 {
		panic("the machine has no " + s)
	}
	return &m[i]
}

func addr(s string) pciaddr.Addr {
	a, err := pciaddr.Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}

// put adds a function. Its own address and those of the bridges above are separate
// arguments, the nearest bridge first.
func (m *machine) put(f Function, at string, above ...string) {
	f.Addr, f.GroupKnown, f.VPDRead, f.ATS.Known = addr(at), true, true, true
	if f.Node == 0 {
		f.Node = -1
	}
	for _, up := range above {
		f.Upstream = append(f.Upstream, addr(up))
	}
	*m = append(*m, f)
}

func port(vendor, device uint16, kind pci.Port, control int) Function {
	f := Function{Vendor: vendor, Device: device, Class: bridge, Port: kind}
	if control >= 0 {
		f.ACS = pci.ACS{Present: true, Cap: everyBit, Ctrl: pci.ACSBits(control)}
	}
	return f
}

const noACS = -1

// tray adds a GPU, a DMA function beside it and its NIC, with the ACS that they need:
// a quarter of a GB300 node. The GPU's port differs between the quarters.
func (m *machine) tray(domain, gpuPort, nicDomain, group, card string) {
	at := func(s string) string { return domain + ":" + s }
	m.put(port(nvidia, 0x22b8, pci.PortRoot, 0x1c), at("00:00.0"))
	m.put(port(mellanox, 0x197c, pci.PortUpstream, noACS), at("01:00.0"), at("00:00.0"))
	above := []string{at("01:00.0"), at("00:00.0")}
	m.put(port(mellanox, 0x197c, pci.PortDownstream, 0x19), at("02:00.0"), above...)
	m.put(port(mellanox, 0x197c, pci.PortDownstream, 0x15), at(gpuPort), above...)
	m.put(Function{Vendor: mellanox, Device: 0x2100, Class: network, Driver: "mlx5_ib", Card: card, VU: card}, at("03:00.0"), append([]string{at("02:00.0")}, above...)...)
	above = append([]string{at(gpuPort)}, above...)
	m.put(port(mellanox, 0x197c, pci.PortUpstream, noACS), at("04:00.0"), above...)
	above = append([]string{at("04:00.0")}, above...)
	m.put(port(mellanox, 0x197c, pci.PortDownstream, 0x1d), at("05:00.0"), above...)
	m.put(Function{Vendor: nvidia, Device: 0x31c2, Class: display, Driver: "nvidia"}, at("06:00.0"), append([]string{at("05:00.0")}, above...)...)
	for i := range *m {
		if f := &(*m)[i]; f.Addr.Domain == addr(at("00:00.0")).Domain {
			f.Group = group
		}
	}
	m.put(port(nvidia, 0x22b2, pci.PortRoot, 0x1d), nicDomain+":00:00.0")
	m.at(nicDomain + ":00:00.0").Group = group + "0"
	m.put(Function{Vendor: mellanox, Device: 0x1023, Class: infiniband, Driver: "mlx5_core", Group: group + "1", Card: card}, nicDomain+":03:00.0", nicDomain+":00:00.0")
}

// oneTray is the machine of case 07 in its good state.
func oneTray() machine {
	var m machine
	m.tray("0008", "02:03.0", "0000", "90", "7")
	return m
}

// board adds a GPU and a NIC below one switch of ConnectX-8, as for a host that uses
// them itself.
func (m *machine) board(domain string) {
	at := func(s string) string { return domain + ":" + s }
	m.put(port(0x8086, 0x352a, pci.PortRoot, 0), at("00:00.0"))
	m.put(port(mellanox, 0x197c, pci.PortUpstream, noACS), at("01:00.0"), at("00:00.0"))
	above := []string{at("01:00.0"), at("00:00.0")}
	m.put(port(mellanox, 0x197c, pci.PortDownstream, 0), at("02:00.0"), above...)
	m.put(port(mellanox, 0x1979, pci.PortDownstream, 0), at("02:03.0"), above...)
	m.put(Function{Vendor: mellanox, Device: 0x1023, Class: infiniband, Driver: "mlx5_core", Group: "5"}, at("03:00.0"), append([]string{at("02:00.0")}, above...)...)
	above = append([]string{at("02:03.0")}, above...)
	m.put(port(mellanox, 0x197c, pci.PortUpstream, noACS), at("04:00.0"), above...)
	above = append([]string{at("04:00.0")}, above...)
	m.put(port(mellanox, 0x197c, pci.PortDownstream, 0), at("05:00.0"), above...)
	m.put(Function{Vendor: nvidia, Device: 0x2901, Class: display, Driver: "nvidia", Group: "5"}, at("06:00.0"), append([]string{at("05:00.0")}, above...)...)
}

// forGuests is a board's setup for guests.
func (m machine) forGuests(domain string) {
	at := func(s string) *Function { return m.at(domain + ":" + s) }
	for _, p := range []string{"00:00.0", "02:03.0", "05:00.0"} {
		at(p).ACS.Ctrl = 0x1d
	}
	at("02:00.0").ACS.Ctrl = 0x5d
	at("03:00.0").ATS = ATS{true, true, true}
	at("03:00.0").Group = "6"
	at("03:00.0").Driver, at("06:00.0").Driver = "vfio-pci", "vfio-pci"
}

// vera is a machine with the GPU and the NIC on root ports of Vera.
func vera() machine {
	var m machine
	m.put(port(nvidia, 0x2f95, pci.PortRoot, 0x15), "0000:00:00.0")
	m.put(Function{Vendor: nvidia, Device: 0x3000, Class: display, Driver: "nvidia", Group: "1", Node: 1}, "0000:01:00.0", "0000:00:00.0")
	m.put(port(nvidia, 0x2f96, pci.PortRoot, 0x15), "0001:00:00.0")
	m.put(Function{Vendor: mellanox, Device: 0x1025, Class: infiniband, Driver: "mlx5_core", Group: "2", Node: 1}, "0001:01:00.0", "0001:00:00.0")
	return m
}

// same compares a value that a test names.
func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
