// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/placement"
)

func TestImporter(t *testing.T) {
	const nic = "pci0000:00/0000:00:03.0/0000:09:00.0"
	type files = map[string]string
	in := func(module string) files { return files{"sys/module/" + module + "/taint": "\n"} }
	for _, c := range []struct {
		release, driver string
		files           files
		want            Kind
		peer            bool
	}{
		{"6.1.0", "mlx5_core", in("mlx5_ib"), Dynamic, true},
		{"6.5.0", "mlx5_core", in("mlx5_ib"), Dynamic, true},
		{"7.2.9", "mlx5_core", in("mlx5_ib"), Dynamic, true},
		{"7.9.0", "mlx5_core", in("mlx5_ib"), KindUnknown, true},
		{"6.1.0-64kb", "ice", in("irdma"), KindUnknown, true},
		{"5.15.0", "mlx5_core", in("mlx5_ib"), Dynamic, true},
		{"5.11.0", "mlx5_core", in("mlx5_ib"), KindUnknown, true},
		{"7.2.1", "hfi1", in("hfi1"), NoImporter, true},
		{"odd", "mlx5_core", in("mlx5_ib"), KindUnknown, true},
		{"6.12.1", "mlx5_core", files{"sys/module/mlx5_ib/taint": "OE\n"}, KindUnknown, true}, // MLNX_OFED
		{"6.12.1", "mlx5_core", nil, KindUnknown, true},
		{"6.1.0", "ice", in("irdma"), NoImporter, true},
		{"6.8.0", "ice", in("irdma"), KindUnknown, true},
		{"6.12.1", "ice", in("irdma"), Pinned, true},
		{"6.12.0-55.el10.x86_64", "ice", in("irdma"), KindUnknown, true},
		{"6.12.0-55.el10.x86_64", "efa", in("efa"), Pinned, true},
		{"6.15.0", "ice", in("irdma"), KindUnknown, true},
		{"7.2.1", "ice", in("irdma"), Revocable, true},
		{"7.2.1", "mlx4_core", in("mlx4_ib"), NoImporter, true},
		{"7.2.1", "mlx5_core", files{"sys/module/mlx5_ib/taint": "\n", "boot/config-7.2.1": strings.Replace(machinetest.WithP2P, "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y", "# CONFIG_INFINIBAND_ON_DEMAND_PAGING is not set", 1)}, NoImporter, true},
		{"7.2.1", "mlx5_core", files{"sys/module/mlx5_ib/taint": "\n", "boot/config-7.2.1": strings.Replace(machinetest.WithP2P, "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n", "", 1)}, NoImporter, true},
		{"7.2.1", "unheard_of", nil, KindUnknown, true},
		{"7.2.1", "e1000e", files{"sys/devices/" + nic + "/infiniband/dev0/importer": "revocable\n", "sys/devices/" + nic + "/infiniband/dev0/peer2peer": "0\n"}, Revocable, false},
		{"7.2.1", "e1000e", files{"sys/devices/" + nic + "/infiniband/dev0/importer": "dynamic\n", "sys/devices/" + nic + "/infiniband/dev0/peer2peer": "1\n"}, Dynamic, true},
		{"7.2.1", "e1000e", files{"sys/devices/" + nic + "/infiniband/dev0/importer": "odd\n"}, KindUnknown, true},
	} {
		tree := machinetest.Planted("0000:00:03.0/0000:09:00.0", "0000:00:03.0/0000:09:00.0 rdma:dev0 driver:"+c.driver)
		m := machinetest.Fixture{Release: c.release, Tree: tree, Files: c.files}.Open(t)
		i, err := ImporterOf(m, "dev0")
		if err != nil || i.PCI == nil || *i.PCI != machinetest.Addr(t, "09:00.0") || i.Kind != c.want || i.PeerToPeer != c.peer || i.Driver != c.driver {
			t.Errorf("%s on %s: %+v, %v; want %v, %v", c.driver, c.release, i, err, c.want, c.peer)
		}
	}
	// Software devices, on the network device of a NIC whose own driver imports.
	for _, c := range []struct {
		files  files
		driver string
		want   Kind
	}{
		{files{"node_type": "1: CA\n", "/sys/module/rdma_rxe/taint": "\n"}, "rdma_rxe", NoImporter},
		{files{"node_type": "4: RNIC\n", "/sys/module/siw/taint": "\n"}, "siw", NoImporter},
		{files{"node_type": "4: RNIC\n", "/sys/module/rdma_rxe/taint": "\n"}, "siw", KindUnknown},
		{files{"node_type": "1: CA\n", "/sys/module/rdma_rxe/taint": "OE\n"}, "rdma_rxe", KindUnknown},
		{files{"node_type": "1: CA\n"}, "rdma_rxe", KindUnknown},
		{files{"/sys/module/rdma_rxe/taint": "\n"}, "", KindUnknown},
	} {
		all := files{"sys/module/mlx5_ib/taint": "\n", "sys/devices/" + nic + "/infiniband/dev0/parent": "eth0\n"}
		for name, text := range c.files {
			if module, ok := strings.CutPrefix(name, "/"); ok {
				all[module] = text
			} else {
				all["sys/devices/"+nic+"/infiniband/dev0/"+name] = text
			}
		}
		tree := machinetest.Planted("0000:00:03.0/0000:09:00.0", "0000:00:03.0/0000:09:00.0 rdma:dev0 driver:mlx5_core")
		m := machinetest.Fixture{Release: "7.2.1", Tree: tree, Files: all}.Open(t)
		if i, err := ImporterOf(m, "dev0"); err != nil || i.Driver != c.driver || i.Kind != c.want {
			t.Errorf("%v: %+v, %v; want %s, %v", c.files, i, err, c.driver, c.want)
		}
	}
	m := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	if _, err := ImporterOf(m, "dev0"); err == nil {
		t.Error("a device that is not there imports")
	}
	testenv.Link(t, m.Sys.Path("devices/virtual/infiniband/rxe0"), m.Sys.Path("class/infiniband/rxe0"))
	if i, err := ImporterOf(m, "rxe0"); err != nil || i.PCI != nil || i.Kind != KindUnknown {
		t.Errorf("%+v, %v", i, err)
	}
}

// The kernel's own mlx4 does not ask peer-memory clients, which Ubuntu's ib_core has. MLNX_OFED's asks.
func TestPeersOfMLX4(t *testing.T) {
	gpu, nic := machinetest.Addr(t, "03:00.0"), machinetest.Addr(t, "04:00.0")
	for taint, want := range map[string]placement.Answer{"\n": placement.No, "OE\n": placement.Yes, "-": placement.AnswerUnknown} {
		files := map[string]string{"sys/kernel/mm/memory_peers/nv_mem/version": "1.0\n", "sys/module/mlx4_ib/initstate": "live\n"}
		if taint != "-" {
			files["sys/module/mlx4_ib/taint"] = taint
		}
		m := machinetest.Fixture{Tree: machinetest.Planted(), Release: "6.8.0-60-generic", Files: files}.Open(t)
		if got := asksPeers(m, "mlx4_core"); got != want {
			t.Errorf("taint %q: %v, want %v", taint, got, want)
		}
		p := Predict(m, Exporter{Class: ClassNVIDIA, PCI: &gpu, Driver: "nvidia", Gate: GateOpen}, Importer{PCI: &nic, Kind: NoImporter, Driver: "mlx4_core"})
		if p.ByPeerMem != (want == placement.Yes) || want == placement.No && p.Outcome != chain.Refused {
			t.Errorf("taint %q: %v", taint, p)
		}
	}
}

func TestNoImporter(t *testing.T) {
	m := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	gpu, nic := machinetest.Addr(t, "03:00.0"), machinetest.Addr(t, "04:00.0")
	for _, class := range []Class{ClassUnknown, ClassAMDGPU, ClassNVIDIA, ClassSystem} {
		p := Predict(m, Exporter{Class: class, PCI: &gpu}, Importer{PCI: &nic, Kind: NoImporter, Driver: "mlx4_core"})
		if p.Outcome != chain.Refused || p.Errno != unix.EOPNOTSUPP || p.Stage != chain.StageUverbs {
			t.Errorf("%v: %v", class, p)
		}
	}
}
