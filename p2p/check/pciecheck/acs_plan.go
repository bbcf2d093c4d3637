// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/directnic"
)

// acsPlan judges the ports of a machine whose GPUs and ConnectX NICs need a certain ACS.
func acsPlan(l *check.Look) {
	plan := p2p.ACSPlan(l.Machine)
	switch plan.Shape {
	case directnic.None:
		l.Skip("no GPU and ConnectX NIC are connected so that their ports need a certain ACS")
		return
	case directnic.Unsupported:
		l.Unknown("", nil, "the machine has parts of a known shape, and differs from it: %s", plan.Why).
			Fix("ask the tool that has the table of such machines", "rdma_topo check", "")
		return
	}
	ports := make([]string, 0, len(plan.Ports))
	for _, port := range plan.Ports {
		name := port.Addr.String()
		ports = append(ports, name)
		at := []string{"/sys/bus/pci/devices/" + name + "/config"}
		said := fmt.Sprintf("%v: ACS %#x, and config_acs %v is needed", port.Role, uint16(port.Have), port.Want)
		switch {
		case port.OK == directnic.Yes:
			l.Pass(name, at, "%s", said)
		case port.OK == directnic.No:
			l.Warn(name, at, "%s: %s", said, port.Why).Remedy = p2p.PlannedRemedy(l.Machine, []string{name})
		default:
			l.Unknown(name, at, "%v: %s", port.Role, port.Why).AsRoot(l.Machine)
		}
	}
	for _, c := range plan.Complexes {
		for _, rule := range c.Rules {
			var names []string
			for _, a := range rule.Functions {
				names = append(names, a.String())
			}
			scope := strings.Join(names, " -> ")
			switch rule.OK {
			case directnic.Yes:
				l.Pass(scope, nil, "%s", rule.Want)
			case directnic.No:
				l.Warn(scope, nil, "%s; rdma_topo wants: %s", rule.Why, rule.Want).Remedy = p2p.PlannedRemedy(l.Machine, ports)
			default:
				l.Unknown(scope, nil, "%s; rdma_topo wants: %s", rule.Why, rule.Want)
			}
		}
	}
}

// givenAway judges NICs and GPUs that are given to guests: the host's ports decide whether they
// reach each other.
func givenAway(l *check.Look) {
	found := p2p.GivenAway(l.Machine)
	if len(found) == 0 {
		l.Skip("no NIC and GPU are given to guests")
	}
	for _, f := range found {
		scope := f.GPU.String() + " -> " + f.NIC.String()
		at := []string{"/sys/bus/pci/devices/" + f.NIC.String() + "/config"}
		for _, port := range f.Ports {
			at = append(at, "/sys/bus/pci/devices/"+port.Addr.String()+"/config")
		}
		switch f.OK {
		case directnic.Yes:
			l.Pass(scope, at, "the host's ports and the NIC's ATS let them reach each other, if one guest has both")
		case directnic.No:
			l.Warn(scope, at, "%s", strings.Join(f.Off, "; ")).Remedy = p2p.GivenAwayRemedy(f)
		default:
			l.Unknown(scope, at, "%s", strings.Join(f.Unread, "; "))
		}
	}
}
