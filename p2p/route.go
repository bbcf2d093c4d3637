// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Route says which way traffic takes at a port, by mlx5's table (mlx5_umem_needs_ats(), mlx5_ib.h). It
// depends on the port's redirect bits and on the NIC's ATS and relaxed ordering.
type Route int

// The routes, the worst last.
const (
	RouteGood       Route = iota
	RouteTranslated       // requests take the short way, because they have translated addresses
	RouteOpen             // the way depends on whether the application registers with relaxed ordering
	RouteSlow             // all of it goes to the root
	RouteLost             // requests and completions take different ways
)

const redirecting = pci.ACSRequestRedirect | pci.ACSCompletionRedirect | pci.ACSDirectTranslated

// order is how a NIC sends requests.
type order struct{ ats, relaxed bool }

// Sends reads whether a NIC may send requests with translated addresses (ATS), and with relaxed ordering.
func Sends(m *machine.Machine, nic pciaddr.Addr) (ats, relaxed bool, err error) {
	o, err := nicOrder(m, nic)
	return o.ats, o.relaxed, err
}

// nicOrder reads the NIC's order from its configuration space.
func nicOrder(m *machine.Machine, nic pciaddr.Addr) (order, error) {
	c, err := pci.ReadConfig(m.Sys, nic)
	if err != nil {
		return order{}, err
	}
	if c.Unreachable() {
		return order{}, fmt.Errorf("%v: 256 bytes of its configuration can be read, and ATS lies behind them", nic)
	}
	_, ats, err1 := c.ATS()
	pf, virtual, err2 := pci.PhysicalFunction(m.Sys, nic)
	if c.Virtual() && !virtual && err2 == nil {
		err2 = fmt.Errorf("%v is a virtual function, and its physical function is not known", nic)
	}
	if virtual && err2 == nil { // of a virtual function the bit is reserved: its physical function's counts
		c, err2 = pci.ReadConfig(m.Sys, pf)
	}
	if err := machine.FirstError(err1, err2); err != nil {
		return order{}, err
	}
	express, _, err := c.Express()
	return order{ats, express.RelaxedOrdering}, err
}

func routeOfPort(c pci.ACSBits, nic order) Route {
	return RouteOf(c&pci.ACSCompletionRedirect != 0, c&pci.ACSRequestRedirect != 0, c&pci.ACSDirectTranslated != 0, nic.ats, nic.relaxed)
}

// RouteOf returns the route at a port that redirects completions and requests, and lets translated
// requests pass, as the first three arguments say, for a NIC with ATS and relaxed ordering on, as the
// last two say.
func RouteOf(completions, requests, translated, ats, relaxed bool) Route {
	switch {
	case !completions && !requests:
		return RouteGood
	case !completions: // requests go to the root, completions do not
		if translated && ats {
			return RouteTranslated
		}
		return RouteLost
	case !requests:
		if relaxed {
			return RouteOpen
		}
		return RouteLost
	case translated && ats: // requests go the short way, completions do not
		if relaxed {
			return RouteOpen
		}
		return RouteLost
	}
	return RouteSlow
}

// RouteRemedy returns a remedy with the settings that send requests and completions the same way, without
// those that are on already.
func RouteRemedy(bits pci.ACSBits, ats, relaxed bool) *chain.Remedy {
	good := func(ats, relaxed bool) bool { return routeOfPort(bits, order{ats, relaxed}) <= RouteOpen }
	const off = "turn the port's redirection off"
	switch {
	case !relaxed && good(ats, true):
		return &chain.Remedy{Change: "turn relaxed ordering on, or " + off, Weakens: Relaxing}
	case !ats && good(true, relaxed):
		return &chain.Remedy{Change: "turn ATS on in the NIC's firmware, or " + off}
	case !ats && !relaxed && good(true, true):
		return &chain.Remedy{Change: "turn ATS on in the NIC's firmware and relaxed ordering on, or " + off, Weakens: Relaxing}
	}
	return &chain.Remedy{Change: off, Weakens: "devices below it reach each other past the IOMMU"}
}

// Relaxing describes what relaxed ordering costs.
const Relaxing = "a later write may arrive before an earlier one; where the kernel turned it off for a faulty root port (Xeon E5 v3 and v4), leave it off"
