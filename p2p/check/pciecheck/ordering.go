// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/variables"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

func ordering(l *check.Look) {
	all := l.Endpoints()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		at := []string{"/sys/" + f.Dir + "/config"}
		x, ok, err := f.Config.Express()
		err = machine.FirstError(f.Err, f.CfgErr, err)
		redirected := false
		var unread error // whether a port redirects
		for _, up := range f.Upstream {
			port := l.Function(up)
			redirected = redirected || port.ACS.Redirects() != 0
			unread = machine.FirstError(unread, port.Err, port.ACSErr)
		}
		switch {
		case err != nil:
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: err}.Why()).AsRoot(l.Machine)
		case !ok:
			l.Pass(f.Name, at, "no PCI Express function")
		case x.RelaxedOrdering && asked(l, f, at):
		case x.RelaxedOrdering:
			l.Pass(f.Name, at, "on")
		case !redirected && unread != nil:
			l.Unknown(f.Name, at, "off, and whether a port above redirects is not known: %s", machine.Reading{Err: unread}.Why()).AsRoot(l.Machine)
		case !redirected:
			l.Pass(f.Name, at, "off, and no port above redirects")
		default:
			check.Unlocked(l, l.Warn(f.Name, at, "off, and a port above redirects"), "turn relaxed ordering on, in the firmware or for the device",
				"setpci -s "+f.PCI.String()+" CAP_EXP+8.w=10:10", p2p.Relaxing, "turn relaxed ordering on in the firmware")
		}
	}
}

// asked warns about a NIC whose traffic goes from one root port to another, on a processor that needs relaxed
// ordering for the full rate: each registration has to ask for it. It returns false for other NICs.
func asked(l *check.Look, f *check.Function, at []string) bool {
	cpu := check.Processor(l)
	o := variables.NeedsRelaxedOrdering(cpu.Vendor, cpu.Family, cpu.Model)
	if o.Needed != placement.Yes || !acrossRoot(l, f.PCI) {
		return false
	}
	read := fmt.Sprintf("on, which is not enough between root ports of %s: %s", o.Processor, o.Why)
	if o.Inferred {
		read += " (inferred: the figures are of Emerald Rapids)"
	}
	change := "register memory with relaxed ordering (IBV_ACCESS_RELAXED_ORDERING), as NCCL does by itself; of UCX by its variable"
	if o.UCX != "" {
		change = "register memory with relaxed ordering (IBV_ACCESS_RELAXED_ORDERING), as NCCL does by itself, and UCX from " + o.UCX + " on; of older UCX by its variable"
	}
	l.Warn(f.Name, append(at, "/proc/cpuinfo"), "%s", read).Fix(change, "UCX_IB_PCI_RELAXED_ORDERING=y", p2p.Relaxing)
	return true
}

// acrossRoot reports whether a NIC is direct over the root complex for a GPU that has no direct NIC below a common
// bridge.
func acrossRoot(l *check.Look, nic pciaddr.Addr) bool {
	return check.Once(l, "NICs across the root", func() map[pciaddr.Addr]bool {
		near, far := map[string]bool{}, map[string][]pciaddr.Addr{} // by GPU
		for _, p := range l.Pairs {
			switch {
			case p.Verdict.Outcome() != chain.Direct || !p.Real() || p.GPU.Exporter.Class == drivers.ClassNVIDIACoherent:
			case check.Common(l, p) != nil:
				near[p.GPU.Name] = true
			default:
				far[p.GPU.Name] = append(far[p.GPU.Name], *p.NIC.Importer.PCI)
			}
		}
		out := map[pciaddr.Addr]bool{}
		for gpu, all := range far {
			for _, a := range all {
				out[a] = out[a] || !near[gpu]
			}
		}
		return out
	})[nic]
}
