// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/topo"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// storage is a machine with all that a tree can have: a switch whose own link is
// narrower than those below it, a NIC's virtual functions and the RDMA device of
// one of them, a GPU whose memory region could be larger, and NVMe controllers.
func storage() testenv.Tree {
	const (
		gen5  = " current_link_speed=32.0_GT/s_PCIe current_link_width=16 max_link_speed=32.0_GT/s_PCIe max_link_width=16"
		gen4  = " current_link_speed=16.0_GT/s_PCIe current_link_width=4 max_link_speed=16.0_GT/s_PCIe max_link_width=4"
		below = "pci0000:00/0000:00:01.0/0000:01:00.0/"
		disk  = "sys/devices/pci0000:00/0000:00:02.0/0000:08:00.0/"
	)
	tree := machineTree(`
pci0000:00/0000:00:00.0 vendor=0x8086 device=0x29c0 class=0x060000 config=256
pci0000:00/0000:00:01.0 class=0x060400 type=4 vendor=0x8086 device=0x347a acs=0x1d`+gen5+` group=1:DMA-FQ
pci0000:00/0000:00:01.0/0000:01:00.0 class=0x060400 type=5 vendor=0x1000 device=0xc030`+strings.ReplaceAll(gen5, "width=16", "width=8")+` group=2:DMA-FQ
`+below+`0000:02:00.0 class=0x060400 type=6 acs=0x1d`+gen5+` group=3:DMA-FQ
`+below+`0000:02:00.0/0000:03:00.0 class=0x030200 vendor=0x10de device=0x2331 driver:nvidia numa_node=0`+gen5+` group=4:DMA-FQ
`+below+`0000:02:01.0 class=0x060400 type=6 acs=0x1d`+gen5+` group=5:DMA-FQ
`+below+`0000:02:01.0/0000:04:00.0 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core numa_node=0`+gen5+` group=6:DMA-FQ
`+below+`0000:02:01.0/0000:04:00.1 class=0x020000 vendor=0x15b3 device=0x101e driver:mlx5_core rdma:mlx5_1 numa_node=0 group=7:DMA-FQ
`+below+`0000:02:01.0/0000:04:00.2 class=0x020000 vendor=0x15b3 device=0x101e driver:vfio-pci numa_node=0 group=8:DMA-FQ
`+below+`0000:02:02.0 class=0x060400 type=6 acs=0x1d`+gen5+` group=9:DMA-FQ
`+below+`0000:02:02.0/0000:05:00.0 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core rdma:mlx5_0 numa_node=0`+gen5+` group=10:DMA-FQ
pci0000:00/0000:00:02.0 class=0x060400 type=4 vendor=0x8086 device=0x347a acs=0x1d`+gen5+` group=11:DMA-FQ
pci0000:00/0000:00:02.0/0000:08:00.0 class=0x010802 vendor=0x144d device=0xa80a driver:nvme numa_node=0`+gen4+` group=12:DMA-FQ
pci0000:00/0000:00:03.0 class=0x010802 vendor=0x144d device=0xa80a driver:vfio-pci numa_node=0 group=13:DMA-FQ
`, "")
	for name, text := range map[string]string{
		disk + "resource":       "0xfb000000 0xfb003fff 0x140204\n0x0 0x0 0x0\n0x90000000 0x90ffffff 0x14220c\n",
		disk + "nvme/nvme0/cmb": "cmbloc : x00000002\ncmbsz  : x0001021f\n",
		disk + "p2pmem/size":    "16777216\n",
		"sys/devices/" + below + "0000:02:00.0/0000:03:00.0/resource":         "0xfa000000 0xfaffffff 0x40200\n0x20000000000 0x200ffffffff 0x14220c\n",
		"sys/devices/" + below + "0000:02:00.0/0000:03:00.0/resource1_resize": "000000000001ffc0\n",
	} {
		tree.Files[name] = text
	}
	delete(tree.Links, "sys/class/infiniband/rxe0")
	tree.Texts = map[string]string{}
	for _, vf := range []string{"1", "2"} {
		tree.Texts["sys/devices/"+below+"0000:02:01.0/0000:04:00."+vf+"/physfn"] = "../0000:04:00.0"
	}
	return tree
}

// The drawing of the machine with storage. A person has read the text.
func TestTopo(t *testing.T) {
	tree := storage()
	text := ""
	for _, args := range [][]string{nil, {"-v"}} {
		r := run(tree, t, append(append([]string{"topo"}, args...), "--root", "ROOT")...)
		if r.status != cli.ExitOK || r.err != "" {
			t.Errorf("%+v", r)
		}
		text += r.out + "\n"
	}
	golden(t, "storage-topo.txt", text)
	// With --gpu or --nic topo draws no other devices.
	if r := run(tree, t, "topo", "--gpu", "nvidia", "--root", "ROOT"); strings.Contains(r.out, "NVMe") || !strings.Contains(r.out, "VF of 0000:04:00.0") {
		t.Error(r.out)
	}
}

func TestTopoJSON(t *testing.T) {
	var d struct{ Result topo.Topology }
	if err := json.Unmarshal([]byte(run(storage(), t, "topo", "--json", "--root", "ROOT").out), &d); err != nil {
		t.Fatal(err)
	}
	find := func(address string) topo.Function {
		t.Helper()
		i := slices.IndexFunc(d.Result.Functions, func(f topo.Function) bool { return f.PCI.String() == address })
		if i < 0 {
			t.Fatalf("%s is not there", address)
		}
		return d.Result.Functions[i]
	}
	pf := pciaddr.Addr{Bus: 4}
	if f := find("0000:04:00.1"); f.PF == nil || *f.PF != pf || f.Role != "NIC" || f.Group == nil || *f.Group != "7" {
		t.Errorf("%+v", f)
	}
	if f := find("0000:04:00.0"); f.PF != nil || f.Role != "other" || f.Link.PortMaxSpeed != "32.0 GT/s PCIe" {
		t.Errorf("%+v", f)
	}
	if f := find("0000:03:00.0"); len(f.BARs) != 2 || f.BARs[0].Prefetchable || f.BARs[0].Largest != nil || !f.BARs[1].Prefetchable || f.BARs[1].Largest == nil || *f.BARs[1].Largest != 64<<30 || f.BARs[1].Size != 4<<30 {
		t.Errorf("%+v", f.BARs)
	}
	if f := find("0000:08:00.0"); f.Role != "NVMe" || f.CMB == nil || *f.CMB != 16<<20 || f.Peer == nil || *f.Peer != 16<<20 {
		t.Errorf("%+v", f)
	}
	if f := find("0000:00:03.0"); f.Role != "NVMe" || f.CMB != nil || f.Peer != nil {
		t.Errorf("%+v", f)
	}
	// Ports redirect, so that the switch's own link carries all of it. A virtual
	// function has the link of its physical one.
	for _, p := range d.Result.Pairs {
		if p.Way == nil || p.Way.Slowest != (pciaddr.Addr{Bus: 1}) || p.Way.BytesPerS*2 > p.Way.EndsBytesPerS+1 || p.Way.BytesPerS == 0 {
			t.Errorf("%s: %+v", p.NIC, p.Way)
		}
	}
}

// A snapshot has all that topo draws.
func TestTopoOfASnapshot(t *testing.T) {
	file, root := taken(t, storage())
	for _, args := range [][]string{{"topo", "-v"}, {"topo", "--json"}, {"topo", "--svg"}} {
		whole, copied := command(append(args, "--root", root)...), command(append(args, "--snapshot", file)...)
		if want := strings.ReplaceAll(whole.out, root, ""); copied.out != want || copied.status != whole.status {
			t.Errorf("%v: %s", args, firstDifference(want, copied.out))
		}
	}
}
