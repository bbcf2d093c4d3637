// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// up are the bridges above a function, the nearest first.
func (b *bed) up(addr string) []string {
	parts := strings.Split(strings.TrimPrefix(b.dir(addr), "sys/devices/"), "/")
	parts = parts[1 : len(parts)-1]
	slices.Reverse(parts)
	return parts
}

// above is the bridge next above a function, and rootPort the last.
func above(b *bed, addr string) string { return b.up(addr)[0] }

func rootPort(b *bed, addr string) string {
	up := b.up(addr)
	return up[len(up)-1]
}

// way are the ports between GPU and NIC, and with them the bridge above both.
func (b *bed) way() []string {
	var out []string
	for _, end := range []string{b.s.gpu, b.s.at} {
		up := b.up(end)
		out = append(out, up[:slices.Index(up, b.s.below)]...)
	}
	return append(out, b.s.below)
}

// port is the bridge next below the common one: 0 is the GPU's side, 1 the NIC's.
func (b *bed) port(side int) string {
	up := b.up([]string{b.s.gpu, b.s.at}[side])
	return up[slices.Index(up, b.s.below)-1]
}

// Bits of the ACS control register, as pci_regs.h has them.
const (
	acsSV = 0x01
	acsTB = 0x02
	acsRR = 0x04
	acsCR = 0x08
	acsUF = 0x10
	acsEC = 0x20
	acsDT = 0x40
)

// ports makes a row of each port on the way of a pair below one switch.
func ports(name string, edit func(b *bed, port string), on func(*subject) bool, want effect, why string) []mutation {
	return sides(name, edit, on, want, want, want, why)
}

// sides is ports where it matters which port it is: the GPU's, the NIC's, or the bridge above both as well
// as all of them.
func sides(name string, edit func(b *bed, port string), on func(*subject) bool, gpu, nic, other effect, why string) []mutation {
	on = all(onSwitch, on)
	return []mutation{
		{"the GPU's port of the switch " + name, on, func(b *bed) { edit(b, b.port(0)) }, gpu, why},
		{"the NIC's port of the switch " + name, on, func(b *bed) { edit(b, b.port(1)) }, nic, why},
		{"the bridge above both " + name, on, func(b *bed) { edit(b, b.s.below) }, other, why},
		{"each port on the way " + name, on, func(b *bed) {
			for _, port := range b.way() {
				edit(b, port)
			}
		}, other, why},
	}
}

// acs sets a port's ACS control register.
func acs(bits int) func(*bed, string) {
	return func(b *bed, port string) { b.space(port, "acs="+hex(bits)) }
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	return "0x" + string(digits[n>>4&15]) + string(digits[n&15])
}

func fabricMutations() []mutation {
	const (
		table    = "drivers/infiniband/hw/mlx5/mlx5_ib.h mlx5_umem_needs_ats(): the table of redirection, ATS and relaxed ordering"
		received = "PCI Express, ACS P2P Request Redirect and Completion Redirect: of what a port receives from below; rdma-core rdma_topo wants xx101x1 of a GPU's port and xx110x1 of a NIC's"
		kernel   = "drivers/pci/p2pdma.c pci_bridge_has_acs_redir(): RR, CR and EC redirect; the others do not"
		egress   = "PCI Express, ACS P2P Egress Control: a vector says which ports are blocked, and sysfs does not have it"
		unread   = "whether the port redirects could not be read"
		iommu    = "open-gpu-kernel-modules#1324: what a port sends to the root meets the IOMMU"
		blocking = "PCI Express, ACS Translation Blocking: a port drops what a NIC with ATS sends translated"
	)
	lostAt := []chain.Link{chain.Fabric}
	clean := not(all(mapsNothing, translates))
	meets := all(mapsNothing, translates)
	noOrder := func(b *bed) { b.space(b.s.at, "devctl=0x5040") } // without relaxed ordering
	withATS := func(b *bed) { b.space(b.s.at, "ats=0x8000") }
	first := func(edit func(*bed, string)) func(*bed) {
		return func(b *bed) { edit(b, b.port(0)) }
	}
	return slices.Concat(
		sides("redirects requests only", acs(acsRR), clean, staysDirect, breaks(chain.Lost, lostAt...), breaks(chain.Lost, lostAt...), received),
		sides("redirects requests only, as rdma_topo wants it of a GPU's port", acs(acsRR|acsSV|acsUF), clean, staysDirect, breaks(chain.Lost, lostAt...), breaks(chain.Lost, lostAt...), received),
		sides("redirects completions only, as rdma_topo wants it of a NIC's port", acs(acsCR|acsSV|acsUF), clean, goes(chain.Fabric), staysDirect, goes(chain.Fabric), received),
		sides("redirects requests only, and the IOMMU translates", acs(acsRR), meets, goes(chain.Addresses), breaks(chain.Lost, chain.Addresses), breaks(chain.Lost, chain.Addresses), iommu),
		sides("redirects completions only", acs(acsCR), clean, goes(chain.Fabric), staysDirect, goes(chain.Fabric), received),
		ports("redirects completions only, and the IOMMU translates", acs(acsCR), meets, goes(chain.Addresses), iommu),
		sides("redirects both, which the root passes", acs(acsRR|acsCR), all(clean, passesRoot), goes(chain.Fabric), goes(chain.Fabric), costs, table+"; drivers/pci/p2pdma.c pci_p2pdma_whitelist"),
		sides("redirects as the kernel sets it, which the root passes", acs(0x1d), all(clean, passesRoot), goes(chain.Fabric), goes(chain.Fabric), costs, "drivers/pci/pci.c pci_std_enable_acs()"),
		sides("redirects both, and the IOMMU translates", acs(acsRR|acsCR), meets, goes(chain.Addresses), breaks(chain.Lost, chain.Addresses), breaks(chain.Lost, chain.Addresses), iommu),
		ports("has egress control alone", acs(acsEC), nil, goes(chain.Fabric, chain.Addresses), egress),
		ports("has egress control beside redirection", acs(acsEC|acsRR|acsCR), nil, goes(chain.Fabric, chain.Addresses), egress),
		ports("has source validation and upstream forwarding", acs(acsSV|acsUF), nil, changesNothing, kernel),
		ports("passes translated requests", acs(acsDT), nil, changesNothing, kernel),
		ports("blocks translated requests, and the NIC sends none", acs(acsTB), nil, changesNothing, blocking),
		sides("blocks translated requests, and the NIC sends them", both2(acs(acsTB), withATS), nil, staysDirect, goes(chain.Fabric, chain.Addresses), goes(chain.Fabric, chain.Addresses), blocking),
		ports("can be read in 64 bytes, as without root", func(b *bed, port string) { b.space(port, "config=64") }, nil, goes(chain.Fabric, chain.Addresses), unread),
		ports("has no configuration in the copy", func(b *bed, port string) { b.drop(b.dir(port) + "/config") }, nil, goes(chain.Fabric, chain.Addresses), unread),
		ports("has a configuration that could not be read", func(b *bed, port string) { b.deny(b.dir(port) + "/config") }, nil, goes(chain.Fabric, chain.Addresses), unread),
		ports("has an empty configuration", func(b *bed, port string) { b.put(b.dir(port)+"/config", "") }, nil, goes(chain.Fabric, chain.Addresses), unread),
		ports("is one of which the kernel reaches 256 bytes", func(b *bed, port string) { b.space(port, "config=256") }, nil, goes(chain.Fabric, chain.Addresses), "drivers/pci/probe.c pci_cfg_space_size_ext(): ACS lies behind them, and the port has it on or off"),
		ports("is a file of tar's, which has zeros behind the 64 bytes that were read", func(b *bed, port string) { b.fill(port, 64, 0) }, nil, goes(chain.Fabric, chain.Addresses), unread),
		ports("answers with ones from the 256th byte on", func(b *bed, port string) { b.fill(port, 256, 0xff) }, nil, goes(chain.Fabric, chain.Addresses), "drivers/pci/probe.c pci_cfg_space_size_ext(): such a function has 256 bytes"),
		ports("does not answer", func(b *bed, port string) { b.silence(port) }, nil, goes(chain.Fabric, chain.Addresses, chain.Attach), "PCI Express: a port that is gone answers each read with ones"),
		[]mutation{
			{"the GPU's port redirects completions only, and the NIC keeps its order", all(onSwitch, clean), both(first(acs(acsCR)), noOrder), breaks(chain.Lost, chain.Fabric), table},
			{"the GPU's port redirects requests only, and lets translated ones pass from a NIC with ATS", all(onSwitch, clean), both(first(acs(acsRR|acsDT)), withATS), staysDirect, table},
			{"the NIC's port redirects requests only, and lets translated ones pass from a NIC without ATS", all(onSwitch, clean), func(b *bed) { acs(acsRR|acsDT)(b, b.port(1)) }, breaks(chain.Lost, chain.Fabric), table},
			{"the NIC's port redirects requests only, and lets translated ones pass from a NIC with ATS", all(onSwitch, clean), both(func(b *bed) { acs(acsRR|acsDT)(b, b.port(1)) }, withATS), staysDirect, table},
			{"one port redirects both, and the other cannot be read", all(onSwitch, clean), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				b.space(b.port(1), "config=64")
			}, goes(chain.Fabric), unread},
			{"one port redirects both, and the other requests only", all(onSwitch, clean), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				acs(acsRR)(b, b.port(1))
			}, goes(chain.Fabric), table},
			{"a port redirects, and how the NIC orders its requests cannot be read", all(onSwitch, clean), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				b.space(b.s.at, "config=64")
			}, goes(chain.Fabric), table},
			{"a port redirects, and the root is on no list", all(onSwitch, clean, func(s *subject) bool { return s.root == listed && s.exporter == nvidia }), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				otherHost(b)
			}, goes(chain.Fabric), "drivers/pci/p2pdma.c pci_p2pdma_whitelist"},
			{"a port redirects, and the processor cannot be read", all(onSwitch, clean), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				b.deny("proc/cpuinfo")
			}, goes(chain.Fabric, chain.Decision, chain.Library), "drivers/pci/p2pdma.c cpu_supports_p2pdma()"},
			{"a port redirects to a root port that has egress control", all(onSwitch, clean, passesRoot), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				b.space(rootPort(b, b.s.at), "acs=0x20")
			}, goes(chain.Fabric), egress},
			{"a port redirects to a root port that cannot be read", all(onSwitch, clean, passesRoot), func(b *bed) {
				acs(acsRR|acsCR)(b, b.port(0))
				b.space(rootPort(b, b.s.at), "config=64")
			}, goes(chain.Fabric), egress},
			{"the NIC has ATS on behind an IOMMU, and a port blocks translated requests", all(onSwitch, isAMD, passesRoot), func(b *bed) {
				domain("DMA-FQ")(b)
				withATS(b)
				acs(acsTB)(b, b.port(1))
			}, goes(chain.Fabric), blocking},
			{"the NIC has ATS on behind an IOMMU, and a port sends completions another way", all(onSwitch, isAMD, passesRoot), func(b *bed) {
				domain("DMA-FQ")(b)
				withATS(b)
				acs(acsCR|acsDT)(b, b.port(0))
			}, goes(chain.Fabric), table},
			{"whether the NIC has ATS on behind an IOMMU cannot be read", all(onSwitch, isAMD, passesRoot), both(domain("DMA-FQ"), func(b *bed) { b.space(b.s.at, "config=64") }), goes(chain.Fabric), "a NIC with ATS on sends translated requests past the IOMMU"},
			{"a root port blocks translated requests, and the NIC sends them, over the root", all(overRoot, not(is(coherent))), func(b *bed) {
				withATS(b)
				b.space(rootPort(b, b.s.at), "acs=0x02")
			}, goes(chain.Fabric), blocking},
			{"a root port blocks translated requests, and whether the NIC sends them cannot be read, over the root", all(overRoot, not(is(coherent))), func(b *bed) {
				b.space(b.s.at, "config=64")
				b.space(rootPort(b, b.s.at), "acs=0x02")
			}, goes(chain.Fabric), blocking},
			{"a root port blocks translated requests, and the NIC sends none, over the root", all(overRoot, not(is(coherent)), not(handsIOVAs)), func(b *bed) { b.space(rootPort(b, b.s.at), "acs=0x02") }, changesNothing, blocking},
			{"the configuration of all functions is tar's, with zeros behind 64 bytes", onSwitch, func(b *bed) {
				for addr := range b.functions {
					b.fill(addr, 64, 0)
				}
			}, goes(chain.Fabric, chain.Addresses), unread},
			{"the root port redirects, as the kernel sets it, above a switch", onSwitch, func(b *bed) { b.space(rootPort(b, b.s.at), "acs=0x1d") }, changesNothing, "the traffic turns below the root port"},
			{"the root port cannot be read, above a switch", onSwitch, func(b *bed) { b.space(rootPort(b, b.s.at), "config=64") }, changesNothing, "the traffic turns below the root port"},
		},
	)
}

// both2 edits a port and something beside it.
func both2(edit func(*bed, string), beside func(*bed)) func(*bed, string) {
	return func(b *bed, port string) {
		edit(b, port)
		beside(b)
	}
}

// otherHost makes the first function of each host bridge of the pair one that no list has.
func otherHost(b *bed) {
	for _, addr := range b.hosts() {
		b.identify(addr, "", "0xfff0")
	}
}

// hosts are the first functions of the pair's host bridges.
func (b *bed) hosts() []string {
	var out []string
	for _, end := range []string{b.s.gpu, b.s.at} {
		bus, _, _ := strings.Cut(strings.TrimPrefix(b.dir(end), "sys/devices/"), "/")
		first := ""
		for addr, line := range b.functions {
			dir, _, _ := strings.Cut(line, " ")
			if dir == bus+"/"+addr && (first == "" || addr < first) {
				first = addr
			}
		}
		if first == "" {
			b.t.Fatalf("%s: nothing on %s", b.s.name, bus)
		}
		if !slices.Contains(out, first) {
			out = append(out, first)
		}
	}
	return out
}
