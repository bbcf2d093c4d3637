// SPDX-License-Identifier: Apache-2.0

package chain

import "fmt"

// Link is one condition that has to hold for a NIC to reach a GPU's memory.
type Link int

// The links, in the order in which a registration and its traffic meet them.
const (
	// Library: the vendor's library gives this GPU's memory away for peer-to-peer at all.
	Library Link = iota
	// Route: the NIC's driver can register the GPU's memory, by a dma-buf or a peer-memory client.
	Route
	// Attach: the exporter lets this importer attach, and leaves the buffer in the GPU.
	Attach
	// Decision: the kernel's peer-to-peer decision, where the exporter asks for it.
	Decision
	// Addresses: the addresses that the NIC gets are valid for it behind its IOMMU.
	Addresses
	// Fabric: bridges and root complex carry what the NIC sends to these addresses.
	Fabric
	// Log: the kernel has logged nothing that contradicts. It never makes a pair direct.
	Log
	// Proof: the pair was tried on this machine. It decides in both directions.
	Proof
	// Links is the number of links.
	Links
)

var linkNames = [Links]string{"library", "route", "attach", "decision", "addresses", "fabric", "log", "proof"}

var questions = [Links]string{
	"the vendor's library gives this GPU's memory to NICs",
	"the NIC's driver can register the memory",
	"the exporter lets the NIC attach and leaves the buffer in the GPU",
	"the kernel lets the two reach each other",
	"the addresses that the NIC gets are valid for it",
	"bridges and root complex carry the traffic",
	"the kernel's log does not contradict",
	"a live proof has shown it",
}

// String returns the name of the link: "attach".
func (l Link) String() string {
	if l < 0 || l >= Links {
		return fmt.Sprintf("invalid (%d)", int(l))
	}
	return linkNames[l]
}

// Claim returns the statement that is true if the link holds.
func (l Link) Claim() string {
	if l < 0 || l >= Links {
		return l.String()
	}
	return questions[l]
}

// ParseLink reads the name of a link, as String writes it. The error for another name lists the links.
func ParseLink(s string) (Link, error) {
	for l, name := range linkNames {
		if s == name {
			return Link(l), nil
		}
	}
	return 0, fmt.Errorf("chain: %q is no link; the links are %v", s, linkNames)
}
