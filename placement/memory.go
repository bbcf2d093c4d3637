// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding"
	"fmt"
	"slices"
)

// Memory is where the bytes of a mapping are.
type Memory int

// The verdicts on memory.
const (
	Unknown           Memory = iota // not proven; the placement has the reason
	NotMapped                       // the kernel has refused the mapping, or has not made it yet
	SystemMemory                    // all bytes in the host's RAM
	PeerToPeer                      // all bytes behind a PCI BAR
	Mixed                           // some behind a BAR, some in RAM
	CoherentGPUMemory               // GPU memory that the CPU's memory map includes (GH200, MI300A)
	Bounced                         // copied through bounce buffers (swiotlb)
	Stale                           // moved after it was mapped; the next mapping may be elsewhere
)

var memoryNames = []string{
	"unknown", "not mapped", "system memory", "peer-to-peer", "mixed",
	"coherent GPU memory", "bounced", "stale",
}

// Proof is the kind of evidence for a verdict.
type Proof int

// The kinds of evidence, strongest first.
const (
	NoProof         Proof = iota // nothing proves it
	PhysicalAddress              // given to dma_map_resource, or in the exporter's physical vector: holds under an IOMMU
	BusAddress                   // the kernel chose PCI bus addresses: below a common switch
	StructPage                   // the pages in the scatter list: holds under an IOMMU
	DMAAddress                   // the address given to the device, which nothing translates
)

var proofNames = []string{
	"no proof", "physical address", "PCI bus address", "struct page", "untranslated DMA address",
}

// Route is the way that DMA takes from the importer to the bytes.
type Route int

// The routes.
const (
	RouteUnknown       Route = iota // not known, or the bytes are behind no BAR
	BelowSwitch                     // below a common PCIe switch
	ThroughRootComplex              // up to the host bridge and down again
)

var routeNames = []string{"unknown", "below a common switch", "through the root complex"}

// MapType is the kernel's decision on peer-to-peer DMA between two devices
// (enum pci_p2pdma_map_type, include/linux/pci-p2pdma.h; the numbers differ
// between kernels, so these are our own).
type MapType int

// The decisions.
const (
	MapTypeUnseen         MapType = iota // the watcher has not seen a decision
	MapTypeNone                          // no peer-to-peer memory
	MapTypeNotSupported                  // refused
	MapTypeBusAddr                       // bus addresses, below a common switch
	MapTypeThruHostBridge                // through the root complex
)

var mapTypeNames = []string{"unseen", "none", "not supported", "bus address", "through the host bridge"}

// Translation says whether an IOMMU translates the addresses that the importer
// uses.
type Translation int

// The states of the importer's IOMMU.
const (
	TranslationUnknown Translation = iota
	Untranslated                   // no IOMMU, or an identity domain: DMA addresses are physical
	Translated                     // DMA addresses are IOVAs
)

var translationNames = []string{"unknown", "none", "IOMMU"}

// Answer is yes, no, or unknown.
type Answer int

// The answers.
const (
	AnswerUnknown Answer = iota // it is not known, or not asked
	Yes                         // it is so
	No                          // it is not so
)

var answerNames = []string{"unknown", "yes", "no"}

func name(names []string, n int) string {
	if n < 0 || n >= len(names) {
		return fmt.Sprintf("invalid (%d)", n)
	}
	return names[n]
}

func parse(names []string, text []byte) (int, error) {
	if i := slices.Index(names, string(text)); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("placement: %q is none of %q", text, names)
}

// String returns the verdict in words, "peer-to-peer".
func (m Memory) String() string { return name(memoryNames, int(m)) }

// MarshalText makes a Memory a string in JSON: that of String.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (m *Memory) UnmarshalText(text []byte) error {
	n, err := parse(memoryNames, text)
	*m = Memory(n)
	return err
}

// String returns the evidence in words, "physical address".
func (p Proof) String() string { return name(proofNames, int(p)) }

// MarshalText makes a Proof a string in JSON: that of String.
func (p Proof) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *Proof) UnmarshalText(text []byte) error {
	n, err := parse(proofNames, text)
	*p = Proof(n)
	return err
}

// String returns the route in words.
func (r Route) String() string { return name(routeNames, int(r)) }

// MarshalText makes a Route a string in JSON: that of String.
func (r Route) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Route) UnmarshalText(text []byte) error {
	n, err := parse(routeNames, text)
	*r = Route(n)
	return err
}

// String returns the decision in words.
func (m MapType) String() string { return name(mapTypeNames, int(m)) }

// MarshalText makes a MapType a string in JSON: that of String.
func (m MapType) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (m *MapType) UnmarshalText(text []byte) error {
	n, err := parse(mapTypeNames, text)
	*m = MapType(n)
	return err
}

// String returns the state in words.
func (t Translation) String() string { return name(translationNames, int(t)) }

// MarshalText makes a Translation a string in JSON: that of String.
func (t Translation) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Translation) UnmarshalText(text []byte) error {
	n, err := parse(translationNames, text)
	*t = Translation(n)
	return err
}

// String returns "yes", "no" or "unknown".
func (a Answer) String() string { return name(answerNames, int(a)) }

// MarshalText makes an Answer a string in JSON: that of String.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (a *Answer) UnmarshalText(text []byte) error {
	n, err := parse(answerNames, text)
	*a = Answer(n)
	return err
}

var (
	_ encoding.TextUnmarshaler = (*Memory)(nil)
	_ encoding.TextUnmarshaler = (*Proof)(nil)
	_ encoding.TextUnmarshaler = (*Route)(nil)
	_ encoding.TextUnmarshaler = (*MapType)(nil)
	_ encoding.TextUnmarshaler = (*Translation)(nil)
	_ encoding.TextUnmarshaler = (*Answer)(nil)
)

// Any asks about each of a list, and returns Yes if one answer is Yes, No if
// all are No, and otherwise AnswerUnknown.
func Any[T any](list []T, ask func(T) Answer) Answer {
	out := No
	for _, x := range list {
		switch ask(x) {
		case Yes:
			return Yes
		case AnswerUnknown:
			out = AnswerUnknown
		}
	}
	return out
}
