// SPDX-License-Identifier: Apache-2.0

package result

import (
	"time"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/placement"
)

// Step is a step of a proof.
type Step struct {
	Step string `json:"step"` // the name of the step
	// `pass`: it succeeded. `fail`: it failed. `unknown`: its result is not known. `skip`: it does not
	// apply here, or was not reached.
	Result string `json:"result"`
	Detail string `json:"detail"` // what happened, in words
}

// Residence has the numbers of bytes that the GPU's driver has counted in the GPU's
// memory ([p2p.Resident]).
type Residence struct {
	Size    int64  `json:"size"`    // the size of the buffer
	Without int64  `json:"without"` // the count before the buffer was allocated
	Before  int64  `json:"before"`  // the count before the registration
	After   int64  `json:"after"`   // the count after the registration
	Error   string `json:"error"`   // why the counts are not known; "" if they are
}

// Proof is the result of trying a pair.
type Proof struct {
	Outcome string `json:"outcome"`         // the outcome that the trial proves; unknown if nothing proves one
	Errno   *Errno `json:"errno,omitempty"` // of a refusal: the error number, if it is known
	// Stage is the stage of a refusal, as the trace names it, if it is known: "uverbs", "get",
	// "range", "attach", "pin", "map", "vmap", "driver".
	Stage     string               `json:"stage,omitempty"`
	Why       string               `json:"why"`       // the evidence for the outcome, or why the outcome is not known
	Agrees    placement.Answer     `json:"agrees"`    // whether the prediction was the same; unknown if one of the two is
	Steps     []Step               `json:"steps"`     // all steps of a trial, in their order
	Placement *placement.Placement `json:"placement"` // where a trace saw the bytes; null without a trace, or a registration
	// Resident is what the GPU's driver counts of this process in the GPU's memory, by fdinfo; null
	// without a registration.
	Resident  *Residence `json:"resident"`
	Memory    string     `json:"memory"`            // the kind of memory that was allocated: "vram"; "" if none was
	Size      int64      `json:"size"`              // the bytes that were allocated; 0 if none were
	Verified  int64      `json:"verified_bytes"`    // the bytes that were compared and found right, in both directions
	WriteRate float64    `json:"write_bytes_per_s"` // of WRITEs of the GPU's memory, one at a time; 0 if there were none
	ReadRate  float64    `json:"read_bytes_per_s"`  // of READs of the GPU's memory, one at a time; 0 if there were none
	// HostWrite is the rate of WRITEs of host memory by this NIC, in turn with those of the GPU's; 0
	// if it was not measured.
	HostWrite float64 `json:"host_write_bytes_per_s"`
	// HostRead is the rate of READs of host memory by this NIC, in turn with those of the GPU's; 0 if
	// it was not measured.
	HostRead  float64       `json:"host_read_bytes_per_s"`
	Elapsed   time.Duration `json:"elapsed_ns"`  // the time that the trial took
	Log       []string      `json:"log"`         // the lines of the kernel's log during the trial that matter here
	LogOthers int           `json:"log_others"`  // how many other lines the kernel's log got meanwhile
	LogError  string        `json:"log_error"`   // why the kernel's log of that time is not known in full; "" if it is
	Links     []string      `json:"link_errors"` // the error counters of PCI Express links on the way that grew
	Losses    []string      `json:"losses"`      // the counters of lost packets, of the NIC's ports, that grew
}

// Live is the summary of the proofs of a run.
type Live struct {
	// Proven are the pairs that were tried, by what the trial proves; one without written and read
	// bytes counts as unknown.
	Proven       Summary       `json:"proven"`
	Tried        int           `json:"tried"`        // how many pairs were tried
	Contradicted int           `json:"contradicted"` // how many of these were predicted otherwise
	Untraced     string        `json:"untraced"`     // why no trace says where the bytes were; "" if there was one
	Unmoved      string        `json:"unmoved"`      // why no bytes were written and read; "" if they were
	Untried      string        `json:"untried"`      // why no pair was tried; "" if one was
	Elapsed      time.Duration `json:"elapsed_ns"`   // the time that all trials took
}

// Became returns the outcome of a pair that was tried, as the run counts it: that of the proof,
// or that of the log if the log contradicts, or unknown if the proof does not hold.
func Became(p Pair) string {
	if p.Decides == chain.Log.String() {
		return p.Outcome
	}
	for _, l := range p.Links {
		switch {
		case l.Link != chain.Proof.String():
		case l.State == chain.Holds.String():
			return chain.Direct.String()
		case l.State == chain.Breaks.String() && p.Decides == l.Link:
			return p.Outcome
		}
	}
	return chain.OutcomeUnknown.String()
}

// Still reports whether a pair's proof has found the buffer in the GPU's memory, and has moved
// no bytes.
func Still(p Pair) bool {
	return p.Proof != nil && p.Decides != chain.Log.String() && p.Proof.Outcome == chain.Direct.String() && Became(p) == chain.OutcomeUnknown.String()
}

// add counts a pair that was tried.
func (r *Live) add(p Pair) {
	if p.Proof == nil {
		return
	}
	r.Proven.add(Pair{Counts: p.Counts, Outcome: Became(p)})
	if p.Proof.Agrees == placement.No {
		r.Contradicted++
	}
}

func proofOf(p p2p.Pair) *Proof {
	q := p.Proof
	if q == nil {
		return nil
	}
	out := &Proof{
		Outcome: q.Outcome.String(), Stage: q.Stage, Why: q.Why, Agrees: p.Agrees(), Placement: q.Placement,
		Memory: q.Memory, Size: q.Size, Verified: q.Verified, WriteRate: q.WriteRate, ReadRate: q.ReadRate, HostWrite: q.HostWriteRate, HostRead: q.HostReadRate, Elapsed: q.Elapsed,
		Log: List(q.Watch.Lines), LogOthers: q.Watch.Others, Links: List(q.Watch.Errors), Losses: List(q.Watch.Losses),
	}
	for i, s := range q.Steps {
		out.Steps = append(out.Steps, Step{p2p.Rung(i).String(), s.Result.String(), s.Detail})
	}
	out.Errno = errnoOf(q.Errno)
	if r := q.Resident; r != nil {
		out.Resident = &Residence{Size: r.Size, Without: r.Without, Before: r.Before, After: r.After}
		if r.Err != nil {
			out.Resident.Error = r.Err.Error()
		}
	}
	if err := q.Watch.LogErr; err != nil {
		out.LogError = err.Error()
	}
	return out
}

// failed reports a proof with a failed step.
func (q *Proof) failed() bool {
	for _, s := range q.Steps {
		if s.Result == p2p.ResultFail.String() {
			return true
		}
	}
	return false
}

// String returns the outcome and the reason.
func (q *Proof) String() string {
	outcome := q.Outcome
	if q.Errno != nil {
		outcome += " with " + q.Errno.Name
	}
	return outcome + ": " + q.Why
}

// broken reports a run with a proof that contradicts its prediction, or that has a failed step.
func (r Run) broken() bool {
	for _, p := range r.Pairs {
		if p.Proof != nil && p.Counts && (p.Proof.Agrees == placement.No || p.Proof.failed()) {
			return true
		}
	}
	return false
}
