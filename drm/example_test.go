// SPDX-License-Identifier: Apache-2.0

package drm_test

import (
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/drm"
)

// Every DRM node of this machine, with the driver and the PCI function.
func ExampleNodes() {
	nodes, err := drm.Nodes("", "")
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range nodes {
		if addr, ok := n.PCI(); ok {
			fmt.Println(n.Path, n.Driver, addr)
		} else {
			fmt.Println(n.Path, n.Driver, "not on PCI")
		}
	}
}

// A megabyte of vgem's memory as a dma-buf. The buffer outlives handle and
// device.
func ExampleDevice_PrimeHandleToFD() {
	dev, err := drm.Open("/dev/dri/card0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	dumb, err := dev.CreateDumbSize(1 << 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.DestroyDumb(dumb.Handle)
	buf, err := dev.PrimeHandleToFD(dumb.Handle, drm.ReadWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buf.Close()
	fmt.Println(buf.Size())
}
