// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// ResultColors are the colours of results of checks, for terminal.Colors.Paint.
var ResultColors = map[string]string{"fail": "31", "unknown": "33", "warn": "33", "pass": "32"}

// checksText writes what the checks found, the worst first. Checks that pass are written only if
// the text is verbose.
func checksText(b *strings.Builder, s Style, r result.Run, told map[result.Remedy]bool) {
	withPairs := r.Told()
	for _, rank := range result.Ranks {
		var blocks [][]result.Finding
		for i, f := range r.Checks {
			quiet := withPairs[i] || rank == "pass" || rank == "skip" || rank == "unknown" && !f.Decides
			if !s.Verbose {
				f, quiet = withTwin(r.Checks, f, quiet)
			}
			if f.Result != rank || quiet && !s.Verbose {
				continue
			}
			at := slices.IndexFunc(blocks, func(block []result.Finding) bool { return block[0].Like(f) })
			if at < 0 || s.Verbose {
				at, blocks = len(blocks), append(blocks, nil)
			}
			blocks[at] = added(blocks[at], f)
		}
		for _, block := range blocks {
			findingsText(b, s, block, told)
		}
	}
}

// twins are two checks of the same fact: one looks at NUMA nodes alone, the other at bridges and
// nodes.
var twins = [2]string{"P2P-DIST", "PCIE-NUMA"}

// withTwin writes findings of twins on the same devices once, under both IDs.
func withTwin(all []result.Finding, f result.Finding, quiet bool) (result.Finding, bool) {
	i := slices.Index(twins[:], f.ID)
	if i < 0 || !slices.ContainsFunc(all, func(g result.Finding) bool {
		return g.ID == twins[1-i] && g.Result == f.Result && slices.Equal(g.Scope, f.Scope)
	}) {
		return f, quiet
	}
	f.ID = strings.Join(twins[:], ", ")
	return f, quiet || i == 1
}

// tallyText counts the checks, and those that checksText leaves out.
func tallyText(r result.Run, verbose bool) string {
	text := r.Tally.String()
	if verbose {
		return text
	}
	var others []result.Finding
	withPairs := r.Told()
	for i, f := range r.Checks {
		if !withPairs[i] {
			others = append(others, f)
		}
	}
	untold := result.TallyOf(others)
	if n := r.Tally.Fail - untold.Fail + r.Tally.Hidden - untold.Hidden; n > 0 {
		text += fmt.Sprintf("; %d of them told with the pairs", n)
	}
	if n := untold.Unknown - untold.Hidden; n > 0 {
		are := "are"
		if n == 1 {
			are = "is"
		}
		text += fmt.Sprintf("; %d of the unknown can only warn, and %s not listed", n, are)
	}
	return text + "; -v shows all"
}

// added puts a finding into a block. Devices with the same reading stand in one line.
func added(block []result.Finding, f result.Finding) []result.Finding {
	i := slices.IndexFunc(block, func(g result.Finding) bool { return g.Read == f.Read && len(g.Scope) > 0 && len(f.Scope) > 0 })
	if i < 0 {
		return append(block, f)
	}
	block[i].Scope = slices.Concat(block[i].Scope, f.Scope)
	return block
}

// findingLine has the reading, and the devices that it is about.
func findingLine(f result.Finding, all bool) string {
	if of := scope(f.Scope, all); of != "" {
		return of + ": " + f.Read
	}
	return f.Read
}

// findingsText writes findings that are like one another. If readings differ only in places, it
// writes the first few.
func findingsText(b *strings.Builder, s Style, block []result.Finding, told map[result.Remedy]bool) {
	f := block[0]
	long := f.Result == "fail" || f.Result == "warn" || f.Result == "unknown"
	if long {
		b.WriteString("\n")
	}
	head := func(text string) {
		s.head(b, "", ResultColors[f.Result], fmt.Sprintf("%-7s", strings.ToUpper(f.Result)), text)
	}
	kinds := map[string]int{}
	more := 0
	switch {
	case !long:
		head(f.ID + ": " + f.Title)
	case len(block) == 1: // the finding; the title follows under "expected"
		head(f.ID + ": " + findingLine(f, s.Verbose))
		block = nil
	default:
		head(f.ID)
	}
	for _, g := range block {
		if kinds[kindOf(g.Read)]++; kinds[kindOf(g.Read)] > ShownPairs && !s.Verbose {
			more++
			continue
		}
		s.fold(b, "  ", margin, findingLine(g, s.Verbose))
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %d more like that; -v has all\n", more)
	}
	if !long {
		return
	}
	expected := f.Title
	if f.Expected != "" {
		expected += ": " + f.Expected
	}
	s.label(b, "expected: ", expected)
	if s.Verbose && len(f.Where) > 0 {
		s.label(b, "where: ", strings.Join(f.Where, " "))
	}
	if f.Remedy != nil {
		Remedy(b, s, &result.Remedy{Change: f.Remedy.Change, Command: f.Remedy.Command, Weakens: f.Remedy.Weakens}, told)
	}
}

// scope names the devices that a finding is about.
func scope(names []string, all bool) string {
	if all {
		return strings.Join(names, ", ")
	}
	return human.First(names, ShownPairs)
}
