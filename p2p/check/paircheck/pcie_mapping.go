// SPDX-License-Identifier: Apache-2.0

package paircheck

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// The series of NVIDIA's driver that have the PCIe mapping, and the last one in which a parameter
// skips its comparison of IOMMU groups (nv-dmabuf.c, nv-pci.c).
const (
	mappingSince    = 570
	refusedSince    = 580 // from here on attach returns errno 524; older drivers map nothing
	overriddenUntil = 590
)

// overriding is the name of that parameter in /proc/driver/nvidia/params.
const overriding = "GrdmaPciTopoCheckOverride"

// apart has the NICs of a coherent GPU that are in other IOMMU groups than the GPU.
type apart struct {
	gpu   string
	group machine.Reading
	nics  []string
}

func forcePCIe(l *check.Look) {
	any := false
	var gpus []*apart
	for _, p := range l.Pairs {
		coherent := placement.No
		switch {
		case p.GPU.Exporter.Class == drivers.ClassNVIDIACoherent:
			coherent = placement.Yes
		case p.GPU.Exporter.Driver == "nvidia":
			coherent = check.Coherent(l)
		}
		if coherent == placement.No || p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil || p.NIC.Software {
			continue
		}
		any = true
		if coherent == placement.AnswerUnknown {
			l.Unknown(p.GPU.Name, []string{"/proc/cpuinfo"}, "whether the processor caches the GPU's memory is not known")
			continue
		}
		one, g, n := check.OneGroup(l, *p.GPU.Exporter.PCI, *p.NIC.Importer.PCI)
		at := append(g.At(), n.At()...)
		switch {
		case one == placement.AnswerUnknown:
			l.Unknown(p.Name(), at, "%v", errors.Join(g.Err, n.Err))
		case one == placement.Yes && g.Gone():
			l.Pass(p.Name(), at, "both in none: there is no IOMMU")
		case one == placement.Yes:
			l.Pass(p.Name(), at, "both in group %s", check.Base(g.Text))
		default:
			if n := len(gpus); n == 0 || gpus[n-1].gpu != p.GPU.Name {
				gpus = append(gpus, &apart{gpu: p.GPU.Name, group: g})
			}
			of := gpus[len(gpus)-1]
			of.nics = append(of.nics, fmt.Sprintf("%s (%s%s)", p.NIC.Name, cmp.Or(check.Base(n.Text), "none"), dataDirect(l, p)))
		}
	}
	for _, g := range gpus { // one finding for each GPU
		g.say(l)
	}
	if !any {
		l.Skip("no GPU whose memory the CPU caches")
	}
}

// dataDirect returns a text that says that the NIC's DMA function is in the GPU's group; "" if it is not. With
// mlx5's Data Direct flag the DMA function registers the memory in place of the NIC.
func dataDirect(l *check.Look, p p2p.Pair) string {
	dma, ok := p2p.DMAFunction(l.Machine, p.NIC.Importer)
	if !ok {
		return ""
	}
	if one, g, _ := check.OneGroup(l, *p.GPU.Exporter.PCI, dma); one != placement.Yes || g.Gone() {
		return ""
	}
	return fmt.Sprintf("; not with Data Direct: its DMA function %v is in the GPU's", dma)
}

// say adds the finding, which is a warning at most: the driver refuses only exports with the flag. Without the flag
// it lets all NICs attach, and they reach the memory over C2C.
func (g *apart) say(l *check.Look) {
	series := drivers.NVIDIASeries(l.Machine)
	params := l.Read("proc/driver/nvidia/params")
	override, _ := params.Line(overriding)
	at := append(g.group.At(), params.Where)
	read := fmt.Sprintf("the GPU is in group %s, and these NICs are in others: %s", cmp.Or(check.Base(g.group.Text), "none"), strings.Join(g.nics, ", "))
	const without, prove = "for these NICs export without that flag: they then reach the memory over C2C", "the hardware may not route the traffic: prove it before you rely on it"
	const parameter = "options nvidia NVreg_" + overriding + "=1"
	switch {
	case series > 0 && series < mappingSince:
		l.Pass(g.gpu, at, "%s; driver %d has no PCIe mapping", read, series).Expect = ""
	case series > overriddenUntil:
		l.Warn(g.gpu, at, "%s: an export with the flag for the PCIe mapping is refused with ENOTSUPP (524), and %s does not change that from 595 on", read, overriding).
			Fix(without+"; or stay on driver 580 or 590 with NVreg_"+overriding+"=1", "", "")
	case series >= mappingSince && override != "" && override != "0" && (series < refusedSince || override == "1"):
		l.Pass(g.gpu, at, "%s; %s: %s lets the PCIe mapping through all the same", read, overriding, override).Expect = ""
	case series == 0:
		l.Warn(g.gpu, at, "%s: an export with the flag for the PCIe mapping is refused with ENOTSUPP (524)", read).
			Fix(without+"; or let the driver skip the comparison, as it can up to 590", parameter, prove)
	case series < refusedSince:
		l.Warn(g.gpu, at, "%s: of an export with the flag for the PCIe mapping driver %d maps nothing, where later ones answer ENOTSUPP (524)", read, series).
			Fix(without+"; or let the driver skip the comparison", parameter, prove)
	default:
		l.Warn(g.gpu, at, "%s: an export with the flag for the PCIe mapping is refused with ENOTSUPP (524)", read).
			Fix(without+"; or let the driver skip the comparison", parameter, prove)
	}
}
