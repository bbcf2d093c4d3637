// SPDX-License-Identifier: Apache-2.0

package p2p

import "strings"

// groups compares the groups of each GPU's pairs. Another group is no fault: it
// says that something on the way can keep the two apart. One finding a GPU, for
// there are as many pairs as GPUs times NICs.
func (l *look) groups() {
	nics := map[string][]Pair{} // by GPU
	for _, p := range l.pairs {
		if p.real() {
			nics[p.GPU.Name] = append(nics[p.GPU.Name], p)
		}
	}
	if len(nics) == 0 {
		l.skip("no pair on PCI")
	}
	for _, g := range l.gpus {
		if len(nics[g.Name]) == 0 {
			continue
		}
		gpu := l.function(*g.Exporter.PCI)
		own := groupOf(gpu)
		at := own.at()
		var shared, apart, none, far []string
		var bad reading
		for _, p := range nics[g.Name] {
			nic := l.function(*p.NIC.Importer.PCI)
			r := groupOf(nic)
			_, _, near := common(gpu.Upstream, nic.Upstream)
			switch {
			case r.err != nil:
				bad = r
			case r.text == "":
				none = append(none, p.NIC.Name)
			case r.text == own.text:
				shared = append(shared, p.NIC.Name)
			case near:
				apart = append(apart, p.NIC.Name)
			default:
				far = append(far, p.NIC.Name)
			}
			if (r.err != nil || r.text == "") && len(at) < shownFiles {
				at = append(at, r.where)
			}
		}
		if own.err != nil {
			bad = own
		}
		switch {
		case bad.err != nil:
			l.unread(gpu.name, bad)
		case own.text == "" && len(none) == len(nics[g.Name]):
			l.pass(gpu.name, own.at(), "no IOMMU")
		case own.text == "":
			l.unknown(gpu.name, at, "the GPU is in no group, and NICs are: whether the IOMMU is on its way is not known")
		case len(none) > 0:
			l.unknown(gpu.name, at, "the GPU is in a group, and these NICs are in none: %s", some(none))
		default:
			l.pass(gpu.name, at, "%s", l.companions(gpu, shared, apart, far))
		}
	}
}

// groupOf is the number of a function's group, "" without one.
func groupOf(f *function) reading {
	return reading{where: "/sys/" + f.dir + "/iommu_group", text: f.Group, err: firstError(f.err, f.GroupErr)}
}

// companions says which NICs are in the GPU's group, and what the others mean.
func (l *look) companions(gpu *function, shared, apart, far []string) string {
	var parts []string
	if len(shared) > 0 {
		parts = append(parts, "one group with "+some(shared))
	}
	if len(apart) > 0 {
		text := "other groups than " + some(apart) + " below a common bridge, where a port can redirect"
		if gpu.IOMMU == "DMA" || gpu.IOMMU == "DMA-FQ" {
			text += ", and most likely does, for the IOMMU translates"
		}
		parts = append(parts, text)
	}
	if len(far) > 0 {
		parts = append(parts, "other groups than "+some(far)+" over the root")
	}
	return strings.Join(parts, "; ")
}
