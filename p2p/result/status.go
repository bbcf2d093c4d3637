// SPDX-License-Identifier: Apache-2.0

package result

import "slices"

// Worse returns the worse of two statuses: StatusBad before StatusUnknown, StatusUnknown before
// StatusGood. The statuses must not be StatusUnread.
func Worse(x, y int) int {
	for _, status := range []int{StatusBad, StatusUnknown} {
		if x == status || y == status {
			return status
		}
	}
	return StatusGood
}

// Status returns the exit status of the run: StatusGood, StatusBad or StatusUnknown.
func (r Run) Status() int { return Worse(r.Ran, r.found()) }

// found is the status of the results, without regard to things that could not be read.
func (r Run) found() int {
	s := r.Summary
	switch {
	case s.Bad() > 0 || slices.ContainsFunc(r.Drift, Drift.Worse) || r.broken():
		return StatusBad
	case r.Tally.Fail == 0 && (s.Unknown > 0 || s.Direct == 0):
		return StatusUnknown
	}
	return r.Tally.status()
}

// Statuses of a run. They are the exit statuses of command p2pcheck.
const (
	StatusGood    = 0 // all pairs are direct, and no check fails
	StatusBad     = 1 // a pair is not direct, a check fails, or a difference from the baseline is worse
	StatusUnread  = 2 // nothing could be read
	StatusUnknown = 3 // nothing is bad, and something is not known
)

// Verdict returns the run in one word: fail, unknown, warn or pass. The run is nil if nothing
// could be read.
func Verdict(r *Run, status int) string {
	switch {
	case r == nil:
		return "unknown"
	case status == StatusGood && r.Tally.Warn > 0:
		return "warn"
	case status == StatusGood:
		return "pass"
	case status == StatusBad:
		return "fail"
	}
	return "unknown"
}

// StatusOf returns the status of pairs alone, without checks. Pairs that do not count are good.
func StatusOf(pairs []Pair) int {
	s := Summarize(pairs)
	switch {
	case s.Bad() > 0:
		return StatusBad
	case s.Unknown > 0:
		return StatusUnknown
	}
	return StatusGood
}
