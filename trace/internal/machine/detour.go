// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Detours finds out from the PCI tree why the kernel refused peer-to-peer between two
// functions. It reads the same settings as the kernel's own check
// (drivers/pci/p2pdma.c, calc_map_type_and_dist). It remembers an answer for a second, because
// many registrations may ask for the same pair. It is not for several goroutines at once.
type Detours struct {
	sys  sysfs.FS
	seen map[[2]string]Detour
}

// Detour is what keeps two functions apart, "" if nothing was found.
type Detour struct {
	Why, Remedy string
	read        time.Time
}

// NewDetours returns a Detours that reads the PCI tree below sys, the root of sysfs.
func NewDetours(sys string) *Detours {
	return &Detours{sys: sysfs.New(sys), seen: map[[2]string]Detour{}}
}

// maxDetours bounds the pairs that are remembered.
const maxDetours = 256

// Between says why the kernel refuses peer-to-peer between two functions.
func (d *Detours) Between(importer, exporter string) Detour {
	pair := [2]string{importer, exporter}
	if w, ok := d.seen[pair]; ok && time.Since(w.read) < rereadAfter {
		return w
	}
	if len(d.seen) >= maxDetours {
		clear(d.seen)
	}
	w := d.look(importer, exporter)
	w.read = time.Now()
	d.seen[pair] = w
	return w
}

func (d *Detours) look(importer, exporter string) Detour {
	to, err := d.upwards(exporter)
	if err != nil {
		return Detour{}
	}
	from, err := d.upwards(importer)
	if err != nil {
		return Detour{}
	}
	meet := slices.IndexFunc(to, func(a pciaddr.Addr) bool { return slices.Contains(from, a) })
	if meet < 0 {
		return Detour{
			Why:    "no switch above both, and the kernel does not let peer-to-peer pass through this host bridge",
			Remedy: "put both below one PCIe switch, or into a machine whose host bridge the kernel knows",
		}
	}
	// The common bridge counts, as it does for the kernel.
	path := append(slices.Clone(to[:meet+1]), from[:slices.Index(from, to[meet])]...)
	var redirect, unread []string
	for _, a := range path {
		c, err := pci.ReadConfig(d.sys, a)
		var acs pci.ACS
		if err == nil {
			acs, err = c.ACS()
		}
		switch {
		case err != nil:
			unread = append(unread, err.Error())
		case acs.Redirects() != 0:
			redirect = append(redirect, a.String())
		}
	}
	switch {
	case len(redirect) > 0:
		at := strings.Join(redirect, ", ")
		return Detour{
			Why:    "ACS redirect at " + at,
			Remedy: "turn the redirection off there (at boot: pci=disable_acs_redir=" + strings.Join(redirect, ";") + "), which also loosens what an IOMMU can keep apart",
		}
	case len(unread) > 0:
		return Detour{Why: "whether ACS redirects could not be read: " + strings.Join(unread, "; ")}
	}
	return Detour{}
}

// upwards is a function and the bridges above it, nearest first.
func (d *Detours) upwards(function string) ([]pciaddr.Addr, error) {
	a, err := pciaddr.Parse(function)
	if err != nil {
		return nil, err
	}
	above, err := pci.Upstream(d.sys, a)
	return append([]pciaddr.Addr{a}, above...), err
}
