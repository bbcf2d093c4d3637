// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func TestNVMes(t *testing.T) {
	const disks = "sys/devices/pci0000:00/0000:00:0"
	m := machine.Open(testenv.Tree{
		Functions: `
pci0000:00/0000:00:01.0 class=0x010802 driver:nvme
pci0000:00/0000:00:02.0 class=0x010802 driver:nvme
pci0000:00/0000:00:03.0 class=0x010802 driver:nvme
pci0000:00/0000:00:04.0 class=0x010802 driver:vfio-pci
pci0000:00/0000:00:05.0 class=0x010601
`,
		Files: map[string]string{
			disks + "1.0/nvme/nvme0/cmb":   "cmbloc : x00000002\ncmbsz  : x0001001f\n",
			disks + "1.0/p2pmem/size":      "65536\n",
			disks + "2.0/nvme/nvme1/state": "live\n",
			disks + "3.0/nvme/nvme2/cmb":   "cmbloc : x00000002\ncmbsz  : many\n",
		},
	}.Write(t))
	got, err := NVMes(m)
	at := func(device uint8) pciaddr.Addr { return pciaddr.Addr{Device: device} }
	want := []NVMe{
		{Name: "nvme0", PCI: at(1), CMB: 64 << 10, CMBKnown: true, Peer: 64 << 10},
		{Name: "nvme1", PCI: at(2), CMBKnown: true},
		{Name: "nvme2", PCI: at(3)},
		{Name: "0000:00:04.0", PCI: at(4)},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestCMBSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"cmbloc : x00000002\ncmbsz  : x0001001f\n": 64 << 10,
		"cmbsz  : x0001021f":                       16 << 20, // QEMU's cmb_size_mb=16
		"cmbsz  : x0000161f":                       64 << 30,
	} {
		if got, ok := cmbSize(text); got != want || !ok {
			t.Errorf("%q: %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "cmbsz", "cmbsz  : xfffff7ff", "cmbloc : x0001001f"} {
		if got, ok := cmbSize(text); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}
