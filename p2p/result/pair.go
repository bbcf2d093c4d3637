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
	PCI  pciaddr.Addr `json:"pci"`  // the PCI address of the port
	Bits string       `json:"bits"` // the ACS bits by which it redirects: "request redirect, completion redirect"
}

// Decision is the kernel's decision about the two PCI functions of a pair.
type Decision struct {
	Type      string           `json:"map_type"`  // how one function reaches the memory of the other
	Supported placement.Answer `json:"supported"` // whether the kernel lets the two reach each other
	// Steps is the length of the way from one function to the other, as the kernel counts it; null if
	// not known.
	Steps    *int `json:"steps"`
	Distance *int `json:"distance"` // what pci_p2pdma_distance() returns: -1 if not supported; null if not known
	// Common is the PCI address of the nearest common bridge, or of the function itself; null if there
	// is none, and the way leads over the root.
	Common    *pciaddr.Addr `json:"common"`
	Redirects []Redirect    `json:"redirects"` // the ports on the way that redirect to the root
	Why       []string      `json:"why"`       // the reasons
}

// Remedy is a change for a pair, in the form of the document: see chain.Remedy.
type Remedy struct {
	Change  string `json:"change"`            // what to change, in words
	Command string `json:"command,omitempty"` // a command, or a parameter of the kernel
	Weakens string `json:"weakens,omitempty"` // the protection that the change gives up
	// Direct says that with this change alone the prediction is direct. If it is false, the change
	// makes an unknown answer known, or the pair needs other changes, too.
	Direct bool `json:"direct"`
}

// Evidence is the source of an answer: a file or another source, and the value that it showed.
type Evidence struct {
	File  string `json:"file"`  // a file of the machine, a library or a command
	Value string `json:"value"` // the value that it shows
}

// Link is the answer to one link of a pair's chain.
type Link struct {
	Link     string     `json:"link"`     // which link it is
	State    string     `json:"state"`    // whether it is known to hold
	Why      []string   `json:"why"`      // the reasons, the conclusion last
	Evidence []Evidence `json:"evidence"` // the files and other sources of the answer
	Remedy   *Remedy    `json:"remedy"`   // what makes the link hold, or known; null without one
}

// Registration is what the kernel and the drivers are predicted to do when the NIC registers the
// GPU's memory: the links from route to addresses.
type Registration struct {
	Outcome string `json:"outcome"`         // the predicted outcome of the registration
	Errno   *Errno `json:"errno,omitempty"` // the error number of a refusal, if it is known
	// Stage is the stage that refuses, if it is known: "export", "uverbs", "attach", "map", "driver".
	Stage string   `json:"stage,omitempty"`
	Why   []string `json:"why"` // the reasons, the conclusion last
}

// Pair is a GPU and a NIC, with their prediction and proof.
type Pair struct {
	GPU       string `json:"gpu"`       // the name of the GPU
	NIC       string `json:"nic"`       // the name of the NIC
	Outcome   string `json:"outcome"`   // the outcome by all links, the kernel's log and the proof
	Predicted string `json:"predicted"` // the outcome by the links from library to fabric, without log and proof
	Decides   string `json:"decides"`   // the link that decides the outcome; "" where all links hold
	// Counts says that the GPU has memory of its own: the pair counts in the summary and for the
	// status.
	Counts bool   `json:"counts"`
	Errno  *Errno `json:"errno,omitempty"` // of a refusal: the error number, if it is known
	// Stage is the stage of a refusal, if it is known: "export", "uverbs", "attach", "map", "driver".
	// If a proof decides it is a stage of the trace: "uverbs", "get", "range", "attach", "pin", "map",
	// "vmap", "driver".
	Stage   string `json:"stage,omitempty"`
	Address string `json:"address"` // the kind of address by which the NIC reaches the memory

	Links []Link `json:"links"` // one answer for each link of the chain, in their order
	// Costs are the reasons why a direct pair is slower than it could be. The matrix has ^ where a
	// remedy of the link makes it faster.
	Costs []string `json:"costs"`
	// Registration is what the kernel and the drivers are predicted to do when the NIC registers the
	// memory. A proof is compared with it.
	Registration Registration `json:"registration"`
	Decision     Decision     `json:"decision"` // the kernel's own decision about peer-to-peer between the two

	NCCL   string   `json:"nccl"`   // NCCL's letters for the way between the two: "PIX"; "" if there are none
	NVML   string   `json:"nvml"`   // the letters of nvidia-smi topo for that way; "" if there are none
	Why    []string `json:"why"`    // the chain of reasons, the conclusion last
	Notes  []string `json:"notes"`  // what matters for the pair and does not decide
	Remedy *Remedy  `json:"remedy"` // what to change; null of a direct pair, and without a remedy
	Proof  *Proof   `json:"proof"`  // the result of trying the pair; null if it was not tried
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
	Name   string `json:"name"`   // the kernel's name: "ENOTSUPP"
	Number int    `json:"number"` // a positive number
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
