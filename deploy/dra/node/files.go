// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Files are the device files by which a program uses a device.
type Files struct {
	Needed   []string
	Optional []string // a program gets those that are there
}

// Seen is where this process sees a device file of the node.
func (n *Node) Seen(file string) string {
	if n.Dev == "" {
		return file
	}
	return path.Join(n.Dev, strings.TrimPrefix(file, "/dev"))
}

// gpuOf reads how programs use a GPU.
func gpuOf(m *machine.Machine, g drivers.GPU, at result.Place) GPU {
	a := *g.Exporter.PCI
	out := GPU{ID: idOf(a), PCI: a, Place: at}
	for _, kind := range []struct{ class, dir string }{{"drm", "/dev/dri"}, {"accel", "/dev/accel"}} {
		names, _ := m.Sys.List(path.Join("bus/pci/devices", a.String(), kind.class))
		for _, name := range names {
			if strings.HasPrefix(name, "card") || strings.HasPrefix(name, "renderD") || strings.HasPrefix(name, "accel") {
				out.Files.Needed = append(out.Files.Needed, path.Join(kind.dir, name))
			}
		}
	}
	nvidia := m.Read("proc/driver/nvidia/gpus", a.String(), "information")
	if minor, ok := nvidia.Line("Device Minor"); ok && minor != "" {
		out.Files.Needed = append(out.Files.Needed, "/dev/nvidia"+minor, "/dev/nvidiactl")
		out.Files.Optional = []string{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}
	}
	if g.Exporter.Driver == "amdgpu" {
		out.Files.Optional = append(out.Files.Optional, "/dev/kfd")
	}
	slices.Sort(out.Files.Needed)
	return out
}

// nicOf reads how programs use a NIC.
func nicOf(x drivers.NIC, id string, at result.Place) NIC {
	n := NIC{ID: id, PCI: *x.Importer.PCI, Name: x.Name, Place: at, Files: Files{Optional: []string{"/dev/infiniband/rdma_cm"}}}
	if x.Uverbs != "" {
		n.Files.Needed = []string{x.Uverbs}
	}
	for _, p := range x.Ports {
		if p.State == ibdev.PortActive {
			n.Ports = append(n.Ports, p.Num)
		}
	}
	return n
}
