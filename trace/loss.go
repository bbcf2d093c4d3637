// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Loss counts what was not seen.
type Loss struct {
	// Events that did not fit the ring, by their kind: "records", "moves".
	Events map[string]uint64 `json:"events,omitempty"`
	// Missed is how often the kernel skipped a program, by the events that were
	// not seen then: "mappings", "deregistrations" ([Hook.What]).
	Missed map[string]uint64 `json:"missed,omitempty"`
	// Dropped events waited too long for the program to take them ([Tracer.Events]); the records that they
	// belong to are not harmed.
	Dropped uint64 `json:"dropped"`
	// Evicted records were given up because too many lived ([Config.MaxRecords]).
	Evicted uint64 `json:"evicted"`
	// Orphaned events belong to records that were never seen.
	Orphaned uint64 `json:"orphaned"`
	// Undecoded events were of a shape that this program does not know.
	Undecoded uint64 `json:"undecoded"`
}

// Any reports whether something was lost. It ignores Orphaned.
func (l Loss) Any() bool {
	return len(l.Events) > 0 || len(l.Missed) > 0 || l.Dropped+l.Evicted+l.Undecoded > 0
}

// String lists what was lost, or says "nothing lost".
func (l Loss) String() string {
	var parts []string
	for _, name := range eventNames {
		if n := l.Events[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(l.Missed)) {
		parts = append(parts, fmt.Sprintf("%d skipped runs of the program for %s", l.Missed[what], what))
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{l.Dropped, "events not read in time"},
		{l.Evicted, "records given up"}, {l.Undecoded, "events not understood"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(parts) == 0 {
		return "nothing lost"
	}
	return "lost: " + strings.Join(parts, ", ")
}

// lossWords lists the events that were lost between two readings of the counters, without
// those that cannot concern a record that is followed. A lost record can: it may be
// the new mapping of an attachment.
func lossWords(before, after [abi.EventTypes]uint64) string {
	words := ""
	for t := range abi.EventTypes {
		n := after[t] - before[t]
		if n == 0 {
			continue
		}
		switch t {
		case abi.EventExport, abi.EventModule, abi.EventCallers:
			continue
		}
		if words != "" {
			words += ", "
		}
		words += fmt.Sprintf("%d %s", n, eventNames[t])
	}
	return words
}

var eventNames = [abi.EventTypes]string{
	abi.EventRecord: "records", abi.EventExport: "exports", abi.EventMove: "moves", abi.EventUnmap: "unmaps", abi.EventPin: "pins",
	abi.EventUnpin: "unpins", abi.EventRevoke: "revocations", abi.EventDetach: "detaches", abi.EventDereg: "deregistrations",
	abi.EventRelease: "releases", abi.EventModule: "modules", abi.EventCallers: "callers", abi.EventTracking: "objects that could not be followed",
}

// missedWords lists the runs that were skipped between two readings of the counters.
func missedWords(before, after map[string]uint64) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what]; n > before[what] {
			parts = append(parts, fmt.Sprintf("%d runs of the program for %s", n-before[what], what))
		}
	}
	return strings.Join(parts, ", ")
}
