// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
)

// Drift is one difference between two runs.
type Drift struct {
	// What says what differs. `machine`: a fact of the machine. `gpu`: a GPU. `nic`: a NIC. `pair`:
	// the outcome of a pair by its links and the log. `proof`: the proof of a pair. `check`: the
	// result of a check.
	What   string `json:"what"`
	Name   string `json:"name"`   // the name of that thing
	Before string `json:"before"` // its state in the earlier run; "" if that run does not have it
	After  string `json:"after"`  // its state in the later run; "" if that run does not have it
	// Change says what the difference means. `worse`: a regression. `unknown`: it is not known any
	// more. `changed`: neither worse nor better, such as another kernel. That does not decide the
	// status. `better`: an improvement.
	Change string `json:"change"`
	// AsksMore says that the difference is one of versions of p2pcheck, and not of machines: one of
	// the two runs is of p2pcheck/v1, which needs less evidence before it says that something is
	// known.
	AsksMore bool `json:"asks_more,omitempty"`
}

// Changes are the kinds of differences, the worst first. A difference that is neither worse nor
// better, such as another kernel, does not decide the status.
var Changes = []string{"worse", "unknown", "changed", "better"}

// Worse reports whether the difference is a regression. A difference without a kind, as older
// versions wrote it, counts as a regression.
func (d Drift) Worse() bool { return d.Change == "worse" || d.Change == "" }

// Difference describes in words the thing that differs, its new state and its old one.
func (d Drift) Difference() string {
	there := func(value string) string { return cmp.Or(value, "not there") }
	return fmt.Sprintf("%s %s: %s, was %s", d.What, d.Name, there(d.After), there(d.Before))
}
