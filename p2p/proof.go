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

// String returns the rung in one word: "registered".
func (r Rung) String() string {
	if r < 0 || r >= rungs {
		return fmt.Sprintf("invalid (%d)", int(r))
	}
	return rungNames[r]
}

// Step is the result of a rung.
type Step struct {
	Result Result // pass, fail or unknown; skip if the rung was not reached, or does not apply
	Detail string
}

// Proof is the result of trying a pair. Package live makes proofs.
type Proof struct {
	// Outcome is the outcome that the proof shows; OutcomeUnknown without a trace, unless the registration
	// was refused.
	Outcome chain.Outcome
	Errno   unix.Errno // of Refused
	Stage   string     // of Refused: the stage that refused, by the trace, or by the errno without one
	Why     string     // the evidence for the outcome, or why there is none
	Steps   [rungs]Step

	Placement *placement.Placement // nil without a trace, or if nothing was registered
	Resident  *Resident            // nil if nothing was registered
	Verified  int64                // bytes that were compared and found right
	// WriteRate and ReadRate are bytes per second, of one transfer at a time; 0 if there was none.
	// HostWriteRate and HostReadRate are those of host memory over the same NIC.
	WriteRate, ReadRate         float64
	HostWriteRate, HostReadRate float64
	Uncompared                  string // why the rates of host memory are missing
	Elapsed                     time.Duration

	Memory string // the kind of memory: "vram"; "" if none was allocated
	Size   int64  // bytes that were allocated

	Watch Watch
}

// NewProof returns the proof of a pair of which no rung was reached.
func NewProof() *Proof {
	p := &Proof{}
	for i := range p.Steps {
		p.Steps[i] = NotReached
	}
	return p
}

// NotReached is the step of a proof that ended before this step.
var NotReached = Step{ResultSkip, "not reached"}

// Failed reports whether a rung failed: the registration was refused, bytes were wrong, or something was
// not released.
func (p *Proof) Failed() bool {
	for _, s := range p.Steps {
		if s.Result == ResultFail {
			return true
		}
	}
	return false
}

// Void makes the proof's outcome unknown, for the reason that the arguments format: the machine has
// changed between the proof and the verdict.
func (p *Proof) Void(format string, args ...any) {
	p.Outcome, p.Errno, p.Stage = chain.OutcomeUnknown, 0, ""
	p.Why = fmt.Sprintf(format, args...)
}

// String returns the outcome, and the evidence for it.
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

// SizeClass returns the class of a size in bytes: up to 2 MiB (a huge page), up to 256 MiB (the smallest
// BAR of GPUs), or above. A proof holds for the sizes of its class, because other limits apply to the
// others.
func SizeClass(n int64) string {
	switch {
	case n <= 2<<20:
		return "up to 2 MiB"
	case n <= 256<<20:
		return "up to 256 MiB"
	}
	return "above 256 MiB"
}

// Answer returns the answer to the link chain.Proof. If no bytes were moved, a buffer in the GPU's memory
// does not prove that traffic arrives.
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
