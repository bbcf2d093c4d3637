// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// DeviceOf finds the PCI function that a device belongs to: the device itself
// or its nearest ancestor on the PCI bus. Virtio, auxiliary and platform
// devices, class links ("class/drm/card0") and network devices all lead to
// their parent's function. sysPath is relative to the tree's root. It is false
// for a device that hangs on no PCI bus.
func DeviceOf(s sysfs.FS, sysPath string) (pciaddr.Addr, bool) {
	real, err := s.Resolve(sysPath)
	if err != nil {
		return pciaddr.Addr{}, false
	}
	return DeviceAt(real)
}

// DeviceAt is DeviceOf a path below sysfs that is resolved already.
func DeviceAt(real string) (pciaddr.Addr, bool) {
	for dir := real; dir != "." && dir != "/"; dir = path.Dir(dir) {
		a, err := pciaddr.Parse(path.Base(dir))
		if err != nil || len(path.Base(dir)) < len("0000:00:00.0") {
			continue
		}
		// The parent of a function is a root bus or the bridge above.
		parent := path.Base(path.Dir(dir))
		if _, err := pciaddr.Parse(parent); err == nil || isRootBus(parent) {
			return a, true
		}
	}
	return pciaddr.Addr{}, false
}

// isRootBus recognises "pci0000:00", the directory of a host bridge's bus.
func isRootBus(name string) bool {
	rest, ok := strings.CutPrefix(name, "pci")
	if !ok {
		return false
	}
	_, bus, ok := strings.Cut(rest, ":")
	return ok && len(bus) == 2
}

func functionPath(a pciaddr.Addr) string { return path.Join("bus/pci/devices", a.String()) }

// Function is what sysfs says about a PCI function.
type Function struct {
	Addr      pciaddr.Addr
	Vendor    uint16
	Device    uint16
	SubVendor uint16
	SubDevice uint16
	Class     uint32 // 24 bits: base class, subclass, programming interface
	NUMANode  int    // -1: the firmware says none
	Driver    string // "" without one
	SysPath   string // canonical, relative to the root of sysfs
}

// IsBridge reports a PCI-to-PCI bridge: a root port or a switch port.
func (f Function) IsBridge() bool { return f.Class>>8 == 0x0604 }

// IsDisplay reports a display controller (base class 3): VGA, 3D or other.
func (f Function) IsDisplay() bool { return f.Class>>16 == 0x03 }

// ReadFunction reads a function's attributes. One that is not there is
// fs.ErrNotExist.
func ReadFunction(s sysfs.FS, a pciaddr.Addr) (Function, error) {
	dir := functionPath(a)
	real, err := s.Resolve(dir)
	if err != nil {
		return Function{}, fmt.Errorf("PCI function %v: %w", a, err)
	}
	f := Function{Addr: a, NUMANode: -1, SysPath: real}
	var errs []error
	id := func(file string, bits int) uint64 {
		n, err := s.ReadUint(path.Join(dir, file), bits)
		errs = append(errs, err)
		return n
	}
	f.Vendor, f.Device = uint16(id("vendor", 16)), uint16(id("device", 16))
	f.Class = uint32(id("class", 24))
	if err := errors.Join(errs...); err != nil {
		return Function{}, fmt.Errorf("PCI function %v: %w", a, err)
	}
	// Bridges of some kernels have no subsystem, and not every machine has NUMA.
	if n, err := s.ReadUint(path.Join(dir, "subsystem_vendor"), 16); err == nil {
		f.SubVendor = uint16(n)
	}
	if n, err := s.ReadUint(path.Join(dir, "subsystem_device"), 16); err == nil {
		f.SubDevice = uint16(n)
	}
	if n, err := s.ReadInt(path.Join(dir, "numa_node")); err == nil && n >= 0 {
		f.NUMANode = int(n)
	}
	f.Driver, err = s.Link(path.Join(dir, "driver"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Function{}, fmt.Errorf("PCI function %v: %w", a, err)
	}
	return f, nil
}

// Chain is the way from the root of the tree to a function: the root bus
// ("pci0000:00"), the bridges, the function itself. Functions behind a VMD
// controller have a root bus of their own, as the kernel sees them.
func Chain(s sysfs.FS, a pciaddr.Addr) ([]string, error) {
	_, chain, err := chainBelow(s, a)
	return chain, err
}

// chainBelow is Chain, and the directory that the root bus is in.
func chainBelow(s sysfs.FS, a pciaddr.Addr) (dir string, chain []string, err error) {
	real, err := s.Resolve(functionPath(a))
	if err != nil {
		return "", nil, fmt.Errorf("PCI function %v: %w", a, err)
	}
	parts := strings.Split(real, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if isRootBus(parts[i]) {
			return path.Join(parts[:i]...), parts[i:], nil
		}
	}
	return "", nil, fmt.Errorf("PCI function %v: no root bus in %s: %w", a, s.Path(real), fs.ErrInvalid)
}

// RootBus names the host bridge's bus that a function is below ("pci0000:00"),
// and the first function on it, where hosts show themselves. That is the lowest
// address: the order of scanning, which the kernel keeps. It is false if there
// is no function.
func RootBus(s sysfs.FS, a pciaddr.Addr) (bus string, first pciaddr.Addr, ok bool, err error) {
	dir, chain, err := chainBelow(s, a)
	if err != nil {
		return "", pciaddr.Addr{}, false, err
	}
	names, err := s.List(path.Join(dir, chain[0]))
	if err != nil {
		return chain[0], pciaddr.Addr{}, false, fmt.Errorf("root bus of PCI function %v: %w", a, err)
	}
	for _, name := range names {
		f, err := pciaddr.Parse(name)
		if err != nil || len(name) < len("0000:00:00.0") {
			continue
		}
		if !ok || devfn(f) < devfn(first) {
			first, ok = f, true
		}
	}
	return chain[0], first, ok, nil
}

// Upstream lists the bridges above a function, nearest first.
func Upstream(s sysfs.FS, a pciaddr.Addr) ([]pciaddr.Addr, error) {
	chain, err := Chain(s, a)
	if err != nil {
		return nil, err
	}
	var out []pciaddr.Addr
	for i := len(chain) - 2; i > 0; i-- {
		b, err := pciaddr.Parse(chain[i])
		if err != nil {
			return nil, fmt.Errorf("PCI function %v: above it is %q: %w", a, chain[i], fs.ErrInvalid)
		}
		out = append(out, b)
	}
	return out, nil
}

// devfn is the place on its bus: PCI_DEVFN().
func devfn(a pciaddr.Addr) uint8 { return a.Device<<3 | a.Function }
