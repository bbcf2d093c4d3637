// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// RdmaDriver says how one of the kernel's RDMA drivers imports, by its
// reg_user_mr_dmabuf in each of the series that were read.
type RdmaDriver struct {
	Module               string // the module that makes the RDMA devices: "mlx5_ib"
	in6_1, in6_12, in7_2 Kind
}

// RdmaDrivers has the kernel's RDMA drivers. The key is the driver of the PCI function below the
// device. The caller must not change it.
var RdmaDrivers = map[string]RdmaDriver{
	"mlx5_core":  {"mlx5_ib", Dynamic, Dynamic, Dynamic},
	"efa":        {"efa", Pinned, Pinned, Pinned},
	"bnxt_en":    {"bnxt_re", NoImporter, Pinned, Pinned},
	"ice":        {"irdma", NoImporter, Pinned, Revocable},
	"i40e":       {"irdma", NoImporter, Pinned, Revocable},
	"mana":       {"mana_ib", NoImporter, NoImporter, Pinned},
	"ionic":      {"ionic_rdma", NoImporter, NoImporter, Pinned},
	"mlx4_core":  {"mlx4_ib", NoImporter, NoImporter, NoImporter},
	"cxgb4":      {"iw_cxgb4", NoImporter, NoImporter, NoImporter},
	"hns3":       {"hns_roce_hw_v2", NoImporter, NoImporter, NoImporter},
	"qede":       {"qedr", NoImporter, NoImporter, NoImporter},
	"erdma":      {"erdma", NoImporter, NoImporter, NoImporter},
	"hfi1":       {"hfi1", NoImporter, NoImporter, NoImporter},
	"ib_qib":     {"ib_qib", NoImporter, NoImporter, NoImporter},
	"ib_mthca":   {"ib_mthca", NoImporter, NoImporter, NoImporter},
	"vmw_pvrdma": {"vmw_pvrdma", NoImporter, NoImporter, NoImporter},
}

// KindOn is the kind on a kernel. It is not known between two series that differ, and on a
// kernel that may have code of a later series.
func (d RdmaDriver) KindOn(k machine.Kernel) Kind {
	older, newer := KindUnknown, KindUnknown
	switch v := k.Version; {
	case d.Module == "mlx5_ib" && v.Known() && v.Cmp(machine.V5_12) >= 0 && v.Cmp(machine.V6_1) < 0:
		return Dynamic // mlx5 imports since the first series that registers dma-bufs
	case !v.Known() || v.Cmp(machine.V6_1) < 0 || k.UnreadYet():
	case v.Cmp(machine.V7_2) >= 0:
		older, newer = d.in7_2, d.in7_2
	case v.Cmp(machine.V6_12) >= 0:
		older, newer = d.in6_12, d.in7_2
		if v == machine.V6_12 && !k.Backports() {
			newer = older
		}
	default:
		older, newer = d.in6_1, d.in6_12
		if v == machine.V6_1 && !k.Backports() {
			newer = older
		}
	}
	if older != newer {
		return KindUnknown
	}
	return older
}

// RegistersNone reports whether the kernel registers no dma-bufs: it is older than 5.12, without
// backports of that method, and ib_uverbs is its own. MLNX_OFED has another ib_uverbs, which may register
// them.
func RegistersNone(m *machine.Machine) bool {
	k := m.Kernel
	plain := !k.Backports() || strings.Contains(k.Release, ".amzn") // Amazon Linux backports fixes, but not this method
	return k.Version.Known() && k.Version.Cmp(machine.V5_12) < 0 && plain && ownUverbs(m)
}

// ownUverbs reports an ib_uverbs that is the kernel's own. MLNX_OFED and DOCA replace it together with the drivers,
// which answer where its own taint was not read.
func ownUverbs(m *machine.Machine) bool {
	if is := m.OutOfTree("ib_uverbs"); is != placement.AnswerUnknown {
		return is == placement.No
	}
	own := false
	for _, d := range RdmaDrivers {
		switch m.OutOfTree(d.Module) {
		case placement.Yes:
			return false
		case placement.No:
			own = true
		}
	}
	return own
}

// WithoutUverbs reports whether an RDMA driver is loaded, and ib_uverbs is not: the kernel was then built
// without it.
func WithoutUverbs(m *machine.Machine, i Importer) bool {
	uverbs, _ := m.There("sys/module/ib_uverbs")
	driver, _ := m.There("sys/module", RdmaDrivers[i.Driver].Module)
	return uverbs == placement.No && driver == placement.Yes && RdmaDrivers[i.Driver].Module != ""
}

// ImporterOf finds out how an RDMA device ("mlx5_0") imports. The kind is unknown for a
// driver that is not the kernel's own, or that is not in the table. The only error is that the
// device's place in sysfs cannot be read, such as fs.ErrNotExist.
func ImporterOf(m *machine.Machine, rdma string) (Importer, error) {
	dir := path.Join("class/infiniband", rdma)
	real, err := m.Sys.Resolve(dir)
	if err != nil {
		return Importer{}, fmt.Errorf("RDMA device %q: %w", rdma, err)
	}
	i := Importer{PeerToPeer: true}
	if a, ok := pci.DeviceAt(real); ok {
		i.PCI = &a
	}
	// The kernel has a link there, which leads below devices.
	i.Unplaced = i.PCI == nil && !strings.HasPrefix(real, "devices/")
	i.Driver, _ = m.Sys.Link(path.Join(dir, "device/driver"))
	// The test bed's rxe has files with its kind of importer.
	if kind, err := m.Sys.ReadString(path.Join(dir, "importer")); err == nil {
		i.Kind = map[string]Kind{"pinned": Pinned, "revocable": Revocable, "dynamic": Dynamic}[kind]
		peer, err := m.Sys.ReadString(path.Join(dir, "peer2peer"))
		i.ByCPU = true
		i.PeerToPeer = err != nil || peer != "0" && peer != "N"
		return i, nil
	}
	// A software device may have the PCI function of the NIC that it uses: its file parent
	// names the network device.
	switch parent, err := m.Sys.ReadString(path.Join(dir, "parent")); {
	case err == nil && parent != "":
		i.Driver, i.Kind = software(m, dir)
		return i, nil
	case err == nil: // a file that was not read
		return i, nil
	case !errors.Is(err, fs.ErrNotExist):
		return i, nil // whether it is one is not known
	}
	d, ok := RdmaDrivers[i.Driver]
	i.OutOfTree = !ok || m.OutOfTree(d.Module) != placement.No
	if !i.OutOfTree {
		i.Kind = d.KindOn(m.Kernel)
		// Without ODP mlx5 refuses before it looks at the buffer.
		if i.Driver == "mlx5_core" {
			if i.ODP = m.OnDemandPaging(); i.ODP == placement.No {
				i.Kind, i.NoODP = NoImporter, true
			}
		}
	}
	i.Imports = i.OutOfTree && ofedImports(m, i.Driver)
	return i, nil
}

// software is the module of a software device, and how it imports. The kernel's own rxe and siw
// register no dma-bufs, in any series that was read.
func software(m *machine.Machine, dir string) (string, Kind) {
	module := "rdma_rxe"
	switch node, err := m.Sys.ReadString(path.Join(dir, "node_type")); {
	case err != nil:
		return "", KindUnknown
	case strings.HasSuffix(node, "RNIC"):
		module = "siw"
	}
	if m.OutOfTree(module) != placement.No || !m.Kernel.Version.Known() || m.Kernel.UnreadYet() {
		return module, KindUnknown
	}
	return module, NoImporter
}

// ofedSince and ofedUntil are the first and the last year of MLNX_OFED's and DOCA's releases
// whose mlx5 is known to import dma-bufs, as the kernel's own mlx5 does, on kernels that have the
// method for it.
const ofedSince, ofedUntil = 23, 26

// ofedImports reports mlx5 of such a release: "24.07-0.6.1".
func ofedImports(m *machine.Machine, driver string) bool {
	if driver != "mlx5_core" || m.OutOfTree("mlx5_ib") != placement.Yes || !m.Kernel.Version.Known() || m.Kernel.Version.Cmp(machine.V5_12) < 0 {
		return false
	}
	year, _, dotted := strings.Cut(m.Read("sys/module/mlx5_ib/version").Text, ".")
	n, err := strconv.Atoi(year)
	return dotted && err == nil && n >= ofedSince && n <= ofedUntil
}
