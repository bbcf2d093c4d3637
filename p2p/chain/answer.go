// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/human"
)

// State says whether a link is known to hold.
type State int

// The states. The zero value is not known.
const (
	Unknown  State = iota // a deciding fact could not be read, or no rule covers it
	Holds                 // it is known to hold
	Costs                 // it holds, and costs speed
	NotAsked              // this pair does not depend on it
	Breaks                // it is known not to hold
)

var stateNames = []string{"unknown", "holds", "costs", "not asked", "breaks"}

// String returns the state in words.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("invalid (%d)", int(s))
	}
	return stateNames[s]
}

// Good reports whether a pair with a link in this state may be direct.
func (s State) Good() bool { return s == Holds || s == Costs || s == NotAsked }

// Evidence is a source of an answer: a file of the machine, a library or a command, and the
// value that it showed.
type Evidence struct {
	File  string
	Value string
}

// String returns the file and the value in one line.
func (e Evidence) String() string {
	if e.Value == "" {
		return e.File
	}
	return e.File + ": " + e.Value
}

// Answer is the state of one link of one pair, with the reasons for it.
type Answer struct {
	State State
	// Why is the chain of reasons, the conclusion last.
	Why []string
	// Evidence has the files, or other sources, that the state follows from.
	Evidence []Evidence
	// Remedy is a change that makes the link hold, or makes its state known; nil if there
	// is none.
	Remedy *Remedy
	// Outcome is the outcome for the pair if the link breaks: Staged, Refused or Lost, or
	// Broken if it is not predicted. Errno and Stage are of Refused; 0 and "" if they are
	// not known.
	Outcome Outcome
	Errno   unix.Errno
	Stage   Stage
}

// Text returns the reasons in one line.
func (a Answer) Text() string { return strings.Join(a.Why, "; ") }

// With returns a copy of the answer with one more piece of evidence: a file, and the value in it.
// It cuts each of the two after MostText bytes.
func (a Answer) With(file, format string, args ...any) Answer {
	a.Evidence = append(slices.Clip(a.Evidence), Evidence{human.Short(file, MostText), human.Short(fmt.Sprintf(format, args...), MostText)})
	return a
}

// Fix returns a copy of the answer with a remedy.
func (a Answer) Fix(r *Remedy) Answer {
	a.Remedy = r
	return a
}

// MostText is the greatest length of a reason or a value, in bytes: longer ones are cut. A
// value may come from the files of a machine that is not trusted.
const MostText = 2000

// Hold returns the answer of a link that holds. format and args make the reason, as in
// fmt.Sprintf. Hold and the functions below cut a reason that is longer than MostText.
func Hold(format string, args ...any) Answer { return answer(Holds, format, args) }

// Cost returns the answer of a link that holds and costs speed.
func Cost(format string, args ...any) Answer { return answer(Costs, format, args) }

// Open returns the answer of a link for which a deciding fact is not known.
func Open(format string, args ...any) Answer { return answer(Unknown, format, args) }

// Skip returns the answer of a link that the pair does not depend on.
func Skip(format string, args ...any) Answer { return answer(NotAsked, format, args) }

// Break returns the answer of a link that does not hold, with the outcome for the pair.
func Break(o Outcome, format string, args ...any) Answer {
	a := answer(Breaks, format, args)
	a.Outcome = o
	return a
}

// Refuse returns the answer of a link that makes the registration fail, at a stage, with
// an errno.
func Refuse(e unix.Errno, s Stage, format string, args ...any) Answer {
	a := Break(Refused, format, args...)
	a.Errno, a.Stage = e, s
	return a
}

func answer(s State, format string, args []any) Answer {
	a := Answer{State: s}
	if text := human.Short(fmt.Sprintf(format, args...), MostText); text != "" {
		a.Why = []string{text}
	}
	return a
}
