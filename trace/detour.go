// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// detours reads in the PCI tree why the kernel turned peer-to-peer down
// between two functions. It looks at what the kernel's own check looks at
// (drivers/pci/p2pdma.c, calc_map_type_and_dist). The answers for a second: a
// storm of registrations asks for one pair over and over. It is not for
// several goroutines at once.
type detours struct {
	sys  sysfs.FS
	seen map[[2]string]detour
}

// detour is what keeps two functions apart, "" if nothing was found.
type detour struct {
	why, remedy string
	read        time.Time
}

func newDetours(sys string) *detours {
	return &detours{sys: sysfs.New(sys), seen: map[[2]string]detour{}}
}

// maxDetours bounds the pairs that are remembered.
const maxDetours = 256

// between says what a refusal between two functions is due to.
func (d *detours) between(importer, exporter string) detour {
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

func (d *detours) look(importer, exporter string) detour {
	to, err := d.upwards(exporter)
	if err != nil {
		return detour{}
	}
	from, err := d.upwards(importer)
	if err != nil {
		return detour{}
	}
	meet := slices.IndexFunc(to, func(a pciaddr.Addr) bool { return slices.Contains(from, a) })
	if meet < 0 {
		return detour{
			why:    "no switch above both, and the kernel does not let peer-to-peer pass through this host bridge",
			remedy: "put both below one PCIe switch, or into a machine whose host bridge the kernel knows",
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
		return detour{
			why:    "ACS redirect at " + at,
			remedy: "turn the redirection off there (at boot: pci=disable_acs_redir=" + strings.Join(redirect, ";") + "), which also loosens what an IOMMU can keep apart",
		}
	case len(unread) > 0:
		return detour{why: "whether ACS redirects could not be read: " + strings.Join(unread, "; ")}
	}
	return detour{}
}

// upwards is a function and the bridges above it, nearest first.
func (d *detours) upwards(function string) ([]pciaddr.Addr, error) {
	a, err := pciaddr.Parse(function)
	if err != nil {
		return nil, err
	}
	above, err := pci.Upstream(d.sys, a)
	return append([]pciaddr.Addr{a}, above...), err
}
