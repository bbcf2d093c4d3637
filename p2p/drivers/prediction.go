// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/placement"
)

// Address is the kind of addresses that the importer gets for the buffer.
type Address int

// The kinds. Bus and physical addresses are equal numbers on most machines. They differ
// behind an IOMMU: traffic to a bus address does not pass it.
const (
	AddressUnknown  Address = iota // not known, or no registration is predicted to succeed
	AddressBus                     // an address of the PCI bus, which no IOMMU translates
	AddressPhysical                // an address of the CPU
	AddressIOVA                    // an address that the IOMMU translates
)

// String returns the kind of addresses in words.
func (a Address) String() string {
	switch a {
	case AddressUnknown:
		return "unknown"
	case AddressBus:
		return "bus address"
	case AddressPhysical:
		return "physical address"
	case AddressIOVA:
		return "IOVA"
	}
	return fmt.Sprintf("invalid (%d)", int(a))
}

// Prediction says what the kernel and the drivers do when an importer attaches to a buffer in a
// GPU's memory, pins it if its driver pins, and maps it. It answers the links from [chain.Route]
// to [chain.Addresses]. It does not say whether bytes then arrive.
type Prediction struct {
	Outcome chain.Outcome
	Errno   unix.Errno  // of Refused
	Stage   chain.Stage // of Refused
	// Address is the kind of addresses that the importer gets with Direct and Staged.
	Address  Address
	Decision p2pdma.Decision
	// ByPeerMem says that the memory is registered through a peer-memory client, without a
	// dma-buf.
	ByPeerMem bool
	// Chain has the answers of the links from Route to Addresses. The caller must not change it.
	Chain *chain.Chain
	// Why is the chain of reasons, the conclusion last.
	Why []string
	// Notes are facts that matter, and do not change the outcome.
	Notes []string
}

// String returns the outcome and the reasons:
//
//	staged: ACS redirect at 0000:02:00.0 (request redirect); …; amdgpu moves the buffer to system memory
func (p Prediction) String() string {
	outcome := p.Short()
	if p.Outcome == chain.Refused && p.Stage != "" {
		outcome += " by " + string(p.Stage)
	}
	return outcome + ": " + strings.Join(p.Why, "; ")
}

// Short returns the outcome, with the errno of a refusal.
func (p Prediction) Short() string {
	if p.Outcome == chain.Refused && p.Errno != 0 {
		return fmt.Sprintf("%v with %s", p.Outcome, errno.Name(p.Errno))
	}
	return p.Outcome.String()
}

// conclude makes the outcome from the answers of the four links. It does not use the other
// links.
func (p Prediction) conclude() Prediction {
	c := *p.Chain
	for _, l := range []chain.Link{chain.Library, chain.Fabric} {
		c[l] = chain.Skip("")
	}
	v := c.Conclude()
	p.Outcome, p.Errno, p.Stage, p.Why = v.Outcome(), v.Errno(), v.Stage(), nil
	last := chain.Addresses
	if l, ok := v.Decides(); ok {
		last = l
	}
	for l := chain.Route; l <= last; l++ {
		p.Why = append(p.Why, p.Chain[l].Why...)
	}
	if p.Outcome != chain.Direct && p.Outcome != chain.Staged {
		p.Address = AddressUnknown
	}
	return p
}

// open makes a link of the prediction unknown.
func (p Prediction) open(l chain.Link, format string, args ...any) Prediction {
	c := *p.Chain
	was := c[l].Why
	c[l] = chain.Open(format, args...)
	c[l].Why = append(was[:len(was):len(was)], c[l].Why...)
	p.Chain = &c
	return p.conclude()
}

// Predict predicts a registration, by a dma-buf. If that is not known to reach the memory, and a
// peer-memory client does, it predicts the registration by the client. The importer is the only
// one of its buffer.
func Predict(m *machine.Machine, e Exporter, i Importer) Prediction {
	p := byDMABuf(m, e, i)
	if p.Outcome == chain.Direct || e.PCI == nil || i.PCI == nil && !i.Unplaced || i.ByCPU {
		return p
	}
	asks := asksPeers(m, i.Driver)
	switch registered, where := PeerClient(m, e.Driver); {
	case asks == placement.No:
	case registered == placement.Yes && asks != placement.Yes:
		if p.Chain[chain.Route].State == chain.Breaks {
			p = p.open(chain.Route, "%s is registered with ib_core, and whether %s asks it is not known", peerName(e.Driver), i.DriverName())
		}
	case registered == placement.Yes:
		if q := predict(m, e, i, true); q.Outcome == chain.Direct || p.Chain[chain.Route].State != chain.Holds {
			return q
		}
	case registered == placement.AnswerUnknown:
		if p.Chain[chain.Route].State == chain.Breaks {
			p = p.open(chain.Route, "whether %s is registered with ib_core is not known", peerName(e.Driver))
			p.Chain[chain.Route] = p.Chain[chain.Route].With(where, "not read")
		}
	}
	return p
}

// byDMABuf predicts a registration by a dma-buf. If the kind of the importer is not known, the
// prediction is known only if it is the same for all kinds.
func byDMABuf(m *machine.Machine, e Exporter, i Importer) Prediction {
	if i.Kind != KindUnknown {
		return predict(m, e, i, false)
	}
	var first Prediction
	for n, kind := range []Kind{Pinned, Revocable, Dynamic} {
		i.Kind = kind
		p := predict(m, e, i, false)
		switch {
		case n == 0:
			first = p
		case p.Outcome != first.Outcome || p.Errno != first.Errno || p.Stage != first.Stage:
			was, c := first, *first.Chain
			c[chain.Attach] = chain.Answer{} // its reasons belong to one kind only
			first.Chain = &c
			return imports(first.open(chain.Attach, "the importer's kind is not known: if it is %v, %v; if it is %v, %v", Pinned, was, kind, p), i)
		}
	}
	if first.Outcome == chain.Direct && i.OutOfTree && i.PeerToPeer && i.Driver != alwaysPeer {
		host := i
		host.PeerToPeer = false
		if p := predict(m, e, host, false); p.Outcome != chain.Direct {
			first = first.open(chain.Attach, "the driver of the NIC may not be the kernel's own, and whether it wants peer-to-peer is not known: if not, the outcome is %v", p.Outcome)
		}
	}
	return imports(first, i)
}

// imports doubts the route of an importer of which it is not known whether it imports at all.
func imports(p Prediction, i Importer) Prediction {
	if i.Imports || !p.Chain[chain.Route].State.Good() {
		return p
	}
	return p.open(chain.Route, "whether %s imports dma-bufs at all is not known", i.DriverName())
}

// alwaysPeer is a driver that always wants peer-to-peer: the kernel's own since it imports
// dma-bufs, and MLNX_OFED's in the copy of its mr.c that was read.
const alwaysPeer = "mlx5_core"
