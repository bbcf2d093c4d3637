// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Device is a GPU of the machine, and the device files by which programs use it.
type Device struct {
	Name   string // in the run: its PCI address
	PCI    pciaddr.Addr
	Vendor string   // "nvidia", "amd" or ""
	Files  []string // the one for gres.conf first
	NUMA   *int
}

// node is the name of a device file of DRM. A name of a copy or a snapshot can be anything.
var node = regexp.MustCompile(`^(card|renderD)[0-9]{1,6}$`)

// List is the GPUs of a machine with memory of their own, by PCI address.
type List []Device

// Devices finds the device files of the GPUs of a run.
func Devices(run result.Run, m *machine.Machine) (out List) {
	for _, g := range run.GPUs {
		if g.PCI == nil || !g.Counts {
			continue
		}
		d := Device{Name: g.Name, PCI: *g.PCI, NUMA: g.NUMA}
		nvidia := m.Read("proc/driver/nvidia/gpus", g.PCI.String(), "information")
		if minor, ok := nvidia.Line("Device Minor"); ok {
			if _, err := strconv.ParseUint(minor, 10, 16); err == nil {
				d.Files = append(d.Files, "/dev/nvidia"+minor)
			}
		}
		names, _ := m.Sys.List(path.Join("bus/pci/devices", g.PCI.String(), "drm"))
		slices.Sort(names)
		slices.Reverse(names) // the render node before the card
		for _, name := range names {
			if node.MatchString(name) {
				d.Files = append(d.Files, path.Join("/dev/dri", name))
			}
		}
		switch g.Driver {
		case "nvidia":
			d.Vendor = "nvidia"
		case "amdgpu":
			d.Vendor = "amd"
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(x, y Device) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// of returns the GPU of a device file.
func (l List) of(file string) (Device, error) {
	i := slices.IndexFunc(l, func(d Device) bool { return slices.Contains(d.Files, file) })
	if i < 0 {
		return Device{}, fmt.Errorf("it is not known which GPU %s is: neither /proc/driver/nvidia/gpus nor /sys/bus/pci/devices/*/drm names it", file)
	}
	return l[i], nil
}

// order finds the rule by which a library counts the GPUs as Slurm does.
func (l List) order(gpus []GPU, m *machine.Machine) (rule, why string) {
	if len(gpus) == 0 {
		return "", "gres.conf has no GPU of this node"
	}
	vendor := gpus[0].Vendor
	var slurm []string
	for _, g := range gpus {
		if g.PCI == "" || g.Vendor != vendor {
			return "", "gres.conf has " + g.File + ", of which the GPU is not known, or is of another vendor"
		}
		slurm = append(slurm, g.PCI)
	}
	var all []string
	switch vendor {
	case "nvidia":
		for _, d := range l {
			if d.Vendor == vendor {
				all = append(all, d.Name)
			}
		}
		if slices.Equal(slurm, all) {
			return PCIOrder, ""
		}
		return "", "gres.conf does not list all NVIDIA GPUs of the node by PCI address, as CUDA counts them: " + strings.Join(all, ", ") + "; slurm-p2p gres writes the lines"
	case "amd":
		all, why := kfd(m)
		if why != "" {
			return "", why
		}
		if slices.Equal(slurm, all) {
			return KFDOrder, ""
		}
		return "", "gres.conf does not list the AMD GPUs as ROCm counts them: " + strings.Join(all, ", ")
	}
	return "", "it is not known how the library of " + gpus[0].PCI + " counts GPUs"
}

// kfd lists AMD's GPUs by the kernel's topology of them, by which ROCm counts.
func kfd(m *machine.Machine) (all []string, why string) {
	const dir = "class/kfd/kfd/topology/nodes"
	names, err := m.Sys.List(dir)
	if err != nil {
		return nil, "how ROCm counts GPUs is not known: " + err.Error()
	}
	var nodes []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		r := m.Read("sys", dir, strconv.Itoa(n), "properties")
		if r.Err != nil {
			return nil, "how ROCm counts GPUs is not known: " + r.Why()
		}
		v := map[string]uint64{}
		for line := range strings.Lines(r.Text) {
			if f := strings.Fields(line); len(f) == 2 {
				v[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
			}
		}
		if v["simd_count"] == 0 {
			continue // a processor
		}
		at := v["location_id"]
		all = append(all, fmt.Sprintf("%04x:%02x:%02x.%x", v["domain"], at>>8&0xff, at>>3&0x1f, at&7))
	}
	return all, ""
}
