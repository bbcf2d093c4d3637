// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

var (
	vramSize = regexp.MustCompile(`^vram=[0-9]+[MG]$`)

	iommus = map[string]string{"iommu": "translate", "pt": "pt"}
)

// Variations lists what may follow the name of a machine of an architecture, each after a
// plus.
func Variations(arch string) []string {
	cpus := platforms[arch].cpus
	all := slices.Clone(cpus)
	for name := range iommus {
		all = append(all, name)
	}
	sort.Strings(all[len(cpus):])
	return append(all, "cold", "noredir", "remedy", "vram=SIZE")
}

// redirects reports ports that redirect, unless they are told not to.
func (n *Node) redirects() bool {
	return slices.ContainsFunc(n.Devices, func(d Device) bool {
		return d.Driver == "pcie-root-port" && strings.HasPrefix(d.Bus, "switch")
	})
}

// vary returns the machine with one variation applied to all its nodes.
func (m Machine) vary(variation string) (Machine, error) {
	m.Name += "+" + variation
	m.Nodes = slices.Clone(m.Nodes)
	for i := range m.Nodes {
		n := &m.Nodes[i]
		switch {
		case slices.Contains(m.platform().cpus, variation):
			n.CPU = variation
		case iommus[variation] != "":
			n.IOMMU = iommus[variation]
			// The kernel makes ports redirect by itself now.
			n.KernelArgs = slices.DeleteFunc(slices.Clone(n.KernelArgs), func(arg string) bool { return arg == acsRedirect })
		case variation == "noredir":
			if !n.redirects() {
				return m, fmt.Errorf("machine %q: node %s has no redirecting switch", m.Name, n.Name)
			}
			// The kernel applies config_acs after disable_acs_redir, and would redirect again.
			args := slices.DeleteFunc(slices.Clone(n.KernelArgs), func(arg string) bool { return arg == acsRedirect })
			n.KernelArgs = append(args, noACSRedirect)
		case variation == "remedy":
			// The remedy is p2pcheck's for this machine without the remedy.
			if !strings.HasPrefix(m.Name, "nested+") || n.IOMMU == "" {
				return m, fmt.Errorf("machine %q: the remedy is nested's with an IOMMU", m.Name)
			}
			n.KernelArgs = append(slices.Clone(n.KernelArgs), acsRemedy)
		case variation == "cold":
			n.Modules, n.Interfaces, n.RDMA = nil, nil, nil
		case vramSize.MatchString(variation):
			n.Objects = slices.Clone(n.Objects)
			at := slices.IndexFunc(n.Objects, func(d Device) bool { return strings.HasPrefix(d.ID, "vram") })
			if at < 0 {
				return m, fmt.Errorf("machine %q: node %s has no GPU with memory of its own", m.Name, n.Name)
			}
			d := &n.Objects[at]
			d.Props = map[string]string{"size": strings.TrimPrefix(variation, "vram="), "share": "on"}
		default:
			return m, fmt.Errorf("machine %q: no variation %q: there are %s", m.Name, variation, strings.Join(Variations(m.arch()), ", "))
		}
	}
	return m, nil
}
