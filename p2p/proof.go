// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/placement"
)

// Rung is a step of a proof.
type Rung int

// The rungs, in their order.
const (
	RungAllocate Rung = iota // memory on the GPU
	RungExport               // as a dma-buf
	RungRegister             // with the NIC
	RungPlace                // where the bytes are, by trace
	RungRoute                // which way they take, by trace
	RungWrite                // RDMA WRITE, and every byte compared
	RungRead                 // RDMA READ, and every byte compared
	RungOrder                // no flag before the data that was written ahead of it
	RungRelease              // nothing is left
	rungs
)

var rungNames = [rungs]string{"allocated", "exported", "registered", "placed", "route", "written", "read", "ordered", "released"}

// String names the rung, as the JSON document does.
func (r Rung) String() string {
	if r < 0 || r >= rungs {
		return "invalid"
	}
	return rungNames[r]
}

// Step is the result of a rung.
type Step struct {
	Result Result // pass, fail, unknown; skip if it was not reached, or is not to be
	Detail string
}

// Proof is the result of trying a pair. Package live makes proofs.
type Proof struct {
	// Outcome is the outcome that the proof shows: OutcomeUnknown without a trace.
	Outcome chain.Outcome
	Errno   unix.Errno // of Refused
	Stage   string     // of Refused: the stage that refused, by the trace or else by the errno
	Why     string     // the evidence for the outcome, or why there is none
	Steps   [rungs]Step

	Placement *placement.Placement // nil without a trace, or if nothing was registered
	Resident  *Resident            // nil if nothing was registered
	Verified  int64                // bytes that were compared and found right
	// WriteRate and ReadRate are bytes per second, one transfer at a time; 0 if
	// there was none. The others are those of host memory, by the same NIC.
	WriteRate, ReadRate         float64
	HostWriteRate, HostReadRate float64
	Uncompared                  string // why the rates of host memory are missing
	Elapsed                     time.Duration

	Memory string // the kind of memory: "vram"; "" if none was allocated
	Size   int64  // bytes that were allocated

	Watch Watch
}

// NewProof is the proof of a pair for which no rung was reached.
func NewProof() *Proof {
	p := &Proof{}
	for i := range p.Steps {
		p.Steps[i] = NotReached
	}
	return p
}

// NotReached is a step of a proof that ended before it.
var NotReached = Step{ResultSkip, "not reached"}

// Failed reports a rung that broke: a refusal, wrong bytes, something left.
func (p *Proof) Failed() bool {
	for _, s := range p.Steps {
		if s.Result == ResultFail {
			return true
		}
	}
	return false
}

// Void takes a proof's outcome away: the pair may be judged by another machine than the one that was tried.
func (p *Proof) Void(format string, args ...any) {
	p.Outcome, p.Errno, p.Stage = chain.OutcomeUnknown, 0, ""
	p.Why = fmt.Sprintf(format, args...)
}

// String is the outcome, and the evidence for it.
func (p *Proof) String() string {
	outcome := p.Outcome.String()
	if p.Outcome == chain.Refused {
		outcome += " with " + errno.Name(p.Errno)
	}
	return outcome + ": " + p.Why
}

// last is the number of the last record of the kernel's log when the proof ended; nil if it is
// not known.
func (p *Proof) last() *uint64 {
	if p == nil {
		return nil
	}
	return p.Watch.Last
}

// SizeClass is the class of a size, for which a proof holds. What bounds a mapping differs between them:
// a huge page, and the smallest BAR that GPUs have.
func SizeClass(n int64) string {
	switch {
	case n <= 2<<20:
		return "up to 2 MiB"
	case n <= 256<<20:
		return "up to 256 MiB"
	}
	return "above 256 MiB"
}

// Answer is the answer of the chain's link of proofs. A buffer in the GPU's memory proves no traffic if no
// bytes were moved.
func (p *Proof) Answer() chain.Answer {
	switch {
	case p == nil:
		return chain.Open("it was not tried")
	case p.Outcome == chain.OutcomeUnknown:
		return chain.Open("tried, and not proven: %s", p.Why)
	case p.Outcome != chain.Direct:
		a := chain.Break(p.Outcome, "%s", p.Why)
		a.Errno, a.Stage = p.Errno, chain.Stage(p.Stage)
		return a
	}
	for _, r := range []Rung{RungWrite, RungRead} {
		switch s := p.Steps[r]; {
		case s.Result == ResultFail:
			return chain.Break(chain.Lost, "%s: %s", r, s.Detail)
		case s.Result != ResultPass:
			return chain.Open("the bytes were placed in the GPU's memory, and whether traffic reaches it is not proven: %s: %s", r, s.Detail)
		}
	}
	return chain.Hold("%s", p.Why).With("live proof", "%d bytes compared, for memory %s", p.Verified, SizeClass(p.Size))
}
