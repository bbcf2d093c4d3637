// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"slices"
	"strings"
)

// Remedy is one change. Fields that do not apply are "".
type Remedy struct {
	Change string
	// Command is for a shell, and Parameter for the kernel's command line. The
	// parameter has the same effect if the command is not installed, or the boot
	// loader is not that of Debian or Ubuntu (update-grub). In GRUB's files its
	// ";" must be quoted, because it ends a command there.
	Command   string
	Parameter string
	Weakens   string // the protection that the change gives up
}

// Parameter returns the kernel's parameter pci=config_acs= with these entries; ""
// without entries.
func Parameter(entries []Entry) string {
	if len(entries) == 0 {
		return ""
	}
	return "pci=config_acs=" + FormatConfigACS(entries)
}

// Entries returns the entries of config_acs= that set the plan's ports. Like
// rdma_topo's write-grub-acs it leaves out the ports whose value the kernel sets by
// itself, unless such a port differs on this machine.
func (p Plan) Entries() []Entry {
	var out []Entry
	for _, port := range p.Ports {
		if port.Decided && (!port.Default || port.OK == No) {
			out = append(out, Entry{port.Want, port.Addr.String()})
		}
	}
	return out
}

const (
	writeGRUB = "rdma_topo write-grub-acs"
	trusting  = "the switch trusts requests that a NIC marks as translated, and does not ask the IOMMU about them"
	reboot    = ", and reboot: the kernel forms IOMMU groups when it starts, and later changes of ACS do not change them"
)

// remedy makes one change for all ports and rules that are known to be wrong.
func (p Plan) remedy() Remedy {
	var ports, defaults, groups, ats, missing bool
	for _, port := range p.Ports {
		ports = ports || port.OK == No && !port.Default
		defaults = defaults || port.OK == No && port.Default
	}
	for _, c := range p.Complexes {
		for _, r := range c.Rules {
			groups = groups || r.OK == No && r.Kind == GroupRule
			ats = ats || r.OK == No && r.Kind == ATSRule
			missing = missing || r.OK == No && r.Kind == GroupRule && p.lacksGroup(r)
		}
	}
	flag := ""
	if p.Shape == Inline {
		flag = map[Tri]string{Yes: " --virt", No: " --no-virt"}[p.Guests]
	}
	set := Remedy{Command: writeGRUB + flag, Parameter: Parameter(p.Entries())}
	switch {
	case p.Shape == DataDirect:
		set.Weakens = "a GPU and the DMA function beside it reach each other past the IOMMU, and go to one guest only"
	case p.Shape == Inline && p.Guests == Yes:
		set.Weakens = trusting
	case p.Shape == Inline:
		set.Weakens = "devices below these ports reach each other past the IOMMU"
	}
	switch {
	case p.Shape == Inline && p.Guests == Unknown:
		return Remedy{Change: "run " + writeGRUB + " with --virt if the devices are for guests, and with --no-virt otherwise: without either it compares the NICs, and where they differ it deletes the file that it wrote before"}
	case ports:
		set.Change = "have the kernel set the ACS that this machine's ports need" + reboot
		if defaults {
			set.Change += "; the command leaves out ports that the kernel sets by itself, and the parameter has those of them that differ"
		}
	case defaults:
		set.Command = ""
		set.Change = "ports differ from what the kernel sets by itself where there is an IOMMU: turn the IOMMU on and take them out of pci=disable_acs_redir=, or set them by this parameter" + reboot
	case missing && (p.Shape != Inline || p.Guests == Yes):
		return Remedy{Change: "turn the IOMMU on, in the firmware and on the kernel's command line: without it there are no IOMMU groups"}
	case groups && set.Parameter != "":
		set.Change = "have the kernel set the ACS at start, which the ports have now" + reboot
	case groups:
		return Remedy{Change: "reboot: the ports have the ACS that the kernel sets by itself, and the IOMMU groups are from before that"}
	case ats:
		return p.atsRemedy()
	default:
		return Remedy{}
	}
	if ats {
		set.Change += "; " + p.atsRemedy().Change
	}
	return set
}

func (p Plan) lacksGroup(r Rule) bool {
	for _, a := range r.Functions {
		if n := p.tree.at[a]; n.GroupKnown && n.Group == "" {
			return true
		}
	}
	return false
}

// atsRemedy sets ATS in the firmware of the NICs that show it wrongly.
func (p Plan) atsRemedy() Remedy {
	value := "false"
	if p.Shape == Inline && p.Guests == Yes {
		value = "true"
	}
	var nics []string
	for _, c := range p.Complexes {
		for _, r := range c.Rules {
			if r.Kind == ATSRule && r.OK == No {
				nics = append(nics, r.Functions[0].String())
			}
		}
	}
	slices.Sort(nics)
	nics = slices.Compact(nics)
	set := "mlxconfig -d %s set ATS_ENABLED=" + value
	command := fmt.Sprintf(set, strings.Join(nics, ""))
	if len(nics) > 1 {
		command = fmt.Sprintf("for nic in %s; do "+set+"; done", strings.Join(nics, " "), "$nic")
	}
	return Remedy{Change: fmt.Sprintf("set ATS_ENABLED=%s in the firmware of the NICs, and reboot the host", value), Command: command}
}
