// SPDX-License-Identifier: Apache-2.0

package product

import (
	"fmt"
	"strings"
)

// Tri is yes, no or unknown. The values are those of placement.Answer.
type Tri int

// The values.
const (
	Unknown Tri = iota
	Yes
	No
)

// String returns "yes", "no" or "unknown".
func (t Tri) String() string {
	switch t {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unknown"
}

// both is yes if a and b are.
func both(a, b Tri) Tri {
	switch {
	case a == No || b == No:
		return No
	case a == Yes && b == Yes:
		return Yes
	}
	return Unknown
}

// either is yes if a or b is.
func either(a, b Tri) Tri {
	switch {
	case a == Yes || b == Yes:
		return Yes
	case a == No && b == No:
		return No
	}
	return Unknown
}

// Size is a number of bytes in a file, if Read is true; otherwise it was not read.
type Size struct {
	Bytes uint64
	Read  bool
}

// String writes the size in MiB.
func (s Size) String() string { return fmt.Sprintf("%d MiB", s.Bytes>>20) }

// Facts are the facts that the caller knows about one GPU. The zero value of a
// field means that it was not read.
type Facts struct {
	Vendor, Device uint16 // PCI ids
	// Driver is the bound kernel driver, "" if none is bound or it was not read.
	Driver string
	// Model is the value of "Model:" in /proc/driver/nvidia/gpus/*/information.
	// NVIDIA's driver takes it from its own table, by device and subsystem id.
	Model     string
	ModelRead bool
	// Firmware is the value of "GPU Firmware:" in the same file.
	Firmware string
	// Series is the first number of the version of NVIDIA's driver.
	Series int
	// OpenModules is whether NVIDIA's kernel modules are the open ones.
	OpenModules Tri
	// Virtual is whether the machine is a guest.
	Virtual Tri
	// VRAM and VisibleVRAM are amdgpu's mem_info_vram_total and
	// mem_info_vis_vram_total.
	VRAM, VisibleVRAM Size
	// BAR is the largest prefetchable BAR.
	BAR Size
	MIG Tri // the GPU has MIG turned on
	SLI Tri // the GPU is one of an SLI group
	// Confidential says whether the GPU is in a mode of confidential computing, or in
	// Ampere Protected Mode. In a guest whose memory is encrypted NVIDIA's driver
	// refuses a GPU that is not in such a mode, and elsewhere it refuses one that is.
	// If it was not read, a GPU that has such a mode gets the answer unknown in a
	// guest, and no limit on a machine that is no guest.
	Confidential Tri
	Encryption   Evidence // the file from which Confidential was read, and its value
	// Integrated is whether the GPU has no memory of its own.
	Integrated Tri
	Arch       string // "amd64", "arm64", "ppc64le"; "" if it is not known
}

// Evidence is a file and what it holds.
type Evidence struct {
	File  string // "*" stands for the PCI address
	Value string
}

// The files that an answer cites.
const (
	fileModel    = "/proc/driver/nvidia/gpus/*/information"
	fileDevice   = "/sys/bus/pci/devices/*/device"
	fileDriver   = "/sys/bus/pci/devices/*/driver"
	fileResource = "/sys/bus/pci/devices/*/resource"
	fileVRAM     = "/sys/bus/pci/devices/*/mem_info_vram_total"
	fileVisible  = "/sys/bus/pci/devices/*/mem_info_vis_vram_total"
	fileVersion  = "/proc/driver/nvidia/version"
	fileCPU      = "/proc/cpuinfo"
)

// Answer says whether a GPU's memory is given to NICs, by which route, and why.
type Answer struct {
	// Gives is yes if DMABuf or PeerMem is yes, no if both are no, and otherwise
	// unknown.
	Gives Tri
	// DMABuf is whether the library exports dma-bufs of the GPU's memory.
	DMABuf Tri
	// PeerMem is whether the vendor's peer-memory client, nvidia-peermem or
	// amdgpu's, registers the GPU's memory.
	PeerMem Tri
	// PCIeMapping is no if an export with CUDA's flag for the PCIe mapping fails on
	// this GPU, and otherwise unknown, because the driver's gate decides.
	PCIeMapping Tri
	// Shared is yes if the GPU's buffers are system memory. A NIC then reaches them
	// as it reaches any system memory, and peer-to-peer is not involved.
	Shared Tri
	// Line is the product line: "GeForce", "data centre", "RTX".
	Line string
	// Why is one sentence, with the value that decided.
	Why string
	// Limits are the routes that this GPU lacks, a sentence each.
	Limits   []string
	Evidence []Evidence
	// Read says how to find out the facts that are unknown.
	Read string
	// Change is the remedy for an answer that is not yes.
	Change string
	// Source is the document, issue or source file of the rule.
	Source string
}

// line is a product line, or another group of GPUs that one rule covers.
type line struct {
	name            string
	dmabuf, peermem Tri
	shared          Tri
	why             string // without the full stop
	read            string
	change          string
	source          string
}

// gives is the answer for the line before any limit.
func (l *line) gives() Tri { return either(l.dmabuf, l.peermem) }

// answer is the line's, decided by the given evidence.
func (l *line) answer(by ...Evidence) Answer {
	return Answer{
		DMABuf: l.dmabuf, PeerMem: l.peermem, Shared: l.shared, Line: l.name,
		Why: l.why + values(by), Evidence: by, Read: l.read, Change: l.change, Source: l.source,
	}
}

// values writes evidence behind a sentence.
func values(by []Evidence) string {
	var said []string
	for _, e := range by {
		said = append(said, e.Value)
	}
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, ", ") + ")"
}

// limit takes routes away from an answer. Yes leaves a route as it is.
type limit struct {
	dmabuf, peermem Tri
	why             string
	read            string
	change          string
	source          string
	by              []Evidence
}

// limited applies a limit. The limit becomes the reason if it changes the answer.
func (a Answer) limited(l limit) Answer {
	before := either(a.DMABuf, a.PeerMem)
	dmabuf, peermem := both(a.DMABuf, l.dmabuf), both(a.PeerMem, l.peermem)
	if dmabuf == a.DMABuf && peermem == a.PeerMem {
		return a
	}
	a.DMABuf, a.PeerMem = dmabuf, peermem
	why := l.why + values(l.by)
	a.Limits = append(a.Limits, why)
	a.Evidence = append(a.Evidence, l.by...)
	if either(dmabuf, peermem) != before {
		a.Why, a.Read, a.Change, a.Source = why, l.read, l.change, l.source
	}
	return a
}

// The PCI ids of the vendors.
const (
	vendorAMD    = 0x1002
	vendorNVIDIA = 0x10de
	vendorIntel  = 0x8086
)

// Of returns the answer for one GPU. Without a rule for it the answers are Unknown.
func Of(f Facts) Answer {
	a := decide(f)
	a.Gives = either(a.DMABuf, a.PeerMem)
	return a
}

func decide(f Facts) Answer {
	if l := drivers[f.Driver]; l != nil {
		return l.answer(Evidence{fileDriver, f.Driver})
	}
	switch {
	case f.Vendor == vendorNVIDIA || f.Vendor == 0 && f.ModelRead:
		return nvidia(f)
	case f.Vendor == vendorAMD:
		return amd(f)
	case f.Vendor == vendorIntel:
		return intel(f)
	}
	return unlisted.answer(f.device(), Evidence{fileDriver, "driver " + or(f.Driver, "not read")})
}

// unlisted is a device of a vendor that has no table.
var unlisted = &line{
	name: "not listed", why: "the tables list neither this device nor its driver",
	read:   "export and register a buffer, and prove with a transfer that the NIC reaches it",
	source: "p2p/product: no row",
}

// device is the PCI id as evidence.
func (f Facts) device() Evidence {
	return Evidence{fileDevice, fmt.Sprintf("%04x:%04x", f.Vendor, f.Device)}
}

// or is s, or what if s is empty.
func or(s, what string) string {
	if s == "" {
		return what
	}
	return s
}
