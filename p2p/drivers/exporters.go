// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// ttm has the rules of amdgpu and xe: the attach op removes peer-to-peer, and pin and map
// then use system memory.
func (r *rules) ttm() (attach, decision chain.Answer) {
	d := r.p.Decision
	switch {
	case r.i.Kind == Static:
		return r.moved("a static importer is never peer to peer"), chain.Skip("")
	case !r.i.PeerToPeer:
		return r.moved("the importer does not want peer-to-peer"), chain.Skip("")
	case d.Supported == placement.No:
		return chain.Skip(""), r.moved(d.Why...)
	case d.Supported == placement.Yes:
		decision = reasons(chain.Hold, d.Why)
	default:
		decision = reasons(chain.Open, d.Why)
	}
	inSystem, why := r.pinnedInSystem()
	asleep := r.asleep()
	switch {
	case inSystem == placement.Yes && r.e.VRAMOnly:
		attach = chain.Open("the buffer may be in VRAM only: the code by which the driver pins such a buffer was not read")
	case inSystem == placement.Yes:
		attach = chain.Break(chain.Staged, "%v pins in system memory, and reports success", r.e.Class)
	case decision.State == chain.Holds && asleep != "":
		return chain.Open("%s: if it is when the importer attaches, newer drivers allow no peer-to-peer", asleep).
			With("/sys/bus/pci/devices/"+r.e.PCI.String()+"/power/runtime_status", ""), decision
	case inSystem == placement.AnswerUnknown:
		attach = chain.Answer{}
	default:
		attach = chain.Answer{State: chain.Holds}
	}
	attach.Why = append(why, attach.Why...)
	return attach, decision
}

// reasons makes an answer with the reasons of the kernel's decision.
func reasons(of func(string, ...any) chain.Answer, why []string) chain.Answer {
	a := of("")
	a.Why = why
	return a
}

// moved is the answer for a buffer whose exporter removes peer-to-peer.
func (r *rules) moved(why ...string) chain.Answer {
	a := chain.Break(chain.Staged, "%v moves the buffer to system memory, and reports success", r.e.Class)
	if r.e.Class == ClassXe && r.e.VRAMOnly {
		a = chain.Refuse(unix.EOPNOTSUPP, chain.StageAttach, "xe cannot move the buffer to system memory, since it may be in VRAM only")
	}
	a.Why = append(why[:len(why):len(why)], a.Why...)
	return a
}

// asleep is the reason why the GPU may be suspended at amdgpu's attach; "" if it is not.
func (r *rules) asleep() string {
	if r.e.Class != ClassAMDGPU || r.e.Power == machine.PowerAwake {
		return ""
	}
	if r.e.Power == machine.PowerUnknown {
		return "whether the GPU is suspended could not be read"
	}
	return "the GPU is suspended"
}

// pinnedInSystem says whether the driver pins in system memory, although the importer is peer to
// peer: the importer or the kernel pins the buffer, and the driver chooses system memory.
func (r *rules) pinnedInSystem() (_ placement.Answer, why []string) {
	k := r.m.Kernel
	if r.i.Kind == Dynamic {
		switch k.MoveNotify {
		case placement.Yes:
			return placement.No, nil
		case placement.No:
			why = append(why, fmt.Sprintf("without %s the kernel pins for a dynamic importer, too", machine.ConfigMoveNotify))
		}
	} else {
		why = append(why, fmt.Sprintf("a %v importer pins", r.i.Kind))
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
		return placement.No, why
	case r.i.Kind == Dynamic && k.MoveNotify == placement.AnswerUnknown:
		source := k.Source
		if r.m.Config != nil {
			source = fmt.Sprintf("%s does not have the line, and %s was not read", k.Source, k.Release)
		}
		return placement.AnswerUnknown, append(why, fmt.Sprintf("whether the kernel has %s, without which it pins for a dynamic importer, is not known: %s", machine.ConfigMoveNotify, source))
	case inVRAM == placement.AnswerUnknown:
		return placement.AnswerUnknown, append(why, "where this driver pins is not known")
	}
	return placement.Yes, why
}

// vfioExports is the first series with dma_buf_attach_revocable(), which vfio-pci calls.
var vfioExports = machine.V7_2

// vfio has the rules of vfio_pci_dma_buf_attach() and dma_buf_phys_vec_to_sgt().
func (r *rules) vfio() (attach, decision chain.Answer) {
	k, d := r.m.Kernel, r.p.Decision
	knows := k.Between(machine.V6_12, vfioExports)
	switch {
	case !r.i.PeerToPeer || r.i.Kind == Static:
		return chain.Refuse(unix.EOPNOTSUPP, chain.StageAttach, "vfio-pci exports to importers that are peer to peer, and this one is not"), chain.Skip("")
	case r.i.Kind == Pinned && knows == placement.Yes:
		return chain.Refuse(unix.EOPNOTSUPP, chain.StageAttach, "vfio-pci exports only to importers that can revoke a registration, and this one pins for good"), chain.Skip("")
	case d.Supported == placement.No && knows == placement.No:
		decision = chain.Refuse(unix.EINVAL, chain.StageMap, "the exporter asks when it maps, and up to %v attach maps the buffer", machine.V6_12)
		decision.Why = append(d.Why[:len(d.Why):len(d.Why)], decision.Why...)
		return chain.Skip(""), decision
	case knows != placement.Yes:
		return chain.Open("what vfio-pci does on %s was not read", k.Release), reasons(chain.Open, d.Why)
	case d.Supported == placement.No:
		decision = chain.Refuse(unix.EINVAL, chain.StageMap, "vfio-pci does not map what the kernel does not support")
		decision.Why = append(d.Why[:len(d.Why):len(d.Why)], decision.Why...)
		return chain.Hold(""), decision
	case d.Supported == placement.AnswerUnknown:
		return chain.Hold(""), reasons(chain.Open, d.Why)
	}
	r.note("the kernel keeps its decision for %v until the exporter's driver is bound anew, even if ACS changes meanwhile", *r.i.PCI)
	return chain.Hold(""), reasons(chain.Hold, d.Why)
}

// habana has the rules of hl_dmabuf_attach(), which asks the kernel, and hl_map_dmabuf(), which
// refuses. They were read from 6.12 on.
func (r *rules) habana() (attach, decision chain.Answer) {
	k, d := r.m.Kernel, r.p.Decision
	switch {
	case !k.Version.Known() || k.Version.Cmp(machine.V6_12) < 0:
		return chain.Open("what habanalabs does on %s was not read", k.Release), chain.Skip("")
	case r.i.Kind == Static || !r.i.PeerToPeer:
		return chain.Refuse(unix.EPERM, chain.StageMap, "habanalabs maps for importers that are peer to peer, and this one is not"), chain.Skip("")
	case d.Supported == placement.No:
		decision = chain.Refuse(unix.EPERM, chain.StageMap, "habanalabs does not map what the kernel does not support")
		decision.Why = append(d.Why[:len(d.Why):len(d.Why)], decision.Why...)
		return chain.Hold(""), decision
	case d.Supported == placement.AnswerUnknown:
		return chain.Hold(""), reasons(chain.Open, d.Why)
	}
	return chain.Hold(""), reasons(chain.Hold, d.Why)
}

func (r *rules) note(format string, args ...any) {
	r.p.Notes = append(r.p.Notes, fmt.Sprintf(format, args...))
}
