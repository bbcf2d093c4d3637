// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/softgpu"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// NodeType is one of the two kinds of node that a device may have.
type NodeType int

// The node types.
const (
	Primary NodeType = iota // card0: everything, one master
	Render                  // renderD128: rendering and PRIME only
)

// String returns "primary" or "render".
func (t NodeType) String() string {
	if t == Render {
		return "render"
	}
	return "primary"
}

// Node is a DRM device node.
type Node struct {
	Name    string // "renderD128"
	Path    string // "/dev/dri/renderD128"
	Type    NodeType
	Major   int
	Minor   int
	Driver  string // "vgem", "virtio_gpu", "amdgpu"; "" if nothing says
	Class   string // the driver whose ioctls it speaks: Driver, except for a software GPU
	SysPath string // the device behind it, canonical, relative to the root of sysfs
	pci     *pciaddr.Addr
}

// PCI is the node's PCI function, for a virtio or platform device the nearest
// PCI function above it; false if there is none.
func (n Node) PCI() (pciaddr.Addr, bool) {
	if n.pci == nil {
		return pciaddr.Addr{}, false
	}
	return *n.pci, true
}

// Nodes lists the DRM nodes, primary nodes first. sys is the root of sysfs and
// dev that of the device nodes; "" stands for /sys and /dev. Without DRM the
// list is empty, which is no error.
//
// The driver's name comes from sysfs. For a device without a driver link
// (vgem's on Linux 6.1 and 6.12), or on the faux bus, whose devices share one
// driver (vgem's on 7.2), Nodes opens the node and asks by DRM_IOCTL_VERSION.
// If the node cannot be opened, Driver is the device's name.
func Nodes(sys, dev string) ([]Node, error) {
	s := sysfs.New(sys)
	if dev == "" {
		dev = "/dev"
	}
	names, err := s.List("class/drm")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &failure.Error{Op: "list DRM nodes", Device: s.Path("class/drm"), Err: err}
	}
	var out []Node
	for _, name := range names {
		kind, ok := nodeType(name)
		if !ok {
			continue // "version", and connectors such as "card0-DP-1"
		}
		n, err := readNode(s, dev, name, kind)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // unplugged while we looked
		case err != nil:
			return nil, &failure.Error{Op: "read DRM node", Device: s.Path("class/drm", name), Err: err}
		}
		out = append(out, n)
	}
	return out, nil
}

func nodeType(name string) (NodeType, bool) {
	for prefix, t := range map[string]NodeType{"card": Primary, "renderD": Render} {
		if number, ok := strings.CutPrefix(name, prefix); ok {
			_, err := strconv.ParseUint(number, 10, 32)
			return t, err == nil
		}
	}
	return 0, false
}

func readNode(s sysfs.FS, dev, name string, t NodeType) (Node, error) {
	class := path.Join("class/drm", name)
	n := Node{Name: name, Path: filepath.Join(dev, "dri", name), Type: t}
	number, err := s.ReadString(path.Join(class, "dev"))
	if err != nil {
		return n, err
	}
	if _, err := fmt.Sscanf(number, "%d:%d", &n.Major, &n.Minor); err != nil {
		return n, fmt.Errorf("%q is not a device number", number)
	}
	device := path.Join(class, "device")
	if n.SysPath, err = s.Resolve(device); err != nil {
		return n, err
	}
	if a, ok := pci.DeviceOf(s, device); ok {
		n.pci = &a
	}
	if n.Driver = driverOf(s, device); n.Driver == "" {
		n.Driver = askDriver(n.Path)
	}
	if n.Driver == "" {
		n.Driver = path.Base(n.SysPath)
	}
	n.Class = softgpu.Class(s, n.Driver, device)
	return n, nil
}

// driverOf follows the device's driver link. On Linux 6.1 and 6.12 a
// virtio-gpu's node hangs on the PCI function, whose own driver is the
// transport: the GPU's is that of the virtio device below.
func driverOf(s sysfs.FS, device string) string {
	driver, err := s.Link(path.Join(device, "driver"))
	if err != nil || driver == "faux_driver" {
		return ""
	}
	if driver != "virtio-pci" {
		return driver
	}
	children, err := s.List(device)
	if err != nil {
		return driver
	}
	for _, child := range children {
		if !strings.HasPrefix(child, "virtio") {
			continue
		}
		if d, err := s.Link(path.Join(device, child, "driver")); err == nil {
			return d
		}
	}
	return driver
}

// askDriver returns "" when the node cannot be asked.
func askDriver(path string) string {
	d, err := Open(path)
	if err != nil {
		return ""
	}
	defer d.Close()
	v, err := d.Version()
	if err != nil {
		return ""
	}
	return v.Name
}
