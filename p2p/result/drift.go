// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
)

// Drift is one difference between two runs.
type Drift struct {
	What   string `json:"what"` // "machine", "gpu", "nic", "pair", "proof", "check"
	Name   string `json:"name"`
	Before string `json:"before"` // "" if it was not there
	After  string `json:"after"`  // "" if it is not there now
	Change string `json:"change"` // one of Changes
	// AsksMore reports a difference of versions, not of machines: one of the two runs is of a
	// version that asks for more before it says that something is known.
	AsksMore bool `json:"asks_more,omitempty"`
}

// Changes are the kinds of differences, the worst first. A difference that is neither worse nor
// better, such as another kernel, does not decide the status.
var Changes = []string{"worse", "unknown", "changed", "better"}

// Worse reports a regression. A difference without a kind comes from a version that did not
// write kinds, and counts as a regression.
func (d Drift) Worse() bool { return d.Change == "worse" || d.Change == "" }

// Difference describes in words the thing that differs, its new state and its old one.
func (d Drift) Difference() string {
	there := func(value string) string { return cmp.Or(value, "not there") }
	return fmt.Sprintf("%s %s: %s, was %s", d.What, d.Name, there(d.After), there(d.Before))
}
