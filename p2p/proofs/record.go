// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Record is the outcome of a pair when it was tried, and the circumstances of the trial.
type Record struct {
	GPU   string    `json:"gpu"`   // the name of the GPU
	NIC   string    `json:"nic"`   // the name of the NIC
	Taken time.Time `json:"taken"` // when the proof was taken

	Outcome string `json:"outcome"`         // the outcome of the trial: "direct", "staged", "refused", "lost", "broken"
	Errno   int    `json:"errno,omitempty"` // the error number of a refusal
	Stage   string `json:"stage,omitempty"` // the stage of a refusal, as the trace names it: "map"
	Why     string `json:"why"`             // the evidence for the outcome, in words

	Memory   string  `json:"memory"`              // the kind of memory that was tried: "vram"
	Class    string  `json:"size_class"`          // the class of its size: "up to 2 MiB", "up to 256 MiB", "above 256 MiB"
	LastLine *uint64 `json:"last_line,omitempty"` // the number of the kernel log's last record when the proof ended

	Circumstances Circumstances `json:"circumstances"` // the facts that the proof depends on, by file or by name
	Links         []Link        `json:"links"`         // the states of the links, from library to fabric
}

// Link is the state of a link when the proof was taken.
type Link struct {
	Link  string `json:"link"`  // the name of the link, as that of a pair's links
	State string `json:"state"` // its state, as that of a pair's links
}

// recordOf is the record of a trial. It is false for a pair whose proof decides nothing.
func recordOf(t Trial, now time.Time) (Record, bool) {
	p := t.Pair
	if p.Proof == nil {
		return Record{}, false
	}
	answer := p.Proof.Answer()
	out := Record{
		GPU: p.GPU.Name, NIC: p.NIC.Name, Taken: now.UTC().Truncate(time.Second), Why: answer.Text(),
		Memory: p.Proof.Memory, Class: p2p.SizeClass(p.Proof.Size), LastLine: p.Proof.Watch.Last,
		Circumstances: t.After, Links: linksOf(p.Verdict),
	}
	switch answer.State {
	case chain.Holds:
		out.Outcome = chain.Direct.String()
	case chain.Breaks:
		out.Outcome, out.Stage = answer.Outcome.String(), string(answer.Stage)
		out.Errno = int(answer.Errno)
	default:
		return out, false
	}
	return out, true
}

func linksOf(v chain.Verdict) []Link {
	var out []Link
	for l := chain.Library; l <= chain.Fabric; l++ {
		out = append(out, Link{l.String(), v.Link(l).State.String()})
	}
	return out
}

// answer is the link of the proof for a pair that the record covers.
func (r Record) answer(file string) chain.Answer {
	outcome, _ := chain.ParseOutcome(r.Outcome) // Read has parsed it before
	of := strings.TrimSpace(r.Memory + " " + r.Class)
	if outcome == chain.Direct {
		return chain.Hold("proven at %s for %s, without another importer: %s", r.Taken.Format(time.RFC3339), of, r.Why).With(file, "%s", r.Outcome)
	}
	a := chain.Break(outcome, "tried at %s with %s: %s", r.Taken.Format(time.RFC3339), of, r.Why).With(file, "%s", r.Outcome)
	a.Stage, a.Errno = chain.Stage(r.Stage), unix.Errno(r.Errno)
	return a
}
