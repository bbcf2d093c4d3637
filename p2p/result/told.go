// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// ofPairs reports a finding that is also among the reasons of pairs.
func (f Finding) ofPairs() bool {
	return f.Result != "warn" && (f.ID == "P2P-VERDICT" || f.ID == "GPU-EXPORTER-OPS" || f.ID == "GPU-LIBRARY")
}

// ToldOf returns the IDs of the checks whose findings are also reasons of one of these pairs.
func (r *Run) ToldOf(group []Pair) []string {
	in := map[string]bool{}
	unknown := false
	for i := range group {
		in[group[i].GPU], in[group[i].GPU+" -> "+group[i].NIC] = true, true
		unknown = unknown || group[i].Outcome == chain.OutcomeUnknown.String()
	}
	var ids []string
	for _, f := range r.Checks {
		bad := f.Result == "fail" || f.Result == "unknown" && f.Decides && unknown
		if bad && f.ofPairs() && !slices.Contains(ids, f.ID) && slices.ContainsFunc(f.Scope, func(name string) bool { return in[name] }) {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// Told returns for each finding of Checks whether the reasons of pairs already show it: each device or
// pair in its Scope belongs to a pair that is not direct. For an unknown finding each must belong to a
// pair whose outcome is unknown.
func (r *Run) Told() []bool {
	bad, unknown := map[string]bool{}, map[string]bool{}
	for i := range r.Pairs {
		p := &r.Pairs[i]
		if !p.Counts || p.Outcome == chain.Direct.String() {
			continue
		}
		for _, name := range []string{p.GPU, p.GPU + " -> " + p.NIC} {
			bad[name] = true
			unknown[name] = unknown[name] || p.Outcome == chain.OutcomeUnknown.String()
		}
	}
	out := make([]bool, len(r.Checks))
	for i, f := range r.Checks {
		good := func(name string) bool { return !bad[name] || f.Result == "unknown" && !unknown[name] }
		out[i] = f.ofPairs() && len(f.Scope) > 0 && !slices.ContainsFunc(f.Scope, good)
	}
	return out
}
