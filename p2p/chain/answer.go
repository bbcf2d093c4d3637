// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"fmt"
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

// String names the state.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("invalid (%d)", int(s))
	}
	return stateNames[s]
}

// Good reports a state that keeps no pair from being direct.
func (s State) Good() bool { return s == Holds || s == Costs || s == NotAsked }

// Evidence is a source of an answer: a file of the machine, a library or a command, and the
// value that it showed.
type Evidence struct {
	File  string
	Value string
}

// String is the file and its value, or the file alone.
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
	Why      []string
	Evidence []Evidence
	// Remedy is a change that makes the link hold, or known; nil if there is none.
	Remedy *Remedy
	// Outcome is the outcome of a registration if the link breaks: Staged, Refused or Lost, or
	// Broken where it is not predicted. Errno and Stage belong to Refused.
	Outcome Outcome
	Errno   unix.Errno
	Stage   Stage
}

// Text is the reasons in one line.
func (a Answer) Text() string { return strings.Join(a.Why, "; ") }

// With adds evidence.
func (a Answer) With(file, format string, args ...any) Answer {
	a.Evidence = append(a.Evidence, Evidence{human.Short(file, MostText), human.Short(fmt.Sprintf(format, args...), MostText)})
	return a
}

// Fix sets the remedy.
func (a Answer) Fix(r *Remedy) Answer {
	a.Remedy = r
	return a
}

// MostText is how long a reason or a value is at most, in bytes. A value may come from the files of a machine
// that is not trusted.
const MostText = 2000

// Hold is the answer of a link that holds.
func Hold(format string, args ...any) Answer { return answer(Holds, format, args) }

// Cost is the answer of a link that holds and costs speed.
func Cost(format string, args ...any) Answer { return answer(Costs, format, args) }

// Open is the answer of a link for which a deciding fact is not known.
func Open(format string, args ...any) Answer { return answer(Unknown, format, args) }

// Skip is the answer of a link that the pair does not depend on.
func Skip(format string, args ...any) Answer { return answer(NotAsked, format, args) }

// Break is the answer of a link that does not hold, with the outcome for the pair.
func Break(o Outcome, format string, args ...any) Answer {
	a := answer(Breaks, format, args)
	a.Outcome = o
	return a
}

// Refuse is the answer of a link that makes the registration fail.
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
