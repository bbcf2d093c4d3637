// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/softgpu"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/placement"
)

// Outcome is what becomes of an import.
type Outcome int

// The outcomes.
const (
	OutcomeUnknown Outcome = iota
	Direct                 // the importer gets addresses of the device's memory
	Staged                 // it gets system memory, and nobody says so
	Refused                // it gets an errno
)

func (o Outcome) String() string {
	switch o {
	case OutcomeUnknown:
		return "unknown"
	case Direct:
		return "direct"
	case Staged:
		return "staged"
	case Refused:
		return "refused"
	}
	return fmt.Sprintf("invalid (%d)", int(o))
}

// Stage is what refuses, by the names of ibvfd's stages.
type Stage string

// The stages. Up to 6.12 a static exporter is asked to map inside attach: a
// refusal to map then comes from there, and is still one of StageMap.
const (
	StageUverbs Stage = "uverbs" // before dma-buf is asked
	StageAttach Stage = "attach"
	StageMap    Stage = "map"
	StageDriver Stage = "driver" // the NIC's own, after it has got addresses
)

// Address is what kind of addresses the importer gets.
type Address int

// The kinds. Bus and physical addresses are equal numbers on most machines,
// but not the same promise: a bus address goes past an IOMMU.
const (
	AddressUnknown Address = iota
	AddressBus
	AddressPhysical
	AddressIOVA
)

func (a Address) String() string {
	switch a {
	case AddressUnknown:
		return "unknown"
	case AddressBus:
		return "bus address"
	case AddressPhysical:
		return "physical address"
	case AddressIOVA:
		return "IOVA"
	}
	return fmt.Sprintf("invalid (%d)", int(a))
}

// Prediction is what is going to happen when an importer attaches to a buffer
// in a GPU's memory, pins it if it does so, and maps it.
type Prediction struct {
	Outcome Outcome
	Errno   unix.Errno // of Refused
	Stage   Stage      // of Refused
	// Address is the kind of addresses that Direct and Staged come with.
	Address  Address
	Decision p2pdma.Decision
	// Why is the chain of reasons, the conclusion last.
	Why []string
	// Notes do not decide, and matter.
	Notes []string
}

// String says outcome and reasons:
//
//	staged: ACS redirect at 0000:02:00.0 (request redirect); …; amdgpu moves the buffer to system memory
func (p Prediction) String() string {
	outcome := p.Outcome.String()
	if p.Outcome == Refused {
		outcome += " with " + errno.Name(p.Errno) + " by " + string(p.Stage)
	}
	return outcome + ": " + strings.Join(p.Why, "; ")
}

// Predict says what becomes of an import by an importer that is alone on its
// buffer. Of one whose kind is not known it says what is true of all kinds.
func Predict(m *machine.Machine, e Exporter, i Importer) Prediction {
	if i.Kind != KindUnknown {
		return predict(m, e, i)
	}
	var first Prediction
	for n, kind := range []Kind{Pinned, Revocable, Dynamic} {
		i.Kind = kind
		p := predict(m, e, i)
		switch {
		case n == 0:
			first = p
		case p.Outcome != first.Outcome || p.Errno != first.Errno || p.Stage != first.Stage:
			return Prediction{Decision: p.Decision, Why: []string{fmt.Sprintf(
				"the importer's kind is not known: of a %v one %v; of a %v one %v", Pinned, first, kind, p)}}
		}
	}
	if first.Outcome == Direct && i.OutOfTree && i.PeerToPeer && i.Driver != alwaysPeer {
		host := i
		host.PeerToPeer = false
		if p := predict(m, e, host); p.Outcome != Direct {
			first.Outcome, first.Address = OutcomeUnknown, AddressUnknown
			first.Why = append(first.Why, fmt.Sprintf("the driver of the NIC may not be the kernel's own, and whether it wants peer-to-peer is not known: without that %v", p.Outcome))
		}
	}
	if first.Outcome == Direct && !i.Imports {
		first.Outcome, first.Address = OutcomeUnknown, AddressUnknown
		first.Why = append(first.Why, fmt.Sprintf("whether %s imports dma-bufs at all is not known", i.DriverName()))
	}
	return first
}

// alwaysPeer wants peer-to-peer: the kernel's own since it imports dma-bufs, and
// MLNX_OFED's in the copy of its mr.c that was read.
const alwaysPeer = "mlx5_core"

func predict(m *machine.Machine, e Exporter, i Importer) Prediction {
	r := rules{m: m, e: e, i: i}
	if e.Class == ClassSystem || e.PCI == nil {
		r.p.Decision = p2pdma.Decision{Type: p2pdma.MapNone, Supported: placement.No, Steps: -1, Why: []string{"the memory is no PCI device's"}}
	} else {
		r.p.Decision = p2pdma.Decide(m, *e.PCI, i.PCI)
		r.p.Notes = append(r.p.Notes, r.p.Decision.Notes...)
	}
	switch {
	case m.Config != nil && m.Config.Answer(machine.ConfigDMABuf) == placement.No:
		r.because("the kernel is built without %s (%s): there is nothing to import", machine.ConfigDMABuf, m.Kernel.Source)
	case RegistersNone(m):
		r.refuse(unix.EPROTONOSUPPORT, StageUverbs, "%s does not know how to register a dma-buf, which came with %v", m.Kernel.Release, machine.V5_12)
	case i.Kind == NoImporter && i.NoODP:
		r.refuse(unix.EOPNOTSUPP, StageUverbs, "the kernel is built without %s (%s), and mlx5 then imports no dma-bufs", machine.ConfigODP, m.Kernel.Source)
	case i.Kind == NoImporter:
		r.refuse(unix.EOPNOTSUPP, StageUverbs, "%s of %s imports no dma-bufs", i.DriverName(), m.Kernel.Release)
	case e.Class == ClassSystem:
		r.stage("the exporter has system memory only")
	case r.silent():
	case e.OutOfTree && e.Class == ClassUnknown && e.Driver == "":
		r.because("no driver is bound to the GPU")
	case e.Driver == UnknownDriver:
		r.because("which driver the GPU has is not known")
	case e.Proprietary:
		r.because("%q is NVIDIA's proprietary module, which exports no dma-bufs: there is nothing to register", e.Driver)
	case e.OutOfTree && e.Class != ClassNVIDIA && e.Class != ClassNVIDIACoherent:
		r.because("%q may not be the kernel's own driver, and has rules of its own", e.Driver)
	case e.Class == ClassI915:
		r.i915()
	case e.Class == ClassStaged:
		r.stage("%s: %s", e.Driver, NoExporters[e.Driver])
	case e.Class == ClassNVIDIACoherent:
		if r.e.Withheld != "" {
			r.because("%s", r.e.Withheld)
			break
		}
		r.because("GPU memory with pages is mapped as system memory is, for any importer")
		r.direct(false)
	case e.Class != ClassUnknown:
		r.peer()
	default:
		r.because("how the driver %q exports is not known", e.Driver)
	}
	r.copied()
	if r.p.Outcome == Direct && m.Virtual.Is == placement.Yes && i.PCI != nil {
		r.note("%s: what the host's ports do to the traffic is not seen from here", machine.InventedTree)
	}
	return r.p
}

// copied is for an importer that has mapped the buffer, and now wants it in the
// kernel's own address space.
func (r *rules) copied() {
	noVmap := r.e.Class == ClassNVIDIA || r.e.Class == ClassNVIDIACoherent || r.e.Class == ClassVFIO
	if r.p.Outcome == Direct && r.i.ByCPU && noVmap {
		r.p.Address = AddressUnknown
		r.refuse(unix.EOPNOTSUPP, StageDriver, "the importer moves data by the CPU, and %v has no vmap for it", r.e.Class)
	}
}

// rules is one prediction in the making.
type rules struct {
	m *machine.Machine
	e Exporter
	i Importer
	p Prediction
}

func (r *rules) because(format string, args ...any) {
	r.p.Why = append(r.p.Why, fmt.Sprintf(format, args...))
}

func (r *rules) note(format string, args ...any) {
	r.p.Notes = append(r.p.Notes, fmt.Sprintf(format, args...))
}

func (r *rules) refuse(e unix.Errno, s Stage, format string, args ...any) {
	r.p.Outcome, r.p.Errno, r.p.Stage = Refused, e, s
	r.because(format, args...)
}

// stage concludes with system memory.
func (r *rules) stage(format string, args ...any) {
	r.p.Outcome = Staged
	r.because(format, args...)
	r.p.Address = r.mapped()
}

// direct concludes with the device's memory. bus: the exporter takes the short
// way past the IOMMU where the decision allows it.
func (r *rules) direct(bus bool) {
	r.p.Outcome = Direct
	switch {
	case !bus || r.p.Decision.Type == p2pdma.MapThroughHostBridge:
		r.p.Address = r.mapped()
	case r.p.Decision.Type == p2pdma.MapBusAddress:
		r.p.Address = AddressBus
	}
}

// mapped is what the DMA API answers for the importer.
func (r *rules) mapped() Address {
	t, why := r.m.TranslationOf(r.i.PCI)
	switch t {
	case machine.Translated:
		return AddressIOVA
	case machine.Untranslated:
		return AddressPhysical
	}
	r.note("%s", why)
	return AddressUnknown
}

// silent gives up on a function that is not there any more: its driver may still
// be bound.
func (r *rules) silent() bool {
	for _, a := range []*machine.Addr{r.e.PCI, r.i.PCI} {
		if a != nil && r.m.Silent(*a) {
			r.because("%v does not answer: its configuration space reads as ones", *a)
			return true
		}
	}
	return false
}

// i915 is i915_gem_dmabuf_attach().
func (r *rules) i915() {
	if r.e.VRAMOnly {
		r.refuse(unix.EOPNOTSUPP, StageAttach, "i915 moves a buffer to system memory for any importer, and this one may not go there")
		return
	}
	r.stage("i915 moves a buffer to system memory for any importer")
}

// peer is for exporters that may give out addresses of their BAR.
func (r *rules) peer() {
	if r.e.PCI == nil {
		r.because("the function whose memory it is is not known")
		return
	}
	switch r.e.Class {
	case ClassNVIDIA:
		r.nvidia()
	case ClassVFIO:
		r.vfio()
	case ClassHabana:
		r.habana()
	default:
		r.ttm()
	}
	if r.p.Outcome == Direct {
		r.reach()
	}
}

// ttm is amdgpu and xe: the attach op takes peer-to-peer away, and pin and map
// then go to system memory.
func (r *rules) ttm() {
	allowed := placement.No
	switch {
	case r.i.Kind == Static:
		r.because("a static importer is never peer to peer")
	case !r.i.PeerToPeer:
		r.because("the importer does not want peer-to-peer")
	default:
		r.p.Why = append(r.p.Why, r.p.Decision.Why...)
		allowed = r.awake(r.p.Decision.Supported)
	}
	if allowed == placement.No {
		if r.e.Class == ClassXe && r.e.VRAMOnly {
			r.refuse(unix.EOPNOTSUPP, StageAttach, "xe cannot move the buffer to system memory, since it may be in VRAM only")
			return
		}
		r.stage("%v moves the buffer to system memory, and reports success", r.e.Class)
		return
	}
	inSystem := r.pinnedInSystem()
	switch {
	case inSystem == placement.Yes && r.e.VRAMOnly:
		r.because("the buffer may be in VRAM only: what the driver makes of that when it pins was not read")
	case inSystem == placement.Yes:
		r.stage("%v pins in system memory, and reports success", r.e.Class)
	case allowed == placement.Yes && inSystem == placement.No:
		r.direct(false)
	}
}

// awake gives up where amdgpu's attach may find the GPU asleep.
func (r *rules) awake(allowed placement.Answer) placement.Answer {
	if allowed != placement.Yes || r.e.Class != ClassAMDGPU || r.e.Power == machine.PowerAwake {
		return allowed
	}
	state := "the GPU is suspended"
	if r.e.Power == machine.PowerUnknown {
		state = "whether the GPU is suspended could not be read"
	}
	r.because("%s: if it is when the importer attaches, newer drivers allow no peer-to-peer", state)
	return placement.AnswerUnknown
}

// pinnedInSystem is whether somebody pins, and the driver then chooses system
// memory although the importer is peer to peer.
func (r *rules) pinnedInSystem() placement.Answer {
	k := r.m.Kernel
	if r.i.Kind == Dynamic {
		switch k.MoveNotify {
		case placement.Yes:
			return placement.No
		case placement.No:
			r.because("without %s the kernel pins for a dynamic importer, too", machine.ConfigMoveNotify)
		}
	} else {
		r.because("a %v importer pins", r.i.Kind)
	}
	inVRAM := placement.AnswerUnknown
	switch r.e.Pin {
	case PinByKernel:
		inVRAM = k.Between(machine.V6_12, machine.V7_2)
	case PinInVRAM:
		inVRAM = placement.Yes
	case PinInSystem:
		inVRAM = placement.No
	}
	switch {
	case inVRAM == placement.Yes:
		return placement.No
	case r.i.Kind == Dynamic && k.MoveNotify == placement.AnswerUnknown:
		why := k.Source
		if r.m.Config != nil {
			why = fmt.Sprintf("%s does not have the line, and %s was not read", k.Source, k.Release)
		}
		r.because("whether the kernel has %s, without which it pins for a dynamic importer, is not known: %s", machine.ConfigMoveNotify, why)
		return placement.AnswerUnknown
	case inVRAM == placement.AnswerUnknown:
		r.because("where this driver pins is not known")
		return placement.AnswerUnknown
	}
	return placement.Yes
}

// nvidia is nv_dma_buf_attach().
func (r *rules) nvidia() {
	if r.e.Withheld != "" {
		r.because("%s", r.e.Withheld)
		return
	}
	// A static importer, which asked for no callbacks, is not looked at.
	if r.i.Kind != Static && !r.i.PeerToPeer && !r.withoutPages() {
		return
	}
	switch {
	case r.e.Gate == GateOpen:
		r.because("the driver lets any importer attach")
	case r.e.Gate == GateUnread:
		r.because("which importers this version of the driver lets attach was not read")
		return
	case r.e.Gate == GateClosed:
		r.refuse(errno.ENOTSUPP, StageAttach, "the driver's gate is closed by a parameter (GrdmaPciTopoCheckOverride: 2)")
		return
	case r.i.PCI == nil && r.e.Gate == GateUnknown:
		r.because("whether the driver's gate asks for a common bridge is not known, and the importer is on no PCI bus")
		return
	case r.i.PCI == nil:
		r.refuse(errno.ENOTSUPP, StageAttach, "the importer is on no PCI bus, and the driver's gate asks for a common bridge")
		return
	default:
		if !r.gateBridge() {
			return
		}
	}
	if r.unmapped() {
		return
	}
	r.direct(false)
	if d := r.p.Decision; d.Supported != placement.Yes {
		r.note("the driver does not ask the kernel, which says %v: the hardware may not route it", d)
	}
}

// withoutPages is what NVIDIA's driver makes of an importer that does not want
// peer-to-peer. Of its own memory only Grace's has pages.
func (r *rules) withoutPages() (passes bool) {
	const importer = "the importer does not want peer-to-peer"
	switch {
	case r.e.Peer == PeerUnread:
		r.because("%s, and what this version of the driver makes of that was not read", importer)
	case !r.m.CPU.Known || r.m.CPU.Vendor == "":
		r.because("%s, which the driver accepts for memory with pages only: whether this GPU's has them is not known", importer)
	case r.e.Peer == PeerAtAttach:
		r.refuse(errno.ENOTSUPP, StageAttach, "%s, and the driver lets only those attach that do", importer)
	case r.m.Kernel.Between(machine.V6_12, machine.V7_2) == placement.No, r.e.Driver == softgpu.Module:
		r.refuse(unix.ENOMEM, StageMap, "%s, and the driver then maps nothing, which is inside attach up to %v", importer, machine.V6_12)
	default:
		// It asks by a function that newer kernels keep to themselves.
		r.because("%s, and whether the driver then maps anything is not known of this version with %s", importer, r.m.Kernel.Release)
	}
	return false
}

// unmapped gives up where NVIDIA's driver is told to hand out addresses that an
// IOMMU may not know.
func (r *rules) unmapped() bool {
	if r.e.Driver != "nvidia" {
		return false // the software GPU maps always
	}
	params := r.m.Read("proc/driver/nvidia/params")
	remap, _ := params.Line("DmaRemapPeerMmio")
	t, why := r.m.TranslationOf(r.i.PCI)
	switch {
	case t == machine.Untranslated || remap == RemapOn:
		return false
	case remap == RemapOff:
		r.because("%s, and the driver maps nothing in it (DmaRemapPeerMmio: 0)", why)
	case params.Err != nil:
		r.because("%s, and whether the driver maps its memory in it is not known: %s: %s", why, params.Where, params.Why())
	default:
		r.because("%s, and whether the driver maps its memory in it is not known: DmaRemapPeerMmio is %q", why, remap)
	}
	return true
}

// gateBridge looks for a bridge above both.
func (r *rules) gateBridge() (passes bool) {
	gpu, nic := r.m.Node(*r.e.PCI), r.m.Node(*r.i.PCI)
	for _, n := range []*machine.Node{gpu, nic} {
		if n.Err != nil {
			r.because("%v", n.Err)
			return false
		}
	}
	for _, x := range gpu.Up {
		if slices.Contains(nic.Up, x) {
			r.because("both are below the bridge %v, which the driver's gate asks for", x)
			return true
		}
	}
	if r.e.Gate == GateUnknown {
		r.because("no bridge is above both, and whether the driver's gate asks for one is not known")
	} else {
		r.refuse(errno.ENOTSUPP, StageAttach, "no bridge is above both, and the driver's gate asks for one")
	}
	return false
}

// vfioExports is the series from which on dma_buf_attach_revocable() is there
// to be asked.
var vfioExports = machine.V7_2

// vfio is vfio_pci_dma_buf_attach() and dma_buf_phys_vec_to_sgt().
func (r *rules) vfio() {
	if !r.i.PeerToPeer || r.i.Kind == Static {
		r.refuse(unix.EOPNOTSUPP, StageAttach, "vfio-pci exports to importers that are peer to peer, and this one is not")
		return
	}
	k := r.m.Kernel
	knows := k.Between(machine.V6_12, vfioExports)
	if r.i.Kind == Pinned && knows == placement.Yes {
		r.refuse(unix.EOPNOTSUPP, StageAttach, "vfio-pci exports to importers that can be told to stop, and one that pins for good cannot")
		return
	}
	d := r.p.Decision
	r.p.Why = append(r.p.Why, d.Why...)
	switch {
	case d.Supported == placement.No && knows == placement.No:
		r.refuse(unix.EINVAL, StageMap, "an exporter that asks when it maps is asked inside attach, up to %v", machine.V6_12)
	case d.Supported == placement.No && knows == placement.Yes:
		r.refuse(unix.EINVAL, StageMap, "vfio-pci does not map what the kernel does not support")
	case knows != placement.Yes:
		r.because("what vfio-pci does on %s was not read", k.Release)
	case d.Supported == placement.Yes:
		r.direct(true)
		r.note("the kernel keeps its decision for %v until the exporter's driver is bound anew, even if ACS changes meanwhile", *r.i.PCI)
	}
}

// habana is hl_dmabuf_attach() and hl_map_dmabuf(): the first asks the kernel, the
// second refuses. They were read from 6.12 on.
func (r *rules) habana() {
	k, d := r.m.Kernel, r.p.Decision
	switch {
	case !k.Version.Known() || k.Version.Cmp(machine.V6_12) < 0:
		r.because("what habanalabs does on %s was not read", k.Release)
		return
	case r.i.Kind == Static || !r.i.PeerToPeer:
		r.refuse(unix.EPERM, StageMap, "habanalabs maps for importers that are peer to peer, and this one is not")
		return
	}
	r.p.Why = append(r.p.Why, d.Why...)
	switch d.Supported {
	case placement.No:
		r.refuse(unix.EPERM, StageMap, "habanalabs does not map what the kernel does not support")
	case placement.Yes:
		r.direct(false)
	}
}

// reach adds what may come between the importer and addresses that it got.
func (r *rules) reach() {
	switch unplaced, err := pci.Unplaced(r.m.Sys, *r.e.PCI); {
	case unplaced:
		r.p.Outcome, r.p.Address = OutcomeUnknown, AddressUnknown
		r.because("the GPU's BAR has no address: see PCIE-BAR-ASSIGNED")
		return
	case err != nil && !errors.Is(err, fs.ErrNotExist): // copies of some kinds have no such files
		r.p.Outcome, r.p.Address = OutcomeUnknown, AddressUnknown
		r.because("whether the GPU's BAR has an address is not known: %v", err)
		return
	}
	if r.i.PCI == nil {
		return
	}
	if r.p.Decision.Type == p2pdma.MapBusAddress && r.p.Address == AddressIOVA {
		r.note("the kernel allows the short way, but an IOVA is translated at the root: the traffic goes there and back (iommu=pt avoids that)")
	}
	bar, ok := pci.LargestBAR(r.m.Sys, *r.e.PCI)
	bits, err := r.m.Sys.ReadUint("bus/pci/devices/"+r.i.PCI.String()+"/dma_mask_bits", 64)
	if r.p.Address == AddressIOVA {
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.p.Outcome, r.p.Address = OutcomeUnknown, AddressUnknown
		r.because("how many address bits %v has is not known: %v", *r.i.PCI, err)
		return
	}
	if !ok || err != nil || bits >= 64 {
		return
	}
	if last := bar.Start + bar.Size - 1; last>>bits != 0 {
		r.p.Outcome, r.p.Address = OutcomeUnknown, AddressUnknown
		r.because("the BAR ends at %#x, beyond the %d address bits of %v", last, bits, *r.i.PCI)
	}
}
