// SPDX-License-Identifier: Apache-2.0

package directnic_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// A GPU and a NIC of a guest meet below a switch whose port toward the NIC has the
// kernel's default, and the NIC's firmware has ATS off.
func ExamplePassthrough() {
	addr := func(s string) pciaddr.Addr {
		a, err := pciaddr.Parse(s)
		if err != nil {
			panic(err)
		}
		return a
	}
	root, upstream := addr("0000:10:01.0"), addr("0000:11:00.0")
	toGPU, toNIC := addr("0000:12:00.0"), addr("0000:12:01.0")
	isolated := pci.ACS{Present: true, Cap: 0x7f, Ctrl: 0x1d}
	for _, f := range directnic.Passthrough([]directnic.Function{
		{Addr: root, Vendor: 0x8086, Device: 0x352a, Class: 0x060400, Port: pci.PortRoot, ACS: isolated},
		{Addr: upstream, Vendor: 0x1000, Device: 0xc030, Class: 0x060400, Port: pci.PortUpstream, Upstream: []pciaddr.Addr{root}},
		{Addr: toGPU, Vendor: 0x1000, Device: 0xc030, Class: 0x060400, Port: pci.PortDownstream, ACS: isolated, Upstream: []pciaddr.Addr{upstream, root}},
		{Addr: toNIC, Vendor: 0x1000, Device: 0xc030, Class: 0x060400, Port: pci.PortDownstream, ACS: isolated, Upstream: []pciaddr.Addr{upstream, root}},
		{Addr: addr("0000:13:00.0"), Vendor: 0x10de, Device: 0x2330, Class: 0x030200, Driver: "vfio-pci", Upstream: []pciaddr.Addr{toGPU, upstream, root}},
		{Addr: addr("0000:14:00.0"), Vendor: 0x15b3, Device: 0x1021, Class: 0x020700, Driver: "vfio-pci", Upstream: []pciaddr.Addr{toNIC, upstream, root},
			ATS: directnic.ATS{Known: true}},
	}, directnic.No) {
		fmt.Println(f.GPU, f.NIC, "can reach each other:", f.OK)
		for _, off := range f.Off {
			fmt.Println(" ", off)
		}
		fmt.Println(f.Remedy.Command)
		fmt.Println(f.Remedy.Parameter)
	}
	// Output:
	// 0000:13:00.0 0000:14:00.0 can reach each other: no
	//   port toward the NIC 0000:12:01.0: direct translated must be on
	//   NIC 0000:14:00.0: it shows no ATS
	// mlxconfig -d 0000:14:00.0 set ATS_ENABLED=true
	// pci=config_acs=1x111x1@0000:12:01.0
}
