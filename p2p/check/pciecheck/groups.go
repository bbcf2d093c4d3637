// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// groups compares the IOMMU groups of each GPU with those of its NICs. Different groups are no fault: they
// mean that a port on the way can separate the two. There is one finding for each GPU, because a finding
// for each pair would be too many.
func groups(l *check.Look) {
	nics := map[string][]p2p.Pair{} // by GPU
	for _, p := range l.Pairs {
		if p.Real() {
			nics[p.GPU.Name] = append(nics[p.GPU.Name], p)
		}
	}
	if len(nics) == 0 {
		l.Skip("no pair on PCI")
	}
	for _, g := range l.GPUs {
		if len(nics[g.Name]) == 0 {
			continue
		}
		gpu := l.Function(*g.Exporter.PCI)
		own := groupOf(gpu)
		at := own.At()
		var shared, apart, none, far []string
		var bad machine.Reading
		for _, p := range nics[g.Name] {
			nic := l.Function(*p.NIC.Importer.PCI)
			r := groupOf(nic)
			_, _, near := machine.Common(gpu.Upstream, nic.Upstream)
			switch {
			case r.Err != nil:
				bad = r
			case r.Text == "":
				none = append(none, p.NIC.Name)
			case r.Text == own.Text:
				shared = append(shared, p.NIC.Name)
			case near:
				apart = append(apart, p.NIC.Name)
			default:
				far = append(far, p.NIC.Name)
			}
			if (r.Err != nil || r.Text == "") && len(at) < check.ShownFiles {
				at = append(at, r.Where)
			}
		}
		if own.Err != nil {
			bad = own
		}
		switch {
		case bad.Err != nil:
			l.Unread(gpu.Name, bad)
		case own.Text == "" && len(none) == len(nics[g.Name]):
			l.Pass(gpu.Name, own.At(), "no IOMMU")
		case own.Text == "":
			l.Unknown(gpu.Name, at, "the GPU is in no group, and NICs are: whether the IOMMU is on its way is not known")
		case len(none) > 0:
			l.Unknown(gpu.Name, at, "the GPU is in a group, and these NICs are in none: %s", check.Some(none))
		default:
			l.Pass(gpu.Name, at, "%s", companions(l, gpu, shared, apart, far))
		}
	}
}

// groupOf returns the number of a function's IOMMU group as a Reading; its Text is "" if there is none.
func groupOf(f *check.Function) machine.Reading {
	return machine.Reading{Where: "/sys/" + f.Dir + "/iommu_group", Text: f.Group, Err: machine.FirstError(f.Err, f.GroupErr)}
}

// companions says in words which NICs share the GPU's group, and which are in others: apart below a common bridge,
// and far over the root.
func companions(l *check.Look, gpu *check.Function, shared, apart, far []string) string {
	var parts []string
	if len(shared) > 0 {
		parts = append(parts, "one group with "+check.Some(shared))
	}
	if len(apart) > 0 {
		text := "other groups than " + check.Some(apart) + " below a common bridge, where a port can redirect"
		if gpu.IOMMU == "DMA" || gpu.IOMMU == "DMA-FQ" {
			text += ", and most likely does, because the IOMMU translates"
		}
		parts = append(parts, text)
	}
	if len(far) > 0 {
		parts = append(parts, "other groups than "+check.Some(far)+" over the root")
	}
	return strings.Join(parts, "; ")
}
