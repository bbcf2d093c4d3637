// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/softgpu"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Class is the way an exporter treats importers. Several drivers can have the same class.
type Class int

// The classes.
const (
	ClassUnknown Class = iota // no rule covers the driver, or it is not known
	// ClassAMDGPU asks for the kernel's decision at attach, and moves the buffer to
	// system memory if the kernel supports no way. amdgpu_dma_buf.c.
	ClassAMDGPU
	// ClassXe does the same as amdgpu, but refuses if the buffer may not leave VRAM.
	// xe_dma_buf.c.
	ClassXe
	// ClassI915 moves the buffer to system memory for any importer.
	// i915_gem_dmabuf.c.
	ClassI915
	// ClassNVIDIA never moves the buffer. It has its own gate, and does not ask the kernel.
	// nv-dmabuf.c of open-gpu-kernel-modules.
	ClassNVIDIA
	// ClassNVIDIACoherent is NVIDIA's driver with GPU memory that the CPU caches. Such
	// memory has pages, and is mapped in the same way as system memory.
	ClassNVIDIACoherent
	// ClassVFIO needs an importer that is peer to peer and can be revoked, and
	// asks for the kernel's decision when it maps. vfio_pci_dmabuf.c.
	ClassVFIO
	// ClassSystem has system memory only: vgem, udmabuf, dma-heaps, and the
	// displays of servers' boards.
	ClassSystem
	// ClassStaged has memory of its own, and exports system memory to any
	// importer: nouveau pins in system memory, and the buffers of qaic, ivpu and
	// amdxdna are always in it.
	ClassStaged
	// ClassHabana asks for the kernel's decision at attach. Its map returns EPERM to an
	// importer that is not peer to peer. memory.c of habanalabs.
	ClassHabana
)

var classNames = []string{"unknown", "amdgpu", "xe", "i915", "nvidia", "nvidia-coherent", "vfio", "system", "staged", "habanalabs"}

// String returns the name of the class: "amdgpu".
func (c Class) String() string {
	if c < 0 || int(c) >= len(classNames) {
		return fmt.Sprintf("invalid (%d)", int(c))
	}
	return classNames[c]
}

// ParseClass reads the name of a class, as String writes it. For another name it returns
// ClassUnknown, and an error that lists the classes.
func ParseClass(s string) (Class, error) {
	for i, name := range classNames {
		if s == name {
			return Class(i), nil
		}
	}
	return ClassUnknown, fmt.Errorf("p2p: %q is none of the classes %s", s, strings.Join(classNames, ", "))
}

// PinRule says where amdgpu and xe pin a buffer.
type PinRule int

// The rules.
const (
	PinByKernel PinRule = iota // the rule of the in-tree driver, by the kernel's version
	PinUnknown
	PinInSystem // always in system memory
	PinInVRAM   // in VRAM while all importers are peer to peer
)

// Gate says which importers NVIDIA's driver lets attach.
type Gate int

// The gates.
const (
	GateUnknown   Gate = iota
	GateOpen           // all
	GateBridge         // those below a common bridge; others get ENOTSUPP (524)
	GateClosed         // none
	GateUnread         // the rule of this version was not read
	GateParameter      // the driver's parameter that decides was not read
)

// PeerRule says how NVIDIA's driver refuses an importer that supports moves, as all RDMA
// drivers do, and does not want addresses without pages.
type PeerRule int

// The rules. They do not apply to memory with pages.
const (
	PeerUnread   PeerRule = iota // the rule of this version was not read
	PeerAtMap                    // the driver maps nothing for the importer: up to 575
	PeerAtAttach                 // the driver does not let the importer attach: from 580 on
)

// Exporter is memory of a GPU, and the driver that exports it.
type Exporter struct {
	Class Class
	PCI   *pciaddr.Addr // the function that has the memory; nil for ClassSystem
	Pin   PinRule
	Gate  Gate
	Peer  PeerRule // of ClassNVIDIA
	// VRAMOnly says that the buffer may not be in system memory. It counts for
	// ClassXe and ClassI915.
	VRAMOnly bool
	// Power matters for ClassAMDGPU: newer amdgpu denies peer-to-peer to an importer
	// that attaches while the GPU is suspended.
	Power machine.Power
	// OutOfTree says that the driver is not, or may not be, the kernel's own. Its rules
	// are then not known. NVIDIA's driver is always out of tree, and its rules are known.
	OutOfTree bool
	// Proprietary says that NVIDIA's modules are the proprietary ones. Only the open
	// ones export dma-bufs.
	Proprietary bool
	// Withheld is the reason for which NVIDIA's libraries refuse an export: one of CUDA's
	// attributes is 0, or confidential computing is on. It is "" if they do not refuse.
	Withheld string
	// Given says that CUDA reports that this GPU has dma-bufs and GPUDirect RDMA, and NVML
	// that confidential computing is off.
	Given bool
	// Driver is the driver of the function; "" if it is not known.
	Driver string
}

var classOfDriver = map[string]Class{
	"amdgpu": ClassAMDGPU, "xe": ClassXe, "i915": ClassI915, "nvidia": ClassNVIDIA, "vfio-pci": ClassVFIO, "nvgrace-gpu-vfio-pci": ClassVFIO, "habanalabs": ClassHabana,
	"nouveau": ClassStaged, "qaic": ClassStaged, "ivpu": ClassStaged, "intel_vpu": ClassStaged, "amdxdna": ClassStaged,
	"vgem": ClassSystem, "virtio_gpu": ClassSystem, "mgag200": ClassSystem,
	"vkms": ClassSystem, "hyperv_drm": ClassSystem, "simple-framebuffer": ClassSystem,
	"bochs-drm": ClassSystem, "cirrus": ClassSystem, "cirrus-qemu": ClassSystem, "qxl": ClassSystem,
}

// UnknownDriver stands for the driver of a function if the file that describes the function
// does not name it.
const UnknownDriver = "?"

// boards are the vendors of the displays on servers' boards, ASPEED and Matrox. These
// displays have no memory for a NIC, with any driver or without one.
var boards = map[uint16]bool{0x1a03: true, 0x102b: true}

// displays have no memory for a NIC either, by vendor and device. Hypervisors emulate most of them.
var displays = map[[2]uint16]bool{
	{0x1234, 0x1111}: true, // QEMU's standard VGA
	{0x1013, 0x00b8}: true, // Cirrus
	{0x1b36, 0x0100}: true, // QXL
	{0x1af4, 0x1050}: true, // virtio
	{0x1d0f, 0x1111}: true, // Amazon EC2
	{0x15ad, 0x0405}: true, // VMware SVGA II, of vmwgfx
	{0x1414, 0x5353}: true, // Hyper-V, of hyperv_drm
	{0x19e5, 0x1711}: true, // Huawei's iBMC, of hibmc-drm
	{0x126f, 0x0750}: true, // Silicon Motion SM750, on servers' boards
}

// ExporterOf finds out how the driver of a function exports its memory. An unknown
// driver has ClassUnknown. The only error is that the function cannot be read.
func ExporterOf(m *machine.Machine, a pciaddr.Addr) (Exporter, error) {
	f, err := pci.ReadFunction(m.Sys, a)
	if err != nil {
		return Exporter{}, err
	}
	e := Exporter{PCI: &a, Driver: f.Driver}
	if f.Driver == softgpu.Module {
		softExporter(m, &e, f.SysPath)
		return e, nil
	}
	if f.Driver == "virtio-pci" {
		e.Driver = virtioDriver(m, f.SysPath)
	}
	e.Class = classOfDriver[e.Driver]
	e.OutOfTree = m.OutOfTree(e.Driver) != placement.No
	// The display of a server's board. Before 6.2 it kept buffers in its own
	// memory, and exported none of them.
	if e.Driver == "ast" && !e.OutOfTree && m.Kernel.Version.Cmp(machine.V6_12) >= 0 {
		e.Class = ClassSystem
	}
	if (boards[f.Vendor] || displays[[2]uint16{f.Vendor, f.Device}]) && f.IsDisplay() {
		e.Class = ClassSystem
	}
	if f.Driver == "" && e.Class == ClassUnknown && bound(m, f) {
		return Exporter{PCI: &a, Driver: UnknownDriver, OutOfTree: true}, nil
	}
	if e.Class == ClassNVIDIA {
		e.Gate, e.Peer = nvidiaGate(m, a), nvidiaPeer(m)
		taint, err := m.Taint("nvidia")
		// No kernel includes this driver: an empty taint file proves nothing.
		version := m.Read("proc/driver/nvidia/version")
		open := strings.Contains(version.Text, OpenModules)
		if strings.Contains(taint, "P") || !strings.Contains(taint, "O") || err != nil || version.Err == nil && !open {
			e.Class = ClassUnknown // maybe the proprietary modules: only the open ones export dma-bufs
			e.Proprietary = strings.Contains(taint, "P") && err == nil && !open
		} else if coherentGPU(m, f) {
			e.Class = ClassNVIDIACoherent
		}
	}
	e.Power = m.PowerAt(f.SysPath)
	return e, nil
}

// bound reports that a function has or may have a driver although its link to one is not there: a driver lists the
// function, or has made devices of it, or the copy has no such links.
func bound(m *machine.Machine, f pci.Function) bool {
	const dir = "bus/pci/drivers"
	names, _ := m.Sys.List(dir)
	_, err := files.Lstat(m.Proc.Path("driver/nvidia/gpus/" + f.Addr.String()))
	return err == nil || slices.ContainsFunc(names, func(name string) bool { return m.Sys.Exists(path.Join(dir, name, f.Addr.String())) }) || m.Sys.Exists(path.Join(f.SysPath, "drm")) || !hasDrivers(m)
}

// hasDrivers reports a machine with a PCI function that has a driver.
func hasDrivers(m *machine.Machine) bool {
	const dir = "bus/pci/devices"
	return machine.Once(m, "drivers of PCI", func() bool {
		names, _ := m.Sys.List(dir)
		return slices.ContainsFunc(names, func(name string) bool { return m.Sys.Exists(path.Join(dir, name, "driver")) })
	})
}

// OpenModules is a part of the name of NVIDIA's open modules, in
// /proc/driver/nvidia/version.
const OpenModules = "Open Kernel Module"

// gates lists the series of NVIDIA's driver whose nv-dmabuf.c was read, and whether
// it has a gate. A series without a gate lets any importer attach. The gate also checks
// whether the importer wants peer-to-peer; a series without a gate checks it when it maps.
var gates = map[int]bool{
	515: false, 520: false, 525: false, 530: false, 535: false, 545: false, 550: false, 555: false, 560: false, 565: false, 570: false, 575: false,
	580: true, 590: true, 595: true,
}

// nvidiaPeer finds the rule by the version, as for the gate.
func nvidiaPeer(m *machine.Machine) PeerRule {
	gate, read := gates[NVIDIASeries(m)]
	switch {
	case !read:
		return PeerUnread
	case gate:
		return PeerAtAttach
	}
	return PeerAtMap
}

// NVIDIASeries returns the first number of the version of NVIDIA's loaded driver; 0 if it
// is not known.
func NVIDIASeries(m *machine.Machine) int {
	texts := []string{m.Read("sys/module/nvidia/version").Text}
	texts = append(texts, strings.Fields(m.Read("proc/driver/nvidia/version").Text)...)
	for _, text := range texts {
		first, _, dotted := strings.Cut(text, ".")
		if n, err := strconv.Atoi(first); dotted && err == nil && n >= 100 {
			return n
		}
	}
	return 0
}

// virtioDriver is the driver of the virtio device below a function.
func virtioDriver(m *machine.Machine, dir string) string {
	names, err := m.Sys.List(dir)
	if err != nil {
		return ""
	}
	for _, name := range names {
		if driver, err := m.Sys.Link(path.Join(dir, name, "driver")); strings.HasPrefix(name, "virtio") && err == nil {
			return driver
		}
	}
	return ""
}

// softExporter reads how the software GPU behaves.
func softExporter(m *machine.Machine, e *Exporter, dir string) {
	if text, err := m.Sys.ReadString(path.Join(dir, "behaviour")); err == nil {
		if c, err := ParseClass(text); err == nil {
			e.Class = c
		}
	}
	e.Pin = PinUnknown
	e.Power = m.PowerAt(dir)
	switch text, _ := m.Sys.ReadString(path.Join(dir, "pin_rule")); text {
	case "system":
		e.Pin = PinInSystem
	case "vram":
		e.Pin = PinInVRAM
	}
	switch text, _ := m.Sys.ReadString("module/" + softgpu.Module + "/parameters/topology_gate"); text {
	case "Y":
		e.Gate, e.Peer = GateBridge, PeerAtAttach
	case "N":
		e.Gate, e.Peer = GateOpen, PeerAtMap
	}
}

// AsksKernel reports whether an exporter follows the kernel's decision, or may follow it.
func AsksKernel(e Exporter) bool {
	switch e.Class {
	case ClassAMDGPU, ClassXe, ClassVFIO, ClassHabana, ClassUnknown:
		return true
	}
	return false
}

// Read reports whether the source of the driver was read, so that its rules are known: it is
// one of the kernel's own drivers, or NVIDIA's.
func (e Exporter) Read() bool {
	switch e.Class {
	case ClassUnknown:
		return false
	case ClassNVIDIA, ClassNVIDIACoherent:
		return true
	}
	return !e.OutOfTree
}

// NoExporters are drivers of GPUs and accelerators that do not export the device's own
// memory, with the reason.
var NoExporters = map[string]string{
	"nouveau": "it pins what it exports in system memory",
	"qaic":    "its buffers are in system memory",
	"ivpu":    "its buffers are in system memory", "intel_vpu": "its buffers are in system memory",
	"amdxdna": "its buffers are in system memory",
}

// VfioDrivers are the drivers that export as vfio-pci does.
var VfioDrivers = []string{"vfio-pci", "nvgrace-gpu-vfio-pci"}
