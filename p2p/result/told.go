// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// ofPairs reports a finding that is also among the reasons of pairs.
func (f Finding) ofPairs() bool {
	return f.Result != "warn" && (f.ID == "P2P-VERDICT" || f.ID == "GPU-EXPORTER-OPS")
}

// ToldOf returns the IDs of the checks whose findings are also reasons of one of these pairs.
func (r Run) ToldOf(group []Pair) []string {
	var ids []string
	for _, f := range r.Checks {
		bad := f.Result == "fail" || f.Result == "unknown" && f.Decides
		if bad && f.ofPairs() && !slices.Contains(ids, f.ID) && slices.ContainsFunc(group, f.about) {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// about reports a finding about this pair or its GPU.
func (f Finding) about(p Pair) bool {
	return slices.Contains(f.Scope, p.GPU+" -> "+p.NIC) || slices.Contains(f.Scope, p.GPU)
}

// Told reports a finding that is also among the reasons of pairs: each device and pair that it is about
// belongs to a pair that is not direct.
func (r Run) Told(f Finding) bool {
	if !f.ofPairs() {
		return false
	}
	for _, s := range f.Scope {
		one := Finding{Scope: []string{s}}
		if !slices.ContainsFunc(r.Pairs, func(p Pair) bool { return p.Counts && p.Outcome != chain.Direct.String() && one.about(p) }) {
			return false
		}
	}
	return len(f.Scope) > 0
}
