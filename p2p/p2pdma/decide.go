// SPDX-License-Identifier: Apache-2.0

package p2pdma

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// MapType is how one function reaches the memory of another: the kernel's enum
// pci_p2pdma_map_type.
type MapType int

// The types.
const (
	MapUnknown           MapType = iota // a fact that decides is not known
	MapNone                             // no peer-to-peer: the memory does not belong to a PCI device
	MapNotSupported                     // PCI_P2PDMA_MAP_NOT_SUPPORTED
	MapBusAddress                       // PCI_P2PDMA_MAP_BUS_ADDR: below a common bridge, not through an IOMMU
	MapThroughHostBridge                // PCI_P2PDMA_MAP_THRU_HOST_BRIDGE
)

// String returns the type in words.
func (t MapType) String() string {
	switch t {
	case MapUnknown:
		return "unknown"
	case MapNone:
		return "none"
	case MapNotSupported:
		return "not supported"
	case MapBusAddress:
		return "bus address"
	case MapThroughHostBridge:
		return "through the host bridge"
	}
	return fmt.Sprintf("invalid (%d)", int(t))
}

// Redirect is a port that sends peer-to-peer traffic to the root.
type Redirect struct {
	PCI  pciaddr.Addr
	Bits pci.ACSBits // the bits that redirect
}

// String returns the port and its bits.
func (r Redirect) String() string { return fmt.Sprintf("ACS redirect at %v (%v)", r.PCI, r.Bits) }

// RedirectsRequests reports whether a port redirects the client's requests. A port redirects
// only traffic from below. So the ports of the provider's side redirect no request of the
// client; the port above both may.
func (d Decision) RedirectsRequests(m *machine.Machine, client pciaddr.Addr) bool {
	up := m.Node(client).Up
	return slices.ContainsFunc(d.Redirects, func(r Redirect) bool {
		return r.Bits&pci.ACSRequestRedirect != 0 && slices.Contains(up, r.PCI)
	})
}

// Decision is the kernel's decision on a client's traffic to a provider's memory.
type Decision struct {
	Type MapType
	// Supported says whether pci_p2pdma_distance() finds a way. It may be known although Type
	// is not.
	Supported placement.Answer
	// Steps is the length of the way from one function to the other, as the kernel counts
	// it; -1 if it is not known. It is set even if no way is supported.
	Steps int
	// Common is the nearest common bridge, or the function itself. It is nil if there is
	// none: the way then leads over the root.
	Common *pciaddr.Addr
	// Redirects are the ports that send the traffic to the root and not directly over
	// Common, in the kernel's order: the provider's side, the common bridge, the client's
	// side. pci=disable_acs_redir= takes these addresses.
	Redirects []Redirect
	// Why is the chain of reasons, the conclusion last.
	Why []string
	// Notes are facts that matter, and do not change the decision.
	Notes []string

	Unread error // why a deciding fact is not known
}

// Distance returns the result of pci_p2pdma_distance(), -1 if no way is supported; false if the
// result is not known.
func (d Decision) Distance() (int, bool) {
	switch {
	case d.Supported == placement.No:
		return -1, true
	case d.Supported == placement.Yes && d.Steps >= 0:
		return d.Steps, true
	}
	return 0, false
}

// String returns the type and the reasons.
func (d Decision) String() string { return d.Type.String() + ": " + strings.Join(d.Why, "; ") }

func (d *Decision) because(format string, args ...any) {
	d.Why = append(d.Why, fmt.Sprintf(format, args...))
}

// Decide returns the decision that the kernel makes on client's traffic to memory of
// provider. A nil client is a device that is on no PCI bus.
func Decide(m *machine.Machine, provider pciaddr.Addr, client *pciaddr.Addr) Decision {
	d := Decision{Steps: -1}
	if m.Kernel.P2PDMA == placement.No {
		return d.refuse("the kernel is built without %s (%s)", machine.ConfigP2PDMA, m.Kernel.Source)
	}
	if client == nil {
		return d.refuse("the client is on no PCI bus")
	}
	a, b := m.Node(provider), m.Node(*client)
	for _, n := range []*machine.Node{a, b} {
		if n.Err != nil {
			d.because("%v", n.Err)
			d.Unread = n.Err
			return d
		}
	}
	unread := walk(m, &d, a, b)
	d.Unread = unread
	switch {
	case d.Common != nil && len(d.Redirects) == 0 && unread == nil:
		d.Type, d.Supported = MapBusAddress, placement.Yes
		d.because("no port on the way redirects to the root")
	default:
		throughHost(m, &d, a, b, unread)
	}
	return asBuilt(m, d)
}

func (d Decision) refuse(format string, args ...any) Decision {
	d.Type, d.Supported = MapNotSupported, placement.No
	d.because(format, args...)
	return d
}

// walk finds the common bridge and the ports that redirect. unread says why it is not known
// whether one of the ports redirects.
func walk(m *machine.Machine, d *Decision, a, b *machine.Node) (unread error) {
	above := append([]pciaddr.Addr{a.Addr}, a.Up...)
	below := append([]pciaddr.Addr{b.Addr}, b.Up...)
	up, down := len(above), len(below)
	for i, x := range above {
		if j := slices.Index(below, x); j >= 0 {
			up, down = i, j
			d.Common = &above[i]
			break
		}
	}
	d.Steps = up + down
	if d.Common == nil {
		d.because("no common bridge: %d steps, over the root", d.Steps)
		return nil
	}
	switch *d.Common {
	case a.Addr, b.Addr:
		d.because("%v is the nearest that both have in common, %d steps", *d.Common, d.Steps)
	default:
		d.because("below the bridge %v, %d steps", *d.Common, d.Steps)
	}
	// The ports from the provider up to and including the common bridge count, and the
	// client's ports below the bridge.
	for _, x := range append(above[:up+1:up+1], below[:down]...) {
		n := m.Node(x)
		if n.ACSErr != nil && unread == nil {
			unread = fmt.Errorf("whether %v redirects is not known: %w", x, n.ACSErr)
		}
		if bits := n.ACS.Redirects(); bits != 0 && !m.NoRedirects {
			d.Redirects = append(d.Redirects, Redirect{x, bits})
		}
		if n.NoECAM {
			d.Notes = append(d.Notes, fmt.Sprintf("the kernel reaches no extended configuration space of %v: it counts as not redirecting, whatever the port does", x))
		}
	}
	for _, r := range d.Redirects {
		d.because("%v", r)
	}
	if len(d.Redirects) > 0 {
		return nil // one is enough
	}
	return unread
}

// throughHost finds whether the host bridges pass traffic. unread is not nil if it is not known
// whether the traffic goes through the host bridge at all.
func throughHost(m *machine.Machine, d *Decision, a, b *machine.Node, unread error) {
	passes := hostPasses(m, d, a, b)
	d.Supported = passes
	switch {
	case unread != nil && passes == placement.Yes:
		// The traffic reaches the memory in both cases.
		d.because("the kernel allows the pair, by bus address or through the host bridge; which of the two is not known: %v", unread)
	case unread != nil:
		d.Supported = placement.AnswerUnknown
		d.because("%v", unread)
	case passes == placement.Yes:
		d.Type = MapThroughHostBridge
	case passes == placement.No:
		d.Type = MapNotSupported
	}
}

func hostPasses(m *machine.Machine, d *Decision, a, b *machine.Node) placement.Answer {
	cpu := m.CPU.Routes()
	if m.TrustsAll {
		return placement.Yes
	}
	if cpu == placement.Yes {
		d.because("%v: all host bridges pass peer-to-peer", m.CPU)
		return cpu
	}
	passes := bothTrusted(m, d, m.HostBridge(a), m.HostBridge(b))
	if cpu == placement.AnswerUnknown && passes != placement.Yes {
		d.because("the processor is not known")
		return cpu
	}
	return passes
}

func bothTrusted(m *machine.Machine, d *Decision, ha, hb *machine.HostBridge) placement.Answer {
	same := ha.Bus == hb.Bus
	for _, h := range []*machine.HostBridge{ha, hb} {
		if d.Unread == nil {
			d.Unread = errors.Join(h.Err, h.RootOf)
		}
	}
	ok, why := Trusts(m.Kernel, ha, same)
	d.because("%s", why)
	if same || ok == placement.No {
		return ok
	}
	other, why := Trusts(m.Kernel, hb, same)
	d.because("%s", why)
	if ok == placement.AnswerUnknown && other == placement.Yes {
		return ok
	}
	return other
}

// asBuilt makes the decision unknown if too little is known of the kernel.
func asBuilt(m *machine.Machine, d Decision) Decision {
	k := m.Kernel
	doubt := ""
	switch {
	case d.Supported == placement.No:
		return d // any other configuration gives the same answer
	case k.P2PDMA == placement.AnswerUnknown:
		doubt = "whether the kernel has " + machine.ConfigP2PDMA + " is not known: " + k.Source
	case !k.Version.Known():
		doubt = k.Unversioned()
	case k.Version.Cmp(machine.V6_1) < 0:
		doubt = fmt.Sprintf("the rules of kernels before %v were not read, and this is %s", machine.V6_1, k.Release)
	default:
		return d
	}
	d.Type, d.Supported = MapUnknown, placement.AnswerUnknown
	d.because("%s", doubt)
	return d
}
