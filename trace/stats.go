// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/histogram"
)

// Stats adds up events, in memory that does not grow with their number. Only one
// goroutine may use it at a time.
type Stats struct {
	events   map[EventKind]uint64
	memory   map[string]uint64
	refusals map[string]uint64
	call     histogram.Histogram
	stages   map[string]*histogram.Histogram
	order    []string // of the stages, as they were first seen
	left     []Unreleased
	nLeft    uint64
}

// Summary is what a trace has counted ([Stats]).
type Summary struct {
	Events map[EventKind]uint64 `json:"events"` // how many events there were, by kind
	// Memory is how many registrations there were, by the verdict on their memory when they were made.
	Memory   map[string]uint64 `json:"memory"`
	Refusals map[string]uint64 `json:"refusals"` // how many calls were refused, by stage and errno
	// Latency has whole registrations first, then each function in them, whose time is that from the
	// previous function's return to its own.
	Latency []Latency `json:"latency"`
	// Unreleased are registrations without a deregistration: they live still, or the kernel released
	// them when their process ended. At most 64 of each are kept.
	Unreleased  []Unreleased `json:"unreleased"`
	NUnreleased uint64       `json:"unreleased_count"` // how many registrations have no deregistration
	Loss        Loss         `json:"loss"`             // the events that the trace did not see
}

// Latency is how long something took, over all registrations that succeeded.
// The quantiles may be too long by a 32nd.
type Latency struct {
	Function string        `json:"function"` // the kernel function; "" for the whole call
	Count    uint64        `json:"count"`    // how often it was measured
	P50      time.Duration `json:"p50_ns"`   // the median
	P99      time.Duration `json:"p99_ns"`   // the 99th percentile
	Max      time.Duration `json:"max_ns"`   // the longest time
}

// Unreleased is a registration without a deregistration.
type Unreleased struct {
	Record Record `json:"record"` // the registration
	Lives  bool   `json:"lives"`  // it is still registered; false: the end of its process released it
}

// maxUnreleased bounds the registrations that are kept for the summary.
const maxUnreleased = 64

// Add counts an event.
func (s *Stats) Add(e Event) {
	if s.events == nil {
		s.events, s.memory, s.refusals = map[EventKind]uint64{}, map[string]uint64{}, map[string]uint64{}
		s.stages = map[string]*histogram.Histogram{}
	}
	s.events[e.Kind]++
	r := &e.Record
	switch {
	case e.Kind == Registered:
		s.memory[r.Placement.Memory.String()]++
		s.time(r)
	case e.Kind == Refused:
		f := r.Explain()
		s.refusals[refusalName(f)]++
	case e.Kind == Released && r.Registration() && r.Ended == endedByExit:
		if s.nLeft++; len(s.left) < maxUnreleased {
			s.left = append(s.left, Unreleased{Record: *r})
		}
	}
}

// time adds the duration of each step: the steps are returns, in order.
func (s *Stats) time(r *Record) {
	s.call.Add(r.Duration)
	var last time.Duration
	for _, st := range r.Steps {
		l := s.stages[st.Function]
		if l == nil {
			if len(s.stages) >= maxStages {
				return
			}
			l = &histogram.Histogram{}
			s.stages[st.Function] = l
			s.order = append(s.order, st.Function)
		}
		l.Add(st.At - last)
		last = st.At
	}
}

// maxStages bounds the functions whose time is kept: exporters' operations
// have names of their own.
const maxStages = 256

// Summary returns what was added so far. live are the records that have not
// ended (Tracer.Records), loss is the tracer's.
func (s *Stats) Summary(live []Record, loss Loss) Summary {
	out := Summary{
		Events: map[EventKind]uint64{}, Memory: map[string]uint64{}, Refusals: map[string]uint64{},
		Latency: []Latency{}, Unreleased: []Unreleased{}, NUnreleased: s.nLeft, Loss: loss,
	}
	for k, n := range s.events {
		out.Events[k] = n
	}
	for k, n := range s.memory {
		out.Memory[k] = n
	}
	for k, n := range s.refusals {
		out.Refusals[k] = n
	}
	if s.call.Count() > 0 {
		out.Latency = append(out.Latency, summary("", &s.call))
	}
	for _, name := range s.order {
		out.Latency = append(out.Latency, summary(name, s.stages[name]))
	}
	for _, r := range live {
		if !r.Registration() {
			continue
		}
		if out.NUnreleased++; len(out.Unreleased) < maxUnreleased {
			out.Unreleased = append(out.Unreleased, Unreleased{Record: r, Lives: true})
		}
	}
	out.Unreleased = append(out.Unreleased, s.left...)
	slices.SortStableFunc(out.Unreleased, func(a, b Unreleased) int { return a.Record.Start.Compare(b.Record.Start) })
	return out
}

func refusalName(f Failure) string {
	return fmt.Sprintf("%s: %s", f.Stage, errno.Name(f.Errno))
}

func summary(name string, h *histogram.Histogram) Latency {
	return Latency{Function: name, Count: h.Count(), P50: h.Quantile(500), P99: h.Quantile(990), Max: h.Max()}
}

// MarshalJSON adds the explanation of a record that failed.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	out := struct {
		plain
		Failure *Failure `json:"failure,omitempty"`
	}{plain: plain(e)}
	if e.Record.Failed() && e.Kind != Probed {
		f := e.Record.Explain()
		out.Failure = &f
	}
	return json.Marshal(out)
}
