// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/placement"
)

// Redirect is a port that redirects peer-to-peer traffic to the root, and the ACS bits that make
// it do so.
type Redirect struct {
	PCI  machine.Addr `json:"pci"`
	Bits string       `json:"bits"`
}

// Decision is the kernel's decision about the two PCI functions of a pair.
type Decision struct {
	Type      string           `json:"map_type"`
	Supported placement.Answer `json:"supported"`
	Steps     *int             `json:"steps"`
	Distance  *int             `json:"distance"`
	Common    *machine.Addr    `json:"common"`
	Redirects []Redirect       `json:"redirects"`
	Why       []string         `json:"why"`
}

// Remedy is what to change so that a pair becomes direct.
type Remedy struct {
	Change  string `json:"change"`
	Command string `json:"command,omitempty"`
	Weakens string `json:"weakens,omitempty"`
	Direct  bool   `json:"direct"`
}

// Pair is a GPU and a NIC, and the prediction for a registration of the GPU's memory with the
// NIC.
type Pair struct {
	GPU      string   `json:"gpu"`
	NIC      string   `json:"nic"`
	Outcome  string   `json:"outcome"`
	Counts   bool     `json:"counts"`
	Errno    *Errno   `json:"errno,omitempty"`
	Stage    string   `json:"stage,omitempty"`
	Address  string   `json:"address"`
	Decision Decision `json:"decision"`
	NCCL     string   `json:"nccl"`
	NVML     string   `json:"nvml"`
	Why      []string `json:"why"`
	Notes    []string `json:"notes"`
	Remedy   *Remedy  `json:"remedy"`
	Proof    *Proof   `json:"proof"`
}

// PairOf writes a pair without its proof.
func PairOf(p p2p.Pair) Pair {
	out := Pair{
		GPU: p.GPU.Name, NIC: p.NIC.Name, Counts: p.GPU.Exporter.Class != drivers.ClassSystem,
		Outcome: p.Prediction.Outcome.String(), Stage: string(p.Prediction.Stage), Address: p.Prediction.Address.String(),
		Decision: decisionOf(p.Prediction.Decision), NCCL: p.Letters.NCCL, NVML: p.Letters.NVML,
		Why: List(p.Prediction.Why), Notes: List(p.Prediction.Notes),
	}
	if e := p.Prediction.Errno; e != 0 {
		out.Errno = errnoOf(e)
	}
	if p.Remedy != nil {
		out.Remedy = (*Remedy)(p.Remedy)
	}
	return out
}

func decisionOf(d p2pdma.Decision) Decision {
	out := Decision{Type: d.Type.String(), Supported: d.Supported, Common: d.Common, Redirects: []Redirect{}, Why: List(d.Why)}
	if d.Steps >= 0 {
		out.Steps = &d.Steps
	}
	if n, ok := d.Distance(); ok {
		out.Distance = &n
	}
	for _, r := range d.Redirects {
		out.Redirects = append(out.Redirects, Redirect{r.PCI, r.Bits.String()})
	}
	return out
}

// Errno is an error number of the kernel, and its name.
type Errno struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

func errnoOf(e unix.Errno) *Errno { return &Errno{Name: errno.Name(e), Number: int(e)} }

// IsOutcome reports whether name is the name of an outcome.
func IsOutcome(name string) bool {
	return slices.ContainsFunc([]chain.Outcome{chain.Direct, chain.Staged, chain.Refused, chain.OutcomeUnknown}, func(o chain.Outcome) bool { return o.String() == name })
}

// OfAny returns the change in words that hold for other GPUs as well as for the one that is named.
func (r *Remedy) OfAny(gpu string) string { return strings.ReplaceAll(r.Change, gpu, "the GPU") }

// OverRoot reports a pair that is direct although a port on the way redirects its traffic over
// the root.
func (p Pair) OverRoot() bool {
	return p.Counts && p.Outcome == chain.Direct.String() && len(p.Decision.Redirects) > 0
}
