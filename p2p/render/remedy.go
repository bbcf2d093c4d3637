// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// remedyOf is the remedy of a group, in words that hold for all its pairs.
func remedyOf(group []result.Pair) *result.Remedy {
	r, gpu := group[0].Remedy, group[0].GPU
	if r == nil || !slices.ContainsFunc(group, func(p result.Pair) bool { return p.GPU != gpu }) {
		return r
	}
	general := *r
	general.Change = r.OfAny(gpu)
	return &general
}

// Limits from which on a part of a remedy is written once.
const (
	longChange  = 80 // words from this length on
	longCommand = 60
)

// Remedy writes what to change. If told has the same change with the same command already, Remedy
// writes "as above" and the command, and cuts a long command. It writes a change without a command
// in full, because a reader could not find it above. If the remedy has a command, and a long
// change or a protection that it gives up, Remedy adds it to told, which may be nil.
func Remedy(b *strings.Builder, s Style, r *result.Remedy, told map[result.Remedy]bool) {
	if r == nil {
		return
	}
	whole := result.Remedy{Change: r.Change, Command: r.Command, Weakens: r.Weakens}
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
	s.label(b, "change: ", placed(r.Change, r.Command))
	if r.Command != "" {
		fmt.Fprintf(b, "          %s\n", s.command(r.Command))
	}
	if r.Weakens != "" {
		s.label(b, "weakens: ", r.Weakens)
	}
}

// command is a remedy's command. One that reads the machine again with another flag needs those of this run.
func (s Style) command(text string) string {
	if strings.HasPrefix(text, "p2pcheck --kernel ") || strings.HasPrefix(text, "p2pcheck --config ") {
		return text + s.Flags
	}
	return text
}
