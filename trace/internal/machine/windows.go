// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"slices"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Windows makes the table that the programs search: sorted, without
// overlaps, filled up with windows that nothing lies in. If the machine has
// more than fit, the smallest BARs are left out; bytes there count as other.
func Windows(m *placement.Machine) []abi.Window {
	const unused = 1<<63 - 1
	var list []abi.Window
	add := func(r placement.Range, k placement.Kind) {
		list = append(list, abi.Window{Start: r.Start, End: r.End(), Kind: uint64(k)})
	}
	bars := slices.Clone(m.BARs)
	slices.SortStableFunc(bars, func(a, b placement.BAR) int {
		switch {
		case a.GPU != b.GPU && a.GPU, a.GPU == b.GPU && a.Size > b.Size:
			return -1
		case a.GPU == b.GPU && a.Size == b.Size:
			return 0
		}
		return 1
	})
	for _, c := range m.Coherent {
		add(c.Range, placement.KindCoherent)
	}
	for _, r := range m.RAM {
		add(r, placement.KindRAM)
	}
	for _, b := range bars {
		add(b.Range, placement.KindBAR)
	}
	list = list[:min(len(list), abi.NumWindows-1)]
	slices.SortStableFunc(list, func(a, b abi.Window) int { return cmp.Compare(a.Start, b.Start) })
	// The first slot is below everything: the search starts there.
	out := make([]abi.Window, 1, abi.NumWindows)
	for _, w := range list {
		last := &out[len(out)-1]
		w.Start = max(w.Start, last.End)
		if w.Start >= w.End || w.Start >= unused {
			continue
		}
		if last.End == w.Start && last.Kind == w.Kind {
			last.End = w.End // BARs side by side: the kind is what counts
			continue
		}
		out = append(out, w)
	}
	for len(out) < abi.NumWindows {
		out = append(out, abi.Window{Start: unused, End: unused})
	}
	return out
}
