// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"maps"
	"slices"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// Sweep forgets devices, once after each start of the machine: those of which a GPU or a NIC is not there any
// more, and all sets, if more than most devices are left. A set of each combination of pairs may have been published
// once, and nothing else ends that.
func (s *State) Sweep(there func(pairs.Pair) bool, most int) {
	if s.Swept == s.Boot {
		return
	}
	s.Swept = s.Boot
	maps.DeleteFunc(s.Known, func(_ string, list []pairs.Pair) bool {
		return slices.ContainsFunc(list, func(p pairs.Pair) bool { return !there(p) })
	})
	if len(s.Known) > most {
		maps.DeleteFunc(s.Known, func(_ string, list []pairs.Pair) bool { return len(list) > 1 })
	}
}

// Holder returns the claim that has the GPU or the NIC of a pair, other than the claim of a UID. One for a look
// at devices that others may have holds none.
func (s *State) Holder(uid string, p pairs.Pair) (Claim, bool) {
	for other, c := range s.Claims {
		if other != uid && slices.ContainsFunc(c.Devices, func(d Device) bool { return !d.Admin && d.Shares(p) }) {
			return c, true
		}
	}
	return Claim{}, false
}

// Used reports that some claim has the GPU or the NIC of a pair, be it for a look.
func (s *State) Used(p pairs.Pair) bool {
	for _, c := range s.Claims {
		if slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Shares(p) }) {
			return true
		}
	}
	return false
}

// Shares reports that a device has the GPU or the NIC of a pair.
func (d Device) Shares(p pairs.Pair) bool { return slices.ContainsFunc(d.Pairs, p.Shares) }
