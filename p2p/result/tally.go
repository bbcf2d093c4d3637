// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"slices"
)

// Tally counts checks by the worst result of each.
type Tally struct {
	Fail    int `json:"fail"`    // the checks whose worst result is fail
	Unknown int `json:"unknown"` // the checks whose worst result is unknown
	Warn    int `json:"warn"`    // the checks whose worst result is warn
	Pass    int `json:"pass"`    // the checks that passed
	Skip    int `json:"skip"`    // the checks that do not apply
	Hidden  int `json:"hidden"`  // the checks of Unknown that may hide a failure
}

// TallyOf counts the checks of these findings.
func TallyOf(all []Finding) Tally {
	hides := map[string]bool{}
	for _, f := range all {
		hides[f.ID] = hides[f.ID] || f.Result == "unknown" && f.Decides
	}
	var t Tally
	for id, worst := range Worst(all) {
		*[]*int{&t.Fail, &t.Unknown, &t.Warn, &t.Pass, &t.Skip}[slices.Index(Ranks, worst)]++
		if hides[id] && worst != "fail" {
			t.Hidden++
		}
	}
	return t
}

// status is the status of the checks. A check that can only warn does not decide it.
func (t Tally) status() int {
	switch {
	case t.Fail > 0:
		return StatusBad
	case t.Hidden > 0:
		return StatusUnknown
	}
	return StatusGood
}

// String returns the counts in one line.
func (t Tally) String() string {
	return fmt.Sprintf("%d checks: %d fail, %d unknown, %d warn, %d pass, %d do not apply", t.Fail+t.Unknown+t.Warn+t.Pass+t.Skip, t.Fail, t.Unknown, t.Warn, t.Pass, t.Skip)
}
