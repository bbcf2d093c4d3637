// SPDX-License-Identifier: Apache-2.0

package result

import (
	"time"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/placement"
)

// Step is a rung of a proof.
type Step struct {
	Step   string `json:"step"`   // the name of a p2p.Rung
	Result string `json:"result"` // the name of a p2p.Result
	Detail string `json:"detail"`
}

// Residence has the numbers of bytes that the GPU's driver has counted in the GPU's memory: see
// p2p.Resident.
type Residence struct {
	Size    int64  `json:"size"`
	Without int64  `json:"without"`
	Before  int64  `json:"before"`
	After   int64  `json:"after"`
	Error   string `json:"error"`
}

// Proof is the result of trying a pair.
type Proof struct {
	Outcome   string               `json:"outcome"`
	Errno     *Errno               `json:"errno,omitempty"`
	Stage     string               `json:"stage,omitempty"`
	Why       string               `json:"why"`
	Agrees    placement.Answer     `json:"agrees"` // with the prediction; unknown if one of the two is
	Steps     []Step               `json:"steps"`  // all rungs, in their order
	Placement *placement.Placement `json:"placement"`
	Resident  *Residence           `json:"resident"`
	Memory    string               `json:"memory"`                 // the kind: "vram"; "" if none was allocated
	Size      int64                `json:"size"`                   // bytes that were allocated
	Verified  int64                `json:"verified_bytes"`         // compared and found right
	WriteRate float64              `json:"write_bytes_per_s"`      // of one transfer at a time; 0 if there was none
	ReadRate  float64              `json:"read_bytes_per_s"`       // likewise
	HostWrite float64              `json:"host_write_bytes_per_s"` // of host memory over the same NIC
	HostRead  float64              `json:"host_read_bytes_per_s"`  // likewise
	Elapsed   time.Duration        `json:"elapsed_ns"`
	Log       []string             `json:"log"`         // lines of the kernel's log meanwhile that concern the pair
	LogOthers int                  `json:"log_others"`  // the number of other lines
	LogError  string               `json:"log_error"`   // why the log is not known, or not whole; "" otherwise
	Links     []string             `json:"link_errors"` // the error counters of links that increased
	Losses    []string             `json:"losses"`      // the loss counters of the NIC's ports that increased
}

// Live is the summary of the proofs of a run.
type Live struct {
	Proven       Summary       `json:"proven"`
	Tried        int           `json:"tried"`        // pairs
	Contradicted int           `json:"contradicted"` // pairs whose proof contradicts the prediction
	Untraced     string        `json:"untraced"`     // why no trace says where the bytes were; "" if there was one
	Unmoved      string        `json:"unmoved"`      // why no bytes were written and read; "" if they were
	Untried      string        `json:"untried"`      // why no pair was tried
	Elapsed      time.Duration `json:"elapsed_ns"`
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
