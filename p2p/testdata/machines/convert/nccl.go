// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ncclNode is an element of a topology file of NCCL or RCCL. These files have every
// second level of the PCI tree: a bridge is the upstream port of a switch, and the
// downstream ports below it are left out.
type ncclNode struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Below   []ncclNode `xml:",any"`
}

func (n ncclNode) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// nccl prints the functions of a topology file, with the root ports and downstream
// ports that it leaves out.
func (c *converter) nccl(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var system ncclNode
	if err := xml.Unmarshal(data, &system); err != nil {
		return err
	}
	for _, cpu := range system.Below {
		host := ncclHost(cpu.attr("vendor"), cpu.attr("modelid"))
		for _, f := range cpu.Below {
			if f.XMLName.Local == "pci" {
				if err := c.ncclRoot(f, host, cpu.attr("numaid")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ncclHost names the parts of a processor, by vendor and model.
func ncclHost(vendor, model string) string {
	switch {
	case vendor == "GenuineIntel" && model == "143":
		return "spr"
	case vendor == "GenuineIntel":
		return "skx"
	case model == "144" || model == "17":
		return "genoa"
	}
	return "rome"
}

// ncclRoot prints a host bridge with one root port, and what is below.
func (c *converter) ncclRoot(f ncclNode, host, numa string) error {
	domain, bus, err := busOf(f)
	if err != nil {
		return err
	}
	c.line("pci%s:%02x", domain, bus-1)
	port := fmt.Sprintf("%s:%02x:01.1", domain, bus-1)
	if host == "skx" {
		port = fmt.Sprintf("%s:%02x:00.0", domain, bus-1)
	} else {
		c.line("  %s:%02x:00.0 @%s-host numa=%s", domain, bus-1, host, numa)
	}
	c.line("  %s @%s-port", port, host)
	return c.ncclFunction(f, 2, numa)
}

func busOf(f ncclNode) (domain string, bus uint64, err error) {
	domain, rest, _ := strings.Cut(f.attr("busid"), ":")
	text, _, _ := strings.Cut(rest, ":")
	bus, err = strconv.ParseUint(text, 16, 8)
	if err == nil && bus == 0 {
		err = fmt.Errorf("function %s is on a root bus", f.attr("busid"))
	}
	return domain, bus, err
}

func (c *converter) ncclFunction(f ncclNode, depth int, numa string) error {
	indent, class := strings.Repeat("  ", depth), f.attr("class")
	vendor, device := strings.TrimPrefix(f.attr("vendor"), "0x"), strings.TrimPrefix(f.attr("device"), "0x")
	line := fmt.Sprintf("%s%s class=%s", indent, f.attr("busid"), class)
	if vendor != "" {
		line += fmt.Sprintf(" id=%s:%s", vendor, device)
	}
	speed, _, _ := strings.Cut(f.attr("link_speed"), " ")
	if g, w := generations[speed], f.attr("link_width"); g != "" && w != "" && w != "0" {
		line += fmt.Sprintf(" link=%sx%s", g, w)
	}
	if strings.HasPrefix(class, "0x0604") {
		c.line("%s type=5", line)
		return c.ncclBelow(f, line, depth, numa)
	}
	part := "@gpu"
	if strings.HasPrefix(class, "0x02") {
		part = "@nic"
	}
	c.line("%s %s numa=%s%s", line, part, numa, ncclDevices(f))
	return nil
}

// ncclBelow prints the downstream ports of a switch, and what is below each. A card
// with two functions is below one.
func (c *converter) ncclBelow(f ncclNode, up string, depth int, numa string) error {
	domain, bus, err := busOf(f)
	if err != nil {
		return err
	}
	_, attrs, _ := strings.Cut(strings.TrimSpace(up), " ")
	last := ""
	for i, b := range f.Below {
		if b.XMLName.Local != "pci" {
			continue
		}
		if slot, _, _ := strings.Cut(b.attr("busid"), "."); slot != last {
			c.line("%s%s:%02x:%02x.0 %s type=6 acs=0", strings.Repeat("  ", depth+1), domain, bus+1, i, attrs)
			last = slot
		}
		if err := c.ncclFunction(b, depth+2, numa); err != nil {
			return err
		}
	}
	return nil
}

// ncclDevices are the RDMA devices of a function.
func ncclDevices(f ncclNode) string {
	var names []string
	for _, nic := range f.Below {
		for _, net := range nic.Below {
			if name := net.attr("name"); net.XMLName.Local == "net" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " rdma:" + strings.Join(names, " rdma:")
}
