// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/p2p/terminal"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Redirect is a port that redirects peer-to-peer traffic to the root, with the ACS bits by which
// it does.
type Redirect struct {
	PCI  pciaddr.Addr `json:"pci"`
	Bits string       `json:"bits"`
}

// Decision is the kernel's decision about the two PCI functions of a pair.
type Decision struct {
	Type      string           `json:"map_type"` // the name of a p2pdma.MapType
	Supported placement.Answer `json:"supported"`
	Steps     *int             `json:"steps"`    // the length of the way; nil if it is not known
	Distance  *int             `json:"distance"` // the result of pci_p2pdma_distance(); nil if it is not known
	Common    *pciaddr.Addr    `json:"common"`   // the nearest common bridge; nil if there is none
	Redirects []Redirect       `json:"redirects"`
	Why       []string         `json:"why"`
}

// Remedy is a change for a pair, in the form of the document: see chain.Remedy.
type Remedy struct {
	Change  string `json:"change"`
	Command string `json:"command,omitempty"`
	Weakens string `json:"weakens,omitempty"`
	Direct  bool   `json:"direct"`
}

// Evidence is the source of an answer: a file or another source, and the value that it showed.
type Evidence struct {
	File  string `json:"file"`
	Value string `json:"value"`
}

// Link is the answer to one link of a pair's chain.
type Link struct {
	Link     string     `json:"link"`  // the name of a chain.Link
	State    string     `json:"state"` // the name of a chain.State
	Why      []string   `json:"why"`
	Evidence []Evidence `json:"evidence"`
	Remedy   *Remedy    `json:"remedy"`
}

// Registration is what the kernel and the drivers are predicted to do when the NIC registers the
// GPU's memory: the links from route to addresses.
type Registration struct {
	Outcome string   `json:"outcome"`
	Errno   *Errno   `json:"errno,omitempty"`
	Stage   string   `json:"stage,omitempty"`
	Why     []string `json:"why"`
}

// Pair is a GPU and a NIC, with their prediction and proof.
type Pair struct {
	GPU       string `json:"gpu"`
	NIC       string `json:"nic"`
	Outcome   string `json:"outcome"`         // the name of a chain.Outcome
	Predicted string `json:"predicted"`       // by the links alone, without log and proof
	Decides   string `json:"decides"`         // the link that decides; "" where all links hold
	Counts    bool   `json:"counts"`          // the GPU has memory of its own
	Errno     *Errno `json:"errno,omitempty"` // of a refusal
	Stage     string `json:"stage,omitempty"` // of a refusal
	Address   string `json:"address"`         // the kind of addresses that the NIC gets: the name of a drivers.Address

	Links        []Link       `json:"links"`
	Costs        []string     `json:"costs"` // why a direct pair is slower than it could be
	Registration Registration `json:"registration"`
	Decision     Decision     `json:"decision"`

	NCCL   string   `json:"nccl"` // NCCL's name for the way, "PIX": machine.Letters
	NVML   string   `json:"nvml"` // nvidia-smi's name for the way
	Why    []string `json:"why"`
	Notes  []string `json:"notes"`
	Remedy *Remedy  `json:"remedy"` // nil for a direct pair, and if there is none
	Proof  *Proof   `json:"proof"`  // nil if the pair was not tried
}

// PairOf returns a pair in the form of the document, with escapes in place of control characters.
func PairOf(p p2p.Pair) Pair {
	v, q := p.Verdict, p.Prediction
	out := Pair{
		GPU: p.GPU.Name, NIC: p.NIC.Name, Counts: p.GPU.Exporter.Class != drivers.ClassSystem,
		Outcome: v.Outcome().String(), Predicted: v.Predicted().String(), Stage: string(v.Stage()), Address: q.Address.String(),
		Links: linksOf(p), Costs: List(v.Costs()),
		Registration: Registration{Outcome: q.Outcome.String(), Errno: errnoOf(q.Errno), Stage: string(q.Stage), Why: List(q.Why)},
		Decision:     decisionOf(q.Decision), NCCL: p.Letters.NCCL, NVML: p.Letters.NVML,
		Errno: errnoOf(v.Errno()), Why: List(v.Why()), Notes: List(q.Notes), Remedy: (*Remedy)(p.Remedy), Proof: proofOf(p),
	}
	if l, ok := v.Decides(); ok {
		out.Decides = l.String()
	}
	terminal.Clean(&out)
	return out
}

func linksOf(p p2p.Pair) []Link {
	var out []Link
	open := "" // the last link with reasons that does not hold
	for l := range chain.Links {
		a := p.Verdict.Link(l)
		switch {
		case a.State != chain.Unknown && a.State != chain.Breaks:
		case len(a.Why) > 0:
			open = l.String()
		case open != "":
			a.Why = []string{fmt.Sprintf("it depends on the link %q", open)}
		}
		link := Link{Link: l.String(), State: a.State.String(), Why: List(a.Why), Evidence: []Evidence{}, Remedy: (*Remedy)(p.Named(a.Remedy))}
		for _, e := range a.Evidence {
			link.Evidence = append(link.Evidence, Evidence(e))
		}
		out = append(out, link)
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

// errnoOf is nil for 0.
func errnoOf(e unix.Errno) *Errno {
	if e == 0 {
		return nil
	}
	return &Errno{Name: errno.Name(e), Number: int(e)}
}

// IsOutcome reports whether name is the name of an outcome.
func IsOutcome(name string) bool {
	_, err := chain.ParseOutcome(name)
	return err == nil
}

// OfAny returns Change with "the GPU" in place of the GPU's name. The Remedy must not be nil.
func (r *Remedy) OfAny(gpu string) string { return strings.ReplaceAll(r.Change, gpu, "the GPU") }

// Slow reports whether a change would make a direct pair faster. It is false for a way between
// sockets, which costs speed, too, but which no setting changes.
func (p Pair) Slow() bool {
	return p.Counts && len(p.Costs) > 0 && slices.ContainsFunc(p.Links, func(l Link) bool {
		return l.State == chain.Costs.String() && l.Remedy != nil
	})
}
