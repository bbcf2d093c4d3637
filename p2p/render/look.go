// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Heading describes the outcome of a group of pairs that are not direct, by one of them.
func Heading(p result.Pair) string {
	switch l := lookOf(p.Outcome); l.outcome {
	case chain.OutcomeUnknown:
		return "what becomes of them is not known"
	case chain.Staged:
		return "the NIC gets system memory (" + l.word + ")"
	case chain.Lost:
		return "the registration succeeds, and what the NIC sends does not arrive (" + l.word + ")"
	case chain.Broken:
		return "the NIC does not reach the GPU's memory (" + l.word + ")"
	default:
		return "the registration fails (" + l.headline(p) + ")"
	}
}

// Headline returns the outcome of a pair as the text has it: a refusal with its errno and its stage.
func Headline(p result.Pair) string { return lookOf(p.Outcome).headline(p) }

// look is how an outcome appears.
type look struct {
	outcome chain.Outcome
	word    string
	color   string // a parameter of SGR
}

// looks are in the order in which the text has the pairs: the worst first.
var looks = []look{
	{chain.Lost, "LOST", "31"},
	{chain.Refused, "REFUSED", "31"},
	{chain.Broken, "BROKEN", "31"},
	{chain.Staged, "STAGED", "31"},
	{chain.OutcomeUnknown, "?", "33"},
	{chain.Direct, "direct", "32"},
}

// lookOf treats an outcome that it does not know as unknown.
func lookOf(outcome string) look {
	named := func(outcome string) int {
		return slices.IndexFunc(looks, func(l look) bool { return l.outcome.String() == outcome })
	}
	if i := named(outcome); i >= 0 {
		return looks[i]
	}
	return looks[named(chain.OutcomeUnknown.String())]
}

// Style says how text is written. The zero Style has no colours, and is for this machine.
type Style struct {
	terminal.Colors
	Verbose bool // all pairs, reasons, notes and checks
	// Names replaces, in a text, the names of files by the names that they have on the machine of
	// the run. It is nil if they are the same.
	Names func(string) string
	Copy  bool // the run is of a copy, not of this machine
	// Flags are the flags with which p2pcheck reads the same machine again, for a shell, with a
	// space before each. If they are "" for a copy, the text describes the flags in words.
	Flags string
}

// headline is the outcome of a pair in the text. A refusal has its error number and its stage.
func (l look) headline(p result.Pair) string {
	switch {
	case p.Errno != nil:
		return fmt.Sprintf("%s with %s by %s", l.word, p.Errno.Name, p.Stage)
	case p.Stage != "":
		return l.word + " by " + p.Stage
	case l.outcome == chain.OutcomeUnknown:
		return "UNKNOWN"
	}
	return l.word
}
