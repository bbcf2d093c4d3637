// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/softgpu"
	"github.com/gpurdma/gpurdma/placement"
)

// Class is how an exporter treats importers. Several drivers can be of one.
type Class int

// The classes.
const (
	ClassUnknown Class = iota
	// ClassAMDGPU asks the kernel's decision at attach and moves the buffer to
	// system memory where there is no way. amdgpu_dma_buf.c.
	ClassAMDGPU
	// ClassXe is the same, but refuses for a buffer that may not leave VRAM.
	// xe_dma_buf.c.
	ClassXe
	// ClassI915 moves the buffer to system memory for any importer.
	// i915_gem_dmabuf.c.
	ClassI915
	// ClassNVIDIA never moves, and has a gate of its own instead of asking.
	// nv-dmabuf.c of open-gpu-kernel-modules.
	ClassNVIDIA
	// ClassNVIDIACoherent is NVIDIA's for GPU memory that the CPU caches: it
	// has pages, and is mapped as system memory is.
	ClassNVIDIACoherent
	// ClassVFIO wants an importer that is peer to peer and can be revoked, and
	// asks the kernel's decision when it maps. vfio_pci_dmabuf.c.
	ClassVFIO
	// ClassSystem has system memory only: vgem, udmabuf, dma-heaps, and the
	// displays of servers' boards.
	ClassSystem
	// ClassStaged has memory of its own, and exports system memory for any
	// importer: nouveau pins there, the buffers of qaic, ivpu and amdxdna are
	// there from the start.
	ClassStaged
	// ClassHabana asks the kernel's decision at attach, and answers EPERM when it
	// maps for who is not peer to peer. memory.c of habanalabs.
	ClassHabana
)

var classNames = []string{"unknown", "amdgpu", "xe", "i915", "nvidia", "nvidia-coherent", "vfio", "system", "staged", "habanalabs"}

func (c Class) String() string {
	if c < 0 || int(c) >= len(classNames) {
		return fmt.Sprintf("invalid (%d)", int(c))
	}
	return classNames[c]
}

// ParseClass reads what String writes.
func ParseClass(s string) (Class, error) {
	for i, name := range classNames {
		if s == name {
			return Class(i), nil
		}
	}
	return ClassUnknown, fmt.Errorf("p2p: %q is none of the classes %s", s, strings.Join(classNames, ", "))
}

// PinRule is where amdgpu and xe pin a buffer.
type PinRule int

// The rules.
const (
	PinByKernel PinRule = iota // the in-tree driver's, by the kernel's version
	PinUnknown
	PinInSystem // always in system memory
	PinInVRAM   // in VRAM while all importers are peer to peer
)

// Gate is which importers NVIDIA's driver lets attach.
type Gate int

// The gates.
const (
	GateUnknown Gate = iota
	GateOpen         // all
	GateBridge       // those below a common bridge; others get ENOTSUPP (524)
	GateClosed       // none
	GateUnread       // the rule of this version was not read
)

// PeerRule is what NVIDIA's driver does with an importer that takes part in moves,
// as all RDMA drivers do, and does not want addresses without pages.
type PeerRule int

// The rules. Memory with pages is out of them.
const (
	PeerUnread   PeerRule = iota // the rule of this version was not read
	PeerAtMap                    // it maps nothing for it: up to 575
	PeerAtAttach                 // it does not let it attach: from 580 on
)

// Power is whether runtime power management has put a function to sleep.
type Power int

// The states. A function without runtime power management is awake.
const (
	PowerAwake Power = iota
	PowerSuspended
	PowerUnknown
)

// powerOf reads power/runtime_status.
func powerOf(r reading) Power {
	switch {
	case r.gone():
		return PowerAwake
	case r.err != nil:
		return PowerUnknown
	}
	switch r.text {
	case "active", "resuming", "unsupported":
		return PowerAwake
	case "suspended", "suspending":
		return PowerSuspended
	}
	return PowerUnknown
}

// Exporter is memory of a GPU, and who exports it.
type Exporter struct {
	Class Class
	PCI   *Addr // the function whose memory it is; nil for ClassSystem
	Pin   PinRule
	Gate  Gate
	Peer  PeerRule // of ClassNVIDIA
	// VRAMOnly says that the buffer may not be in system memory. It counts for
	// ClassXe and ClassI915.
	VRAMOnly bool
	// Power matters to ClassAMDGPU: newer amdgpu denies peer-to-peer to who
	// attaches while the GPU sleeps.
	Power Power
	// OutOfTree says that the driver is not the kernel's own, or may not be: its
	// rules are then not known, except those of NVIDIA's, which never is.
	OutOfTree bool
	// Proprietary says that NVIDIA's modules are not the open ones, which alone
	// export dma-bufs.
	Proprietary bool
	// Withheld is what NVIDIA's libraries have against an export: CUDA's
	// attribute is 0, confidential computing is on. "" if they said nothing.
	Withheld string
	// Driver is the function's, "" if it is not known.
	Driver string
}

var classOfDriver = map[string]Class{
	"amdgpu": ClassAMDGPU, "xe": ClassXe, "i915": ClassI915, "nvidia": ClassNVIDIA, "vfio-pci": ClassVFIO, "nvgrace-gpu-vfio-pci": ClassVFIO, "habanalabs": ClassHabana,
	"nouveau": ClassStaged, "qaic": ClassStaged, "ivpu": ClassStaged, "intel_vpu": ClassStaged, "amdxdna": ClassStaged,
	"vgem": ClassSystem, "virtio_gpu": ClassSystem, "mgag200": ClassSystem,
	"vkms": ClassSystem, "hyperv_drm": ClassSystem, "simple-framebuffer": ClassSystem,
	"bochs-drm": ClassSystem, "cirrus": ClassSystem, "cirrus-qemu": ClassSystem, "qxl": ClassSystem,
}

// UnknownDriver is the driver of a function in a file that does not say which.
const UnknownDriver = "?"

// boards are the vendors of servers' boards' own displays, ASPEED and Matrox.
// Whatever drives these, or nothing at all, there is no memory for a NIC.
var boards = map[uint16]bool{0x1a03: true, 0x102b: true}

// emulated are the displays that hypervisors emulate, by vendor and device: QEMU's
// standard VGA, Cirrus, QXL and virtio's.
var emulated = map[[2]uint16]bool{{0x1234, 0x1111}: true, {0x1013, 0x00b8}: true, {0x1b36, 0x0100}: true, {0x1af4, 0x1050}: true}

// Exporter finds out how the driver of a function exports its memory. A driver
// that is not known is of ClassUnknown.
func (m *Machine) Exporter(a Addr) (Exporter, error) {
	f, err := pci.ReadFunction(m.sys, a)
	if err != nil {
		return Exporter{}, err
	}
	e := Exporter{PCI: &a, Driver: f.Driver}
	if f.Driver == softgpu.Module {
		m.softExporter(&e, f.SysPath)
		return e, nil
	}
	if f.Driver == "virtio-pci" {
		e.Driver = m.virtioDriver(f.SysPath)
	}
	e.Class = classOfDriver[e.Driver]
	e.OutOfTree = m.outOfTree(e.Driver) != placement.No
	// The display of a server's board. Before 6.2 it kept buffers in its own
	// memory, and exported none of them.
	if e.Driver == "ast" && !e.OutOfTree && m.Kernel.version.cmp(v6_12) >= 0 {
		e.Class = ClassSystem
	}
	if (boards[f.Vendor] || emulated[[2]uint16{f.Vendor, f.Device}]) && f.IsDisplay() {
		e.Class = ClassSystem
	}
	if e.Class == ClassNVIDIA {
		e.Gate, e.Peer = m.nvidiaGate(a), m.nvidiaPeer()
		taint, err := m.taint("nvidia")
		// No kernel has it for its own: an empty file says nothing.
		if strings.Contains(taint, "P") || !strings.Contains(taint, "O") || err != nil {
			e.Class = ClassUnknown // maybe the proprietary modules: the open ones alone export dma-bufs
			e.Proprietary = strings.Contains(taint, "P") && err == nil && !strings.Contains(m.read("proc/driver/nvidia/version").text, openModules)
		}
	}
	e.Power = powerOf(m.read("sys", f.SysPath, "power/runtime_status"))
	return e, nil
}

// openModules is how NVIDIA's open modules call themselves.
const openModules = "Open Kernel Module"

// gates are the series of NVIDIA's driver whose nv-dmabuf.c was read, and whether
// it has a gate. Those without one let any importer attach. Whether an importer
// wants peer-to-peer is asked in the gate, too; those without one ask when they map.
var gates = map[int]bool{
	515: false, 520: false, 525: false, 530: false, 535: false, 545: false, 550: false, 555: false, 560: false, 565: false, 570: false, 575: false,
	580: true, 590: true, 595: true,
}

// nvidiaPeer goes by the version as the gate does.
func (m *Machine) nvidiaPeer() PeerRule {
	gate, read := gates[m.nvidiaSeries()]
	switch {
	case !read:
		return PeerUnread
	case gate:
		return PeerAtAttach
	}
	return PeerAtMap
}

// nvidiaSeries is the first number of the version of the driver that is loaded,
// 0 if it is not known.
func (m *Machine) nvidiaSeries() int {
	texts := []string{m.read("sys/module/nvidia/version").text}
	texts = append(texts, strings.Fields(m.read("proc/driver/nvidia/version").text)...)
	for _, text := range texts {
		first, _, dotted := strings.Cut(text, ".")
		if n, err := strconv.Atoi(first); dotted && err == nil && n >= 100 {
			return n
		}
	}
	return 0
}

// virtioDriver is the driver of the virtio device that a function carries.
func (m *Machine) virtioDriver(dir string) string {
	names, err := m.sys.List(dir)
	if err != nil {
		return ""
	}
	for _, name := range names {
		if driver, err := m.sys.Link(path.Join(dir, name, "driver")); strings.HasPrefix(name, "virtio") && err == nil {
			return driver
		}
	}
	return ""
}

// softExporter reads how the software GPU behaves.
func (m *Machine) softExporter(e *Exporter, dir string) {
	if text, err := m.sys.ReadString(path.Join(dir, "behaviour")); err == nil {
		if c, err := ParseClass(text); err == nil {
			e.Class = c
		}
	}
	e.Pin = PinUnknown
	e.Power = powerOf(m.read("sys", dir, "power/runtime_status"))
	switch text, _ := m.sys.ReadString(path.Join(dir, "pin_rule")); text {
	case "system":
		e.Pin = PinInSystem
	case "vram":
		e.Pin = PinInVRAM
	}
	switch text, _ := m.sys.ReadString("module/" + softgpu.Module + "/parameters/topology_gate"); text {
	case "Y":
		e.Gate, e.Peer = GateBridge, PeerAtAttach
	case "N":
		e.Gate, e.Peer = GateOpen, PeerAtMap
	}
}

// outOfTree reports a module that is not the kernel's own (its taint has O).
// A driver that is built in is: it has no such file, and something has to say
// that it is built in.
func (m *Machine) outOfTree(driver string) placement.Answer {
	module := moduleOf(driver)
	dir := path.Join("module", module)
	if driver == "" || !m.sys.Exists(dir) {
		return placement.AnswerUnknown
	}
	taint, err := m.taint(module)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !m.sys.Exists(path.Join(dir, "initstate")) && m.builtIn(module):
		return placement.No
	case err != nil:
		return placement.AnswerUnknown
	case strings.Contains(taint, "O"):
		return placement.Yes
	}
	return placement.No
}

// builtOptions are what the kernel's own drivers are configured by.
var builtOptions = map[string]string{
	"amdgpu": "CONFIG_DRM_AMDGPU", "xe": "CONFIG_DRM_XE", "i915": "CONFIG_DRM_I915", "nouveau": "CONFIG_DRM_NOUVEAU", "ast": "CONFIG_DRM_AST",
	"vfio_pci": "CONFIG_VFIO_PCI", "habanalabs": "CONFIG_DRM_ACCEL_HABANALABS",
	"mlx5_ib": "CONFIG_MLX5_INFINIBAND", "mlx4_ib": "CONFIG_MLX4_INFINIBAND", "efa": "CONFIG_INFINIBAND_EFA", "bnxt_re": "CONFIG_INFINIBAND_BNXT_RE",
	"irdma": "CONFIG_INFINIBAND_IRDMA", "mana_ib": "CONFIG_MANA_INFINIBAND", "ionic_rdma": "CONFIG_INFINIBAND_IONIC", "erdma": "CONFIG_INFINIBAND_ERDMA",
}

// builtIn reports a driver that the kernel's configuration, or its list of what
// is built in, says is a part of it.
func (m *Machine) builtIn(module string) bool {
	if option := builtOptions[module]; option != "" && m.config[option] == "y" {
		return true
	}
	for _, dir := range []string{"lib/modules", "usr/lib/modules"} {
		for line := range strings.Lines(m.read(dir, m.Kernel.Release, "modules.builtin").text) {
			if name, ok := strings.CutSuffix(path.Base(strings.TrimSpace(line)), ".ko"); ok && moduleOf(name) == module {
				return true
			}
		}
	}
	return false
}

// moduleOf is the name that a driver's module has in sysfs: vfio-pci is
// vfio_pci there.
func moduleOf(driver string) string { return strings.ReplaceAll(driver, "-", "_") }

// taint are the letters of a module.
func (m *Machine) taint(module string) (string, error) {
	text, err := m.sys.ReadString(path.Join("module", module, "taint"))
	if err == nil && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		err = fmt.Errorf("the taint of %s is %q: %w", module, text, fs.ErrInvalid)
	}
	return text, err
}
