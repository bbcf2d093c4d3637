// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Finding says whether the host's settings let a NIC that is given to a guest reach
// the memory of the guest's GPU through the switch above both.
//
// The NIC asks the IOMMU for translated addresses (ATS), and marks requests that use
// them. The switch sends marked requests straight to the GPU (ACS direct translated)
// and all others to the root. Sources: NVIDIA AI Enterprise, "Optimizing VM
// configuration", appendix "ATS and ACS configuration"; rdma_topo, shape Inline with
// --virt; NVIDIA/nccl-tests#380, NVIDIA/nccl#1464 and #2171.
type Finding struct {
	NIC, GPU pciaddr.Addr
	Switch   *pciaddr.Addr // the upstream port below which they meet; nil without one
	DMA      *pciaddr.Addr // the DMA function that moves the data instead of NIC; nil without one
	ATS      Tri           // whether ATS is on in the NIC
	Ports    []PortPlan    // the ports on the way, and the root port
	OK       Tri           // No if a setting is wrong, Unknown if none is and a fact is not known
	Off      []string      // the settings that are wrong, in words
	Unread   []string      // the facts that are not known, in words
	Entries  []Entry       // of config_acs=, for the ports that are wrong
	Remedy   Remedy
}

// Passthrough judges each pair of a NIC and a GPU that both have a driver of VFIO.
// functions are all PCI functions of the host. noATS says whether the kernel's command line has pci=noats.
//
// An answer Yes is about the host's settings. The hypervisor must also map the GPU's
// memory for the NIC, and show the guest a tree in which the two are close.
func Passthrough(functions []Function, noATS Tri) []Finding {
	t := grow(functions)
	var nics, gpus []*node
	for _, n := range t.all {
		switch {
		case !GivenAway(n.Driver):
		case n.kind == gpuKind || n.Class>>16 == displayClass || n.Class>>8 == processingClass:
			gpus = append(gpus, n)
		case n.Class>>16 == networkClass && n.kind != dmaKind:
			nics = append(nics, n)
		}
	}
	if len(nics) == 0 || len(gpus) == 0 {
		return nil
	}
	plan := Look(functions, Yes)
	var out []Finding
	for _, gpu := range gpus {
		for _, nic := range nics {
			f := Finding{NIC: nic.Addr, GPU: gpu.Addr}
			switch m, below := meet(nic, gpu); {
			case !nic.top().isRoot() || !gpu.top().isRoot():
				f.Unread = append(f.Unread, fmt.Sprintf("the bridges above %v or %v are not all among the functions that were read", nic.Addr, gpu.Addr))
			case below:
				f.Switch = &m.shared.Addr
				f.judge(m, nic, noATS, plan.Shape)
			case nic.top().kind == graceRoot:
				f.byDMA(nic, plan)
			default:
				f.Unread = append(f.Unread, fmt.Sprintf("%v and %v share no switch: their traffic crosses the root complex, and whether that lets it through is not known", nic.Addr, gpu.Addr))
			}
			f.close()
			out = append(out, f)
		}
	}
	return out
}

// GivenAway reports whether a driver gives functions to guests: vfio-pci, or one of
// its variants (drivers/vfio/pci), whose names end in the same way.
func GivenAway(driver string) bool {
	return strings.HasSuffix(strings.ReplaceAll(driver, "_", "-"), "vfio-pci")
}

// meeting is the switch below which two functions meet, and its ports toward them.
type meeting struct{ shared, nicPort, gpuPort, root *node }

// meet finds the switch below which both are; false if they meet at no switch.
func meet(nic, gpu *node) (meeting, bool) {
	above := map[*node]*node{} // a bridge above the GPU, and the function below it
	for n := gpu; n.up != nil; n = n.up {
		above[n.up] = n
	}
	for n := nic; n.up != nil; n = n.up {
		if gpuPort := above[n.up]; gpuPort != nil {
			m := meeting{shared: n.up, nicPort: n, gpuPort: gpuPort, root: nic.top()}
			return m, m.shared != m.root && n != nic && gpuPort != gpu && m.shared.fits(pci.PortUpstream)
		}
	}
	return meeting{}, false
}

// top is the topmost function above one that the list has.
func (n *node) top() *node {
	for n.up != nil {
		n = n.up
	}
	return n
}

func (n *node) isRoot() bool { return len(n.Upstream) == 0 }

// judge fills in the finding of a pair that meets at a switch.
func (f *Finding) judge(m meeting, nic *node, noATS Tri, shape Shape) {
	f.Ports = []PortPlan{
		m.nicPort.port(NICPort, translated), m.gpuPort.port(GPUPort, isolated), m.root.port(RootPort, kernelDefault(m.root.kind)),
	}
	for i, n := range []*node{m.nicPort, m.gpuPort, m.root} {
		switch p := f.Ports[i]; p.OK {
		case No:
			f.Off = append(f.Off, fmt.Sprintf("%v %v: %s", p.Role, p.Addr, p.Why))
			f.Entries = append(f.Entries, Entry{unblocked(p.Want, n), p.Addr.String()})
		case Unknown:
			f.Unread = append(f.Unread, fmt.Sprintf("%v %v: %s", p.Role, p.Addr, p.Why))
		}
	}
	for n := nic.up; n != nil; n = n.up {
		switch {
		case n.ACSErr != nil && n != m.nicPort && n != m.root:
			f.Unread = append(f.Unread, fmt.Sprintf("port %v: its ACS could not be read: %v", n.Addr, n.ACSErr))
		case n.ACSErr == nil && n.ACS.Present && n.ACS.Ctrl&pci.ACSTranslationBlock != 0:
			f.Off = append(f.Off, fmt.Sprintf("port %v: %v must be off: it blocks ATS", n.Addr, pci.ACSTranslationBlock))
			if noATS != Yes && !f.sets(n.Addr) {
				f.Entries = append(f.Entries, Entry{unblocked(Flags{}, n), n.Addr.String()})
			}
		}
	}
	f.translation(nic, m.root, noATS)
	if len(f.Entries) > 0 {
		f.Remedy.Parameter = Parameter(f.Entries)
		f.Remedy.Change = "have the kernel set the ACS of these ports, and reboot the host"
		f.Remedy.Weakens = trusting
		if shape == Inline {
			f.Remedy.Command = writeGRUB + " --virt"
		}
	}
	f.atsRemedy(nic, m.root, noATS)
}

// unblocked are the flags that also turn translation blocking off where it is on.
func unblocked(want Flags, n *node) Flags {
	if n.ACS.Ctrl&pci.ACSTranslationBlock != 0 {
		want.Mask |= pci.ACSTranslationBlock
	}
	return want
}

// sets reports whether an entry is of a port.
func (f *Finding) sets(port pciaddr.Addr) bool {
	return slices.ContainsFunc(f.Entries, func(e Entry) bool { return e.Device == port.String() })
}

// translation judges whether the NIC's requests are translated.
func (f *Finding) translation(nic, root *node, noATS Tri) {
	switch {
	case root.kind == graceRoot:
		// NVIDIA, "Grace Blackwell CX8 GPUDirect RDMA guide".
		f.ATS = No
		f.Off = append(f.Off, fmt.Sprintf("root port %v: Grace has no ATS", root.Addr))
	case noATS == Yes:
		f.ATS = No
		f.Off = append(f.Off, "pci=noats on the kernel's command line turns ATS off, and translation blocking on in the ports")
	case !nic.ATS.Known:
		f.Unread = append(f.Unread, fmt.Sprintf("NIC %v: its ATS could not be read", nic.Addr))
	case !nic.ATS.Capable:
		f.ATS = No
		f.Off = append(f.Off, fmt.Sprintf("NIC %v: it shows no ATS", nic.Addr))
	case !nic.ATS.Enabled:
		f.ATS = No
		f.Off = append(f.Off, fmt.Sprintf("NIC %v: ATS is off", nic.Addr))
	default:
		f.ATS = Yes
	}
}

// atsRemedy adds what turns ATS on.
func (f *Finding) atsRemedy(nic, root *node, noATS Tri) {
	change := ""
	switch {
	case f.ATS != No:
		return
	case root.kind == graceRoot:
		f.Remedy = Remedy{Change: needsDMA}
		return
	case noATS == Yes:
		change = "take pci=noats off the kernel's command line"
	case nic.Vendor != mellanox:
		change = "turn ATS on in the NIC's firmware, and reboot the host"
	default:
		device := nic.Addr.String()
		if nic.Device == anyVirtual {
			device = "PF" // the firmware's settings are those of the physical function
		}
		f.Remedy.Command = strings.TrimSuffix(fmt.Sprintf("mlxconfig -d %s set ATS_ENABLED=true; %s", device, f.Remedy.Command), "; ")
		change = "turn ATS on in the NIC's firmware, and reboot the host: a reboot of the guest does not do it"
		if nic.ATS.Capable {
			change += "; if the firmware has it on, the IOMMU's driver did not enable it: turn the IOMMU on, and see whether the host's firmware offers ATS for this root port"
		}
	}
	if f.Remedy.Change != "" {
		change = f.Remedy.Change + "; " + change
	}
	f.Remedy.Change = change
}

const needsDMA = "take a ConnectX-8 with a DMA function (Data Direct), and give that function to the guest together with the GPU"

// byDMA fills in the finding of a NIC below Grace, which has no ATS: there the DMA
// function moves the data.
func (f *Finding) byDMA(nic *node, plan Plan) {
	f.ATS = No
	m := plan.Mover(nic.Addr)
	switch {
	case m.Has == No:
		f.Off = append(f.Off, fmt.Sprintf("NIC %v: Grace has no ATS, and the NIC has no DMA function: %s", nic.Addr, m.Why))
		f.Remedy = Remedy{Change: needsDMA}
		return
	case m.Has == Unknown:
		f.Unread = append(f.Unread, fmt.Sprintf("NIC %v: its DMA function is not known: %s", nic.Addr, m.Why))
		return
	}
	f.DMA = &m.DMA
	c, ok := plan.Complex(m.DMA, f.GPU)
	switch {
	case plan.Shape != DataDirect:
		f.Unread = append(f.Unread, "the values for the ports are not known: "+plan.Why)
		return
	case !ok:
		f.Unread = append(f.Unread, fmt.Sprintf("DMA function %v is beside another GPU than %v", m.DMA, f.GPU))
		return
	}
	if d := plan.tree.at[m.DMA]; !GivenAway(d.Driver) {
		f.Off = append(f.Off, fmt.Sprintf("DMA function %v is not given to a guest with the NIC and the GPU", m.DMA))
		f.Remedy = Remedy{Change: "bind the DMA function to vfio-pci, too, and give it to the same guest"}
	}
	f.Ports = c.Ports
	for _, p := range c.Ports {
		switch p.OK {
		case No:
			f.Off = append(f.Off, fmt.Sprintf("%v %v: %s", p.Role, p.Addr, p.Why))
		case Unknown:
			f.Unread = append(f.Unread, fmt.Sprintf("%v %v: %s", p.Role, p.Addr, p.Why))
		}
	}
	for _, r := range c.Rules {
		switch r.OK {
		case No:
			f.Off = append(f.Off, r.Why)
		case Unknown:
			f.Unread = append(f.Unread, r.Why)
		}
	}
	if c.OK() == No {
		f.Entries = plan.Entries()
		change := plan.Remedy
		if f.Remedy.Change != "" {
			change.Change = f.Remedy.Change + "; " + change.Change
		}
		f.Remedy = change
	}
}

// close answers OK by the facts that are wrong or not known.
func (f *Finding) close() {
	switch {
	case len(f.Off) > 0:
		f.OK = No
	case len(f.Unread) > 0:
		f.OK = Unknown
	default:
		f.OK = Yes
	}
}

// Together returns one parameter for all findings, because the kernel uses only one
// config_acs=; "" if no finding has entries. there has the entries of the present command
// line. If two findings need different values of one bit of a port, the first finding's
// value counts.
func Together(findings []Finding, there []Entry) string {
	var out []Entry
	for _, f := range findings {
		for _, e := range f.Entries {
			i := slices.IndexFunc(out, func(o Entry) bool { return o.Device == e.Device })
			if i < 0 {
				out = append(out, e)
			} else if both, agree := out[i].Flags.with(e.Flags); agree {
				out[i].Flags = both
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return Parameter(Join(out, there))
}
