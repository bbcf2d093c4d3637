// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// places are what differs between reasons of the same kind: addresses, host
// bridges, and how far it is.
var places = regexp.MustCompile(`\b(pci)?[0-9a-f]{4}:[0-9a-f]{2}(:[0-9a-f]{2}\.[0-7])?\b|\b[0-9]+ steps\b`)

// kindOf is a reason without its places.
func kindOf(why string) string { return places.ReplaceAllString(why, "…") }

// kinds keeps what kindOf said: pairs have the same reasons.
type kinds map[string]string

func (m kinds) of(why string) string {
	kind, ok := m[why]
	if !ok {
		kind = kindOf(why)
		m[why] = kind
	}
	return kind
}

// all are the kinds of a chain of reasons, in order.
func (m kinds) all(why []string) []string {
	var kinds []string
	for _, w := range why {
		if k := m.of(w); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// grouped puts pairs together that are told together: those with the same remedy
// whose reasons differ in places only, or, if all is asked for, in nothing.
func grouped(pairs []pair, all bool) [][]pair {
	var out [][]pair
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
				change, pair = p.Remedy.ofAny(p.GPU), " --gpu "
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

// ofAny is a change in words that are right for other GPUs as well.
func (r *remedy) ofAny(gpu string) string { return strings.ReplaceAll(r.Change, gpu, "the GPU") }

// remedyOf is that of a group, in words that are right for all of it.
func remedyOf(group []pair) *remedy {
	r, gpu := group[0].Remedy, group[0].GPU
	if r == nil || !slices.ContainsFunc(group, func(p pair) bool { return p.GPU != gpu }) {
		return r
	}
	general := *r
	general.Change = r.ofAny(gpu)
	return &general
}

// whyText tells the reasons of a group, each once: of those that differ in places
// the first few.
func whyText(b *strings.Builder, group []pair, all bool) {
	known := kinds{}
	for _, kind := range known.all(group[0].Why) {
		var lines []string
		for _, p := range group {
			for _, w := range p.Why {
				if known.of(w) == kind && !slices.Contains(lines, w) {
					lines = append(lines, w)
				}
			}
		}
		shown := lines
		if !all && len(lines) > shownPairs {
			shown = lines[:shownPairs]
		}
		for _, w := range shown {
			fmt.Fprintf(b, "  %s\n", w)
		}
		if more := len(lines) - len(shown); more > 0 {
			fmt.Fprintf(b, "  and %d more like that; -v has all\n", more)
		}
	}
}

// names tells which pairs a group has: GPUs that have the same NICs together.
func names(group []pair, all bool) string {
	var gpus []string
	nics := map[string][]string{}
	for _, p := range group {
		if nics[p.GPU] == nil {
			gpus = append(gpus, p.GPU)
		}
		nics[p.GPU] = append(nics[p.GPU], p.NIC)
	}
	most := shownPairs
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

// toldOf are the checks that say of one of these pairs what its reasons say: they
// are not told again.
func (r checkResult) toldOf(group []pair) []string {
	var ids []string
	for _, f := range r.Checks {
		bad := f.Result == "fail" || f.Result == "unknown" && f.Decides
		if bad && f.ofPairs() && !slices.Contains(ids, f.ID) && slices.ContainsFunc(group, f.about) {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// about reports a finding of this pair, or of its GPU.
func (f finding) about(p pair) bool {
	return slices.Contains(f.Scope, p.GPU+" -> "+p.NIC) || slices.Contains(f.Scope, p.GPU)
}

// told reports a finding that the pairs' reasons say: all that it is about is
// among pairs that are told.
func (r checkResult) told(f finding) bool {
	if !f.ofPairs() {
		return false
	}
	for _, s := range f.Scope {
		one := finding{Scope: []string{s}}
		if !slices.ContainsFunc(r.Pairs, func(p pair) bool { return p.Counts && p.Outcome != drivers.Direct.String() && one.about(p) }) {
			return false
		}
	}
	return len(f.Scope) > 0
}

// What of a remedy is told once.
const (
	longChange  = 80 // words from this length on
	longCommand = 60
)

// remedyText tells what to change. Long words of the very same command are not told again,
// and neither is the command itself if it is long. Words alone are: without a
// command nothing says which above is meant.
func remedyText(b *strings.Builder, r *remedy, told map[remedy]bool) {
	if r == nil {
		return
	}
	whole := remedy{Change: r.Change, Command: r.Command, Weakens: r.Weakens}
	if told[whole] {
		command := r.Command
		if i := strings.LastIndex(command, "="); len(command) > longCommand && i >= 0 {
			command = command[:i+1] + "…"
		}
		fmt.Fprintf(b, "  change: as above: %s\n", command)
		return
	}
	if told != nil && r.Command != "" && (r.Weakens != "" || len(r.Change) > longChange) {
		told[whole] = true
	}
	fmt.Fprintf(b, "  change: %s\n", r.Change)
	if r.Command != "" {
		fmt.Fprintf(b, "          %s\n", r.Command)
	}
	if r.Weakens != "" {
		fmt.Fprintf(b, "  weakens: %s\n", r.Weakens)
	}
}
