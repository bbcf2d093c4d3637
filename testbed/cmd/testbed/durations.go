// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"time"
)

// durations are how long the jobs of each machine took in the last run, by the machine's
// name. The longest is started first: started last, it would run alone at the end.
type durations map[string]time.Duration

// readDurations returns no durations if there was no last run.
func readDurations(file string) durations {
	d := durations{}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &d) != nil {
		return durations{}
	}
	return d
}

func (d durations) write(file string) error {
	text, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// longestFirst sorts machines. One of which nothing is known may be the longest.
func (d durations) longestFirst(order []bootKey) {
	slices.SortStableFunc(order, func(a, b bootKey) int {
		took, known := d[a.String()]
		other, otherKnown := d[b.String()]
		switch {
		case known != otherKnown && !known:
			return -1
		case known != otherKnown:
			return 1
		}
		return cmp.Compare(other, took)
	})
}
