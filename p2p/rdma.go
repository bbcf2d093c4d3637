// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"path"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

// rdmaDriver is how an RDMA driver of the kernel's own imports: its
// reg_user_mr_dmabuf, in each of the series that were read.
type rdmaDriver struct {
	module               string
	in6_1, in6_12, in7_2 Kind
}

// rdmaDrivers go by the driver of the PCI function below the RDMA device.
var rdmaDrivers = map[string]rdmaDriver{
	"mlx5_core": {"mlx5_ib", Dynamic, Dynamic, Dynamic},
	"efa":       {"efa", Pinned, Pinned, Pinned},
	"bnxt_en":   {"bnxt_re", NoImporter, Pinned, Pinned},
	"ice":       {"irdma", NoImporter, Pinned, Revocable},
	"i40e":      {"irdma", NoImporter, Pinned, Revocable},
	"mana":      {"mana_ib", NoImporter, NoImporter, Pinned},
	"ionic":     {"ionic_rdma", NoImporter, NoImporter, Pinned},
	"mlx4_core": {"mlx4_ib", NoImporter, NoImporter, NoImporter},
	"cxgb4":     {"iw_cxgb4", NoImporter, NoImporter, NoImporter},
	"hns3":      {"hns_roce_hw_v2", NoImporter, NoImporter, NoImporter},
	"qede":      {"qedr", NoImporter, NoImporter, NoImporter},
	"erdma":     {"erdma", NoImporter, NoImporter, NoImporter},
}

// kindOn is the kind on a kernel. Between two series that differ it is not
// known, and neither is what a distribution took from a later one.
func (d rdmaDriver) kindOn(k Kernel) Kind {
	older, newer := KindUnknown, KindUnknown
	switch v := k.version; {
	case !v.known() || v.cmp(v6_1) < 0 || k.unreadYet():
	case v.cmp(v7_2) >= 0:
		older, newer = d.in7_2, d.in7_2
	case v.cmp(v6_12) >= 0:
		older, newer = d.in6_12, d.in7_2
		if v == v6_12 && !k.backports() {
			newer = older
		}
	default:
		older, newer = d.in6_1, d.in6_12
		if v == v6_1 && !k.backports() {
			newer = older
		}
	}
	if older != newer {
		return KindUnknown
	}
	return older
}

// registersNone reports a kernel from before there was a method that registers
// dma-bufs, with its own ib_uverbs: MLNX_OFED brings another.
func (m *Machine) registersNone() bool {
	k := m.Kernel
	return k.version.known() && k.version.cmp(v5_12) < 0 && !k.backports() && m.outOfTree("ib_uverbs") != placement.Yes
}

// Importer finds out how an RDMA device ("mlx5_0") imports. The kind is unknown
// of a driver that is not the kernel's own, or that is not known at all.
func (m *Machine) Importer(rdma string) (Importer, error) {
	dir := path.Join("class/infiniband", rdma)
	real, err := m.sys.Resolve(dir)
	if err != nil {
		return Importer{}, fmt.Errorf("RDMA device %q: %w", rdma, err)
	}
	i := Importer{PeerToPeer: true}
	if a, ok := pci.DeviceAt(real); ok {
		i.PCI = &a
	}
	i.Driver, _ = m.sys.Link(path.Join(dir, "device/driver"))
	// The test bed's rxe imports as it is told, and says so.
	if kind, err := m.sys.ReadString(path.Join(dir, "importer")); err == nil {
		i.Kind = map[string]Kind{"pinned": Pinned, "revocable": Revocable, "dynamic": Dynamic}[kind]
		peer, err := m.sys.ReadString(path.Join(dir, "peer2peer"))
		i.ByCPU = true
		i.PeerToPeer = err != nil || peer != "0" && peer != "N"
		return i, nil
	}
	// A software device may stand on somebody else's function: it has the name
	// of the network device that it uses.
	if m.sys.Exists(path.Join(dir, "parent")) {
		return i, nil
	}
	d, ok := rdmaDrivers[i.Driver]
	i.OutOfTree = !ok || m.outOfTree(d.module) != placement.No
	if !i.OutOfTree {
		i.Kind = d.kindOn(m.Kernel)
		// mlx5 refuses before it looks at the buffer.
		if i.Driver == "mlx5_core" && m.config != nil && m.config.answer(configODP) == placement.No {
			i.Kind, i.NoODP = NoImporter, true
		}
	}
	return i, nil
}
