// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// State is what is known of a link.
type State int

// The states. The zero value is not known.
const (
	Unknown  State = iota // what decides could not be read, or no rule covers it
	Holds                 // it is known to hold
	Costs                 // it holds, and costs speed
	NotAsked              // nothing of this pair depends on it
	Breaks                // it is known not to hold
)

var stateNames = []string{"unknown", "holds", "costs", "not asked", "breaks"}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("invalid (%d)", int(s))
	}
	return stateNames[s]
}

// Good reports a state that keeps no pair from being direct.
func (s State) Good() bool { return s == Holds || s == Costs || s == NotAsked }

// Evidence is what an answer rests on: a file of the machine, a library or a command, and
// what it says.
type Evidence struct {
	File  string
	Value string
}

func (e Evidence) String() string {
	if e.Value == "" {
		return e.File
	}
	return e.File + ": " + e.Value
}

// Answer is what is known of one link of one pair.
type Answer struct {
	State State
	// Why is the chain of reasons, the conclusion last.
	Why      []string
	Evidence []Evidence
	// Remedy is what makes the link hold, or known; nil where there is nothing to change.
	Remedy *Remedy
	// Outcome is what becomes of a registration where the link breaks: Staged, Refused or Lost,
	// and Broken where that is not predicted. Errno and Stage are of Refused.
	Outcome Outcome
	Errno   unix.Errno
	Stage   Stage
}

// Text is the reasons in one line.
func (a Answer) Text() string { return strings.Join(a.Why, "; ") }

// With adds evidence.
func (a Answer) With(file, format string, args ...any) Answer {
	a.Evidence = append(a.Evidence, Evidence{file, fmt.Sprintf(format, args...)})
	return a
}

// Fix sets the remedy.
func (a Answer) Fix(r *Remedy) Answer {
	a.Remedy = r
	return a
}

// Hold is the answer of a link that holds.
func Hold(format string, args ...any) Answer { return answer(Holds, format, args) }

// Cost is the answer of a link that holds and costs speed.
func Cost(format string, args ...any) Answer { return answer(Costs, format, args) }

// Open is the answer of a link of which what decides is not known.
func Open(format string, args ...any) Answer { return answer(Unknown, format, args) }

// Skip is the answer of a link that is not asked.
func Skip(format string, args ...any) Answer { return answer(NotAsked, format, args) }

// Break is the answer of a link that does not hold, and what that makes of the pair.
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
	if text := fmt.Sprintf(format, args...); text != "" {
		a.Why = []string{text}
	}
	return a
}
