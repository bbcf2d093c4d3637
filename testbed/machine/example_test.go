// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/machine"
)

// A PCI device with memory of its own below a switch, which a software GPU's driver
// takes.
func Example() {
	m := machine.Machine{Name: "switch", Nodes: []machine.Node{{
		Name:    "vm",
		CPU:     "EPYC",
		Objects: []machine.Device{{Driver: "memory-backend-memfd", ID: "vram", Props: map[string]string{"size": "64M"}}},
		Devices: []machine.Device{
			{Driver: "pcie-root-port", ID: "rp1", Props: map[string]string{"chassis": "1"}},
			{Driver: "x3130-upstream", ID: "us1", Bus: "rp1"},
			{Driver: "xio3130-downstream", ID: "dp1", Bus: "us1", Props: map[string]string{"chassis": "11"}},
			{Driver: "ivshmem-plain", Bus: "dp1", Props: map[string]string{"memdev": "vram"}},
		},
	}}}
	if err := m.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	args, err := m.QEMU(m.Nodes[0], "tcg", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, a := range args {
		if a == "-object" || a == "-device" {
			fmt.Println(strings.Join(args[i:i+2], " "))
		}
	}
	// Output:
	// -object memory-backend-memfd,id=vram,size=64M
	// -device pcie-root-port,id=rp1,chassis=1
	// -device x3130-upstream,id=us1,bus=rp1
	// -device xio3130-downstream,id=dp1,bus=us1,chassis=11
	// -device ivshmem-plain,bus=dp1,memdev=vram
}
