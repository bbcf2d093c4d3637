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
	Before string `json:"before"` // "" if the earlier run does not have it
	After  string `json:"after"`  // "" if the later run does not have it
	Change string `json:"change"` // one of Changes
	// AsksMore says that versions of p2pcheck differ, and not machines: the version of one of
	// the two runs needs more evidence before it says that something is known.
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
