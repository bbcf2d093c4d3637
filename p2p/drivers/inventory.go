// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/softgpu"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// GPU is a device whose memory a program may want a NIC to reach: a display controller,
// an accelerator, or a software GPU.
type GPU struct {
	Name     string // its PCI address; its name in sysfs if it is on no PCI bus
	Exporter Exporter
}

// NIC is an RDMA device.
type NIC struct {
	Name         string // "mlx5_0"
	Importer     Importer
	NetDevs      []string // network devices of its ports
	Software     bool     // the CPU does its work: rxe, siw
	Uverbs       string   // "/dev/infiniband/uverbs0"; "" without one
	SoftwareKind string   // "rxe" or "siw"; "" for other devices
	Ports        []ibdev.Port
}

// GPUs finds the machine's GPUs. If it returns an error, it also returns the GPUs that
// could be read, and those of which something other than the class could not be read:
// their driver is not known.
func GPUs(m *machine.Machine) ([]GPU, error) {
	if err := looks(m); err != nil {
		return nil, err
	}
	names, err := m.Sys.List("bus/pci/devices")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("PCI functions: %w", err)
	}
	var out []GPU
	var errs []error
	if err != nil && hasRootBus(m) {
		errs = append(errs, errors.New("PCI functions: /sys/bus/pci/devices was not copied"))
	}
	for _, name := range names {
		a, err := pciaddr.Parse(name)
		if err != nil {
			continue
		}
		is, err := isGPU(m, a)
		if err == nil && !is {
			continue
		}
		var e Exporter
		if err == nil {
			e, err = ExporterOf(m, a)
		}
		if err != nil {
			errs = append(errs, err)
			if !is || !m.Sys.Exists("bus/pci/devices/"+name) {
				continue
			}
			e = Exporter{PCI: &a, Driver: UnknownDriver, OutOfTree: true}
		}
		out = append(out, GPU{a.String(), e})
	}
	errs = append(errs, uncopied(m)...)
	return append(out, offPCI(m)...), errors.Join(errs...)
}

// hasRootBus reports a machine with PCI: a host bridge's bus is below devices.
func hasRootBus(m *machine.Machine) bool {
	names, _ := m.Sys.List("devices")
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "pci") })
}

// uncopied are errors about the GPUs that NVIDIA's driver lists and that are not among the PCI functions of the copy.
func uncopied(m *machine.Machine) (errs []error) {
	entries, _ := files.ReadDir(m.Proc.Path("driver/nvidia/gpus"))
	for _, entry := range entries {
		if a, err := pciaddr.Parse(entry.Name()); err == nil && !m.Sys.Exists("bus/pci/devices/"+a.String()) {
			errs = append(errs, fmt.Errorf("PCI function %v: NVIDIA's driver lists it, and /sys/bus/pci/devices does not", a))
		}
	}
	return errs
}

// HasRDMA reports whether the machine has an RDMA device on a PCI function.
func HasRDMA(m *machine.Machine) bool {
	const dir = "bus/pci/devices"
	names, _ := m.Sys.List(dir)
	return slices.ContainsFunc(names, func(name string) bool { return m.Sys.Exists(path.Join(dir, name, "infiniband")) })
}

// looks fails if there is no sysfs at all.
func looks(m *machine.Machine) error {
	if _, err := m.Sys.List("."); err != nil {
		return fmt.Errorf("sysfs: %w", err)
	}
	return nil
}

// The base classes of PCI that have GPUs. Some software GPUs are memory controllers.
const (
	classMemory      = 0x05
	classDisplay     = 0x03
	classAccelerator = 0x12
)

// isGPU reports whether a function is a GPU. It fails if the class cannot be read.
func isGPU(m *machine.Machine, a pciaddr.Addr) (bool, error) {
	dir := "bus/pci/devices/" + a.String()
	class, err := m.Sys.ReadUint(dir+"/class", 32)
	sawClass(m, a, class, err)
	if err != nil {
		if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)) && !m.Sys.Exists(dir) {
			return false, nil // removed meanwhile
		}
		return false, fmt.Errorf("PCI function %v: %w", a, err)
	}
	switch class >> 16 {
	case classDisplay, classAccelerator:
		return true, nil
	case classMemory:
		driver, err := m.Sys.Link(dir + "/driver")
		return err == nil && driver == softgpu.Module, nil
	}
	return false, nil
}

// sawClass keeps the class for SeenClass: there are thousands of functions.
func sawClass(m *machine.Machine, a pciaddr.Addr, class uint64, err error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if err != nil {
		delete(m.Classes, a)
	} else {
		m.Classes[a] = class
	}
}

// SeenClass returns the PCI class of a function, 24 bits; false if GPUs has not read it.
func SeenClass(m *machine.Machine, a pciaddr.Addr) (uint64, bool) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	class, ok := m.Classes[a]
	return class, ok
}

// offPCI finds the GPUs that are on no PCI bus, vgem among them.
func offPCI(m *machine.Machine) []GPU {
	names, err := m.Sys.List("class/drm")
	if err != nil {
		return nil // no DRM driver is loaded
	}
	var out []GPU
	seen := map[string]bool{}
	for _, name := range names {
		device, err := m.Sys.Resolve(path.Join("class/drm", name, "device"))
		isNode := strings.HasPrefix(name, "card") && !strings.Contains(name, "-") || strings.HasPrefix(name, "renderD")
		if _, onPCI := pci.DeviceOf(m.Sys, device); err != nil || !isNode || onPCI || seen[device] {
			continue
		}
		seen[device] = true
		g := GPU{Name: path.Base(device)}
		// A device without a parent has its driver's name, vgem and vkms: the kernel
		// binds none to it, or one that stands for all of these (drivers/base/faux.c).
		if g.Exporter.Driver, err = m.Sys.Link(path.Join(device, "driver")); err != nil || g.Exporter.Driver == "faux_driver" {
			g.Exporter.Driver = g.Name
		}
		g.Exporter.Class = classOfDriver[g.Exporter.Driver]
		out = append(out, g)
	}
	return out
}

// NICs finds the machine's RDMA devices. If it returns an error, it also returns the devices
// that could be read.
func NICs(m *machine.Machine) ([]NIC, error) {
	if err := looks(m); err != nil {
		return nil, err
	}
	devices, err := ibdev.List(m.Sys.Root())
	errs := []error{err}
	if err == nil && len(devices) == 0 && !m.Sys.Exists("class/infiniband") && HasRDMA(m) {
		errs = append(errs, errors.New("RDMA devices: /sys/class/infiniband was not copied"))
	}
	var out []NIC
	for _, d := range devices {
		i, err := ImporterOf(m, d.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n := NIC{Name: d.Name, Importer: i, NetDevs: d.NetDevs, Software: d.Software(), Uverbs: d.Uverbs, Ports: d.Ports}
		if n.Software {
			n.SoftwareKind = d.Kind
		}
		out = append(out, n)
	}
	return out, errors.Join(errs...)
}

// PortName returns the name of a port of a NIC: "mlx5_0/1".
func PortName(n NIC, p ibdev.Port) string { return fmt.Sprintf("%s/%d", n.Name, p.Num) }
