// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/check/pciecheck"
	"github.com/gpurdma/gpurdma/p2p/render"
)

// line says what kind of device a function is, then the deciding facts. If all is set, it also
// has the usual facts.
func (f Function) line(all bool) string { return strings.Join(f.parts(all), ", ") }

func (f Function) parts(all bool) []string {
	first := fmt.Sprintf("%v %s %s:%s", f.PCI, f.Kind(), f.Vendor, f.Device)
	if all && f.Name != "" {
		first += " " + f.Name
	}
	if f.PF != nil {
		first += fmt.Sprintf(" (VF of %v)", *f.PF)
	}
	return append([]string{first}, f.Facts(all)...)
}

// Facts returns the deciding facts of a function in words: ACS, link, IOMMU, NUMA node and memory.
// With all it also returns the facts that have their usual values.
func (f Function) Facts(all bool) []string {
	parts := []string{f.ACS.text(all), f.Link.text(all)}
	if f.Role != "bridge" || all {
		parts = append(parts, f.iommu())
	}
	if f.NUMA != nil && (f.Role != "bridge" || all) {
		parts = append(parts, fmt.Sprintf("node %d", *f.NUMA))
	}
	for _, b := range f.BARs {
		if f.Role != "bridge" || all {
			parts = append(parts, b.text(all))
		}
	}
	parts = append(parts, f.memory())
	return slices.DeleteFunc(parts, func(s string) bool { return s == "" })
}

// Kind says what a function is, and names the driver of its PCI function: "NIC mlx5_0
// (mlx5_core)".
func (f Function) Kind() string {
	switch {
	case f.Role == "bridge" && f.Port != "":
		return f.Port
	case f.Role == mover && len(f.Names) == 0:
		return fmt.Sprintf("DMA function of a NIC (%s)", cmp.Or(f.Driver, "no driver"))
	case f.Role == mover:
		return fmt.Sprintf("DMA function of %s (%s)", strings.Join(f.Names, ", "), cmp.Or(f.Driver, "no driver"))
	case f.Role == guestNIC:
		return fmt.Sprintf("NIC of a guest (%s)", f.Driver)
	case f.Role == "NIC", f.Role == "NVMe" && f.Names[0] != f.PCI.String():
		return fmt.Sprintf("%s %s (%s)", f.Role, strings.Join(f.Names, ", "), f.Driver)
	case f.Role == "bridge":
		return f.Role
	case f.Role == "other":
		return strings.TrimSpace("PF " + f.Driver) // of a virtual function that is one of the others
	}
	if f.Role == "GPU" {
		return "GPU " + cmp.Or(render.NoDriver(f.Driver), f.Driver)
	}
	return strings.TrimSpace(f.Role + " " + f.Driver)
}

func (f Function) iommu() string {
	if f.Group == nil {
		return "IOMMU " + f.IOMMU
	}
	return fmt.Sprintf("IOMMU %s group %s", f.IOMMU, *f.Group)
}

// memory is the memory of an NVMe controller that peers may reach.
func (f Function) memory() string {
	var parts []string
	if f.CMB != nil && *f.CMB > 0 {
		parts = append(parts, "CMB "+human.Size(*f.CMB))
	}
	if f.Peer != nil {
		parts = append(parts, human.Size(*f.Peer)+" for peers")
	}
	return strings.Join(parts, ", ")
}

// text has the size, and the largest size that the function offers if it is larger.
func (b BAR) text(all bool) string {
	text := fmt.Sprintf("BAR %d %s", b.Index, human.Size(b.Size))
	switch {
	case b.Largest != nil && *b.Largest > b.Size:
		text += " of " + human.Size(*b.Largest)
	case b.Largest != nil && all:
		text += ", the largest size"
	}
	if all {
		text += fmt.Sprintf(" at %#x", b.Start)
		if b.Prefetchable {
			text += " prefetchable"
		}
	}
	return text
}

func (a ACS) text(all bool) string {
	switch {
	case !a.Known:
		return "ACS unknown"
	case !a.Present:
		return ""
	case all:
		return "ACS " + pciecheck.ACSLetters(a.Control)
	case a.Redirects == "none":
		return "ACS does not redirect"
	}
	return "ACS " + a.Redirects
}

// Redirecting reports whether the function is known to send traffic between devices to the root.
func (a ACS) Redirecting() bool { return a.Known && a.Present && a.Redirects != "none" }

// Less reports whether the link is slower or narrower than both of its ends support.
func (l Link) Less() bool {
	below := func(is, most, port string) bool {
		return is != "" && most != "" && port != "" && is != most && is != port
	}
	return below(l.Speed, l.MaxSpeed, l.PortMaxSpeed) || below(l.Width, l.MaxWidth, l.PortMaxWidth)
}

// text has the speed and the width of the link, those that its lower end could have, and, if the
// two ends differ, those of the port above.
func (l Link) text(all bool) string {
	if l.Speed == "" {
		return ""
	}
	speed := func(s, width string) string { return strings.TrimSuffix(s, " PCIe") + " x" + width }
	text := speed(l.Speed, l.Width)
	if l.Speed != l.MaxSpeed && l.MaxSpeed != "" || l.Width != l.MaxWidth && l.MaxWidth != "" {
		text += " of " + speed(l.MaxSpeed, l.MaxWidth)
		all = true
	}
	if all && l.PortMaxSpeed != "" && l.PortMaxWidth != "" && (l.PortMaxSpeed != l.MaxSpeed || l.PortMaxWidth != l.MaxWidth) {
		text += fmt.Sprintf(" (the port above: %s)", speed(l.PortMaxSpeed, l.PortMaxWidth))
	}
	return text
}

// String returns the rate of the slowest link, and its place if the links at both ends have higher
// rates; "" for nil.
func (w *Way) String() string {
	if w == nil {
		return ""
	}
	text := fmt.Sprintf("%.1f GB/s", float64(w.BytesPerS)/1e9)
	if w.BytesPerS < w.EndsBytesPerS {
		text += fmt.Sprintf(" above %v", w.Slowest)
	}
	return text
}
