// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// ReadFunction returns a PCI function as Function does, without the configuration space, and
// the error of reading it.
func (l *Look) ReadFunction(a pciaddr.Addr) (machine.Function, error) {
	f := l.Function(a)
	return f.Function, f.Err
}

// unplaced matches the kernel's line about a BAR for which it found no address. It does not match
// lines about BARs of virtual functions ("VF BAR 0").
var unplaced = regexp.MustCompile(`([0-9a-f]{4,}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]): BAR ([0-5])[ :].*(?:can't assign; no space|failed to assign)`)

// BarAssigned is the check of PCIE-BAR-ASSIGNED: it reports BARs that have no address.
func BarAssigned(l *Look) {
	all := l.Endpoints()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	complaints := map[string]string{} // by function and BAR
	log := l.Log()
	if log.Err == nil {
		for _, line := range log.Lines {
			if m := unplaced.FindStringSubmatch(line); m != nil {
				complaints[m[1]+" "+m[2]] = line
			}
		}
	}
	for _, f := range all {
		r := l.Read("sys", f.Dir, "resource")
		if r.Err != nil {
			l.Unread(f.Name, r)
			continue
		}
		var unset []string
		complaint, placed := "", false
		regions, err := pci.Regions(l.Machine.Sys, f.PCI)
		for _, region := range regions {
			switch {
			case region.Memory() && !region.Placed():
				unset = append(unset, strconv.Itoa(region.Index))
			case !region.Memory() && region.Start == 0:
				// The kernel resets a BAR without room: its line looks like that of a BAR that does not exist.
				complaint = cmp.Or(complaints[fmt.Sprintf("%v %d", f.PCI, region.Index)], complaint)
			}
			placed = placed || region.Memory()
		}
		switch {
		case err != nil:
			l.Unknown(f.Name, r.At(), "not understood")
		case len(unset) > 0:
			l.Fail(f.Name, r.At(), "no address: BAR %s", strings.Join(unset, ", "))
		case complaint != "":
			l.Fail(f.Name, []string{"/dev/kmsg"}, "%s", complaint)
		case !placed && log.Err != nil:
			l.Unknown(f.Name, append(r.At(), log.Where), "no BAR is there, and the kernel's log, which would say that one found no room, cannot be read")
		case !placed:
			l.Unknown(f.Name, append(r.At(), log.Where), "no BAR is there, and the kernel's log does not say that one found no room")
		default:
			l.Pass(f.Name, r.At(), "each has one")
		}
	}
}

// NodeOf returns a function's NUMA node; negative if it is not known.
func NodeOf(l *Look, a pciaddr.Addr) int {
	if f := l.Function(a); f.Err == nil {
		return f.NUMANode
	}
	return -1
}

// OneNode reports whether the machine is known to have a single NUMA node.
func OneNode(l *Look) bool { return l.Read("sys/devices/system/node/online").Text == "0" }
