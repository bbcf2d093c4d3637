// SPDX-License-Identifier: Apache-2.0

package p2pdma

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Path returns the way from one function to another in the hardware, which does not depend on
// the kernel's configuration. It sets only Steps, Common, Redirects, Notes and Unread of the
// Decision: Type and Supported stay unknown.
func Path(m *machine.Machine, provider, client pciaddr.Addr) Decision {
	d := Decision{Steps: -1}
	a, b := m.Node(provider), m.Node(client)
	if err := machine.FirstError(a.Err, b.Err); err != nil {
		d.Unread = err
		return d
	}
	d.Unread = walk(m, &d, a, b)
	return d
}

// RootPasses says whether the root complex passes traffic from one function to the other, and
// why. The answer is Yes for an AMD processor from Zen on, and if the newest list that was read has the
// host bridges. It is unknown for other root complexes.
func RootPasses(m *machine.Machine, provider, client pciaddr.Addr) (passes placement.Answer, why string) {
	if m.TrustsAll {
		return placement.Yes, ""
	}
	switch m.CPU.Routes() {
	case placement.Yes:
		return placement.Yes, fmt.Sprintf("%v: all host bridges pass peer-to-peer", m.CPU)
	case placement.AnswerUnknown:
		return placement.AnswerUnknown, "the processor is not known"
	}
	a, b := m.Node(provider), m.Node(client)
	if err := machine.FirstError(a.Err, b.Err); err != nil {
		return placement.AnswerUnknown, err.Error()
	}
	ha, hb := m.HostBridge(a), m.HostBridge(b)
	same := ha.Bus == hb.Bus
	newest := machine.NewestKernel()
	passes, why = Trusts(newest, ha, same)
	if !same && passes == placement.Yes {
		passes, why = Trusts(newest, hb, same)
	}
	if passes != placement.Yes {
		return placement.AnswerUnknown, why
	}
	return placement.Yes, why
}

// faulty lists host bridges that, by reports, lose or corrupt a part of peer-to-peer traffic. The
// key is vendor and device.
var faulty = map[[2]uint16]string{
	{machine.VendorIntel, 0x7d1b}: "Arrow Lake's passes writes and loses reads (open-gpu-kernel-modules#1253)",
	{machine.VendorIntel, 0x4c43}: "Rocket Lake's passes wrong data (intel/compute-runtime#935)",
}

// RootFaulty describes the known fault of the root complex above a function; "" if no fault is
// known.
func RootFaulty(m *machine.Machine, a pciaddr.Addr) string {
	n := m.Node(a)
	if n.Err != nil {
		return ""
	}
	h := m.HostBridge(n)
	if h.Err != nil || h.Empty {
		return ""
	}
	return faulty[[2]uint16{h.First.Vendor, h.First.Device}]
}
