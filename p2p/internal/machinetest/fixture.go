// SPDX-License-Identifier: Apache-2.0

package machinetest

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Processors, and what /boot/config has.
const (
	Epyc       = testenv.EPYC
	Bulldoz    = testenv.Bulldozer
	Hygon      = testenv.Hygon
	Xeon       = testenv.Xeon
	Grace      = testenv.Grace
	WithP2P    = testenv.WithP2PDMA
	WithoutP2P = testenv.WithoutP2PDMA
)

// Fixture is a machine to be written below a directory.
type Fixture struct {
	Release, Config, Cpu, Tree string
	Files, Links               map[string]string
}

// Open writes the machine below a directory, and opens it.
func (f Fixture) Open(t *testing.T) *machine.Machine {
	t.Helper()
	return machine.Open(testenv.Tree{Release: f.Release, Config: f.Config, CPU: f.Cpu, Functions: f.Tree, Files: f.Files, Links: f.Links}.Write(t))
}

// Addr parses a PCI address.
func Addr(t *testing.T, s string) pciaddr.Addr {
	t.Helper()
	a, err := pciaddr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Client is nil for "".
func Client(t *testing.T, s string) *pciaddr.Addr {
	if s == "" {
		return nil
	}
	a := Addr(t, s)
	return &a
}

// OverlayRoot is the root of a container's image.
const OverlayRoot = "24 1 0:22 / / rw - overlay overlay rw,lowerdir=/x\n25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=131072000k"

// The NICs of tree, by how far they are from the GPU 0000:03:00.0.
const (
	InSwitch = "04:00.0"
	AtRoot   = "09:00.0"
	Nowhere  = ""
)

// A GPU and a NIC of two functions in a switch; a nested switch with another
// NIC; a GPU and a NIC on root ports; a NIC below a second host bridge, with a
// virtual function beside it.
const tree = `
pci0000:00/0000:00:00.0 vendor=0x8086 device=HOST class=0x060000 config=256
pci0000:00/0000:00:01.0 class=0x060400 type=4 ACS1
pci0000:00/0000:00:01.0/0000:01:00.0 class=0x060400 type=5
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0 class=0x060400 type=6 ACS2
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0 class=0x060400 type=6 ACS3
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0 ACS4
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.1
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0 class=0x060400 type=6
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0 class=0x060400 type=5
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0 class=0x060400 type=6
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0
pci0000:00/0000:00:02.0 class=0x060400 type=4
pci0000:00/0000:00:02.0/0000:08:00.0
pci0000:00/0000:00:03.0 class=0x060400 type=4
pci0000:00/0000:00:03.0/0000:09:00.0
pci0000:80/0000:80:01.0 vendor=0x8086 device=HOST class=0x060400 TYPE80
pci0000:80/0000:80:01.0/0000:81:00.0
pci0000:80/0000:80:01.0/0000:81:00.4
pci0000:80/0000:80:05.0/pci10000:00/10000:00:01.0 class=0x060400 type=4
pci0000:80/0000:80:05.0/pci10000:00/10000:00:01.0/10000:01:00.0
`

// Planted fills the places of tree in: "ACS2 acs=0x1d".
func Planted(set ...string) string {
	pairs := []string{"ACS1", "", "ACS2", "", "ACS3", "", "ACS4", "", "HOST", "0x29c0", "TYPE80", "type=4"}
	for i := 0; i+1 < len(set); i += 2 {
		pairs = append([]string{set[i], set[i+1]}, pairs...)
	}
	return strings.NewReplacer(pairs...).Replace(tree)
}

// Zipped is a text as gzip has it.
func Zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
