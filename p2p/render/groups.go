// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// places match the parts in which reasons of the same kind differ: addresses, host bridges, and
// numbers of steps.
var places = regexp.MustCompile(`\b(pci)?[0-9a-f]{4}:[0-9a-f]{2}(:[0-9a-f]{2}\.[0-7])?\b|\b[0-9]+ steps\b`)

// kindOf is a reason without its places.
func kindOf(why string) string { return places.ReplaceAllString(why, "…") }

// kinds keeps the answers of kindOf: many pairs have the same reasons.
type kinds map[string]string

func (m kinds) of(why string) string {
	kind, ok := m[why]
	if !ok {
		kind = kindOf(why)
		m[why] = kind
	}
	return kind
}

// all returns the kinds of a chain of reasons, in order.
func (m kinds) all(why []string) []string {
	var kinds []string
	for _, w := range why {
		if k := m.of(w); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// grouped puts pairs together that have the same remedy, and whose reasons differ in places only.
// With all, the reasons and the notes are the same to the last word.
func grouped(pairs []result.Pair, all bool) [][]result.Pair {
	var out [][]result.Pair
	at := map[string]int{}
	known := kinds{}
	for _, p := range pairs {
		key := p.Stage + "\n" + strings.Join(known.all(p.Why), "\n")
		if p.Errno != nil {
			key += "\n" + p.Errno.Name
		}
		if all {
			key = strings.Join(p.Why, "\n") + "\n\n" + strings.Join(p.Notes, "\n")
		}
		if p.Remedy != nil {
			// A command that names the pair is shown for the first of them.
			change, pair := p.Remedy.Change, " --nic "
			if !all {
				change, pair = p.Remedy.OfAny(p.GPU), " --gpu "
			}
			command, _, _ := strings.Cut(p.Remedy.Command, pair)
			key += "\n\n" + change + "\n" + command
		}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key], out = i, append(out, nil)
		}
		out[i] = append(out[i], p)
	}
	return out
}

// names says which pairs a group has. GPUs that have the same NICs stand together.
func names(group []result.Pair, all bool) string {
	var gpus []string
	nics := map[string][]string{}
	for _, p := range group {
		if nics[p.GPU] == nil {
			gpus = append(gpus, p.GPU)
		}
		nics[p.GPU] = append(nics[p.GPU], p.NIC)
	}
	most := ShownPairs
	if all {
		most = len(group)
	}
	var out []string
	named := 0
	for i, g := range gpus {
		alike := func(other string) bool { return slices.Equal(nics[other], nics[g]) }
		if slices.ContainsFunc(gpus[:i], alike) {
			continue // told with those
		}
		if len(out) == most {
			out = append(out, fmt.Sprintf("and %d more", len(group)-named))
			break
		}
		these := slices.DeleteFunc(slices.Clone(gpus), func(other string) bool { return !alike(other) })
		named += len(these) * len(nics[g])
		out = append(out, human.First(these, most)+" -> "+human.First(nics[g], most))
	}
	return strings.Join(out, "; ")
}
