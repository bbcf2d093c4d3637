// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// ACSSetter says in words how the kernel's command line sets the bits by which a port redirects; ""
// if it does not set them. sure is false if an entry may be for this port or for another one.
func ACSSetter(m *machine.Machine, port machine.Function) (how string, sure bool) {
	const config = "pci=config_acs= on the kernel's command line"
	may := ""
	for _, entry := range strings.Split(m.PciOption("config_acs"), ";") {
		flags, name, ok := strings.Cut(entry, "@")
		covers, sets := covers(name, port), turnedOn(flags)&port.ACS.Redirects() != 0
		switch {
		case !ok || covers == placement.No || covers == placement.AnswerUnknown && !sets:
			continue
		case covers == placement.AnswerUnknown:
			may = "perhaps from " + config + ": whether that names this port is not known"
			continue
		case sets:
			return "as " + config + " sets it", true
		}
		break // the kernel goes by the first entry of a port
	}
	// The kernel clears these bits of the ports on its list when it starts.
	if may == "" && slices.ContainsFunc(m.OpenedPorts(), func(entry string) bool { return covers(entry, port) == placement.Yes }) {
		return "set since the kernel started: " + OpenParameter + " on its command line opens this port", true
	}
	return may, false
}

// covers reports whether an entry of such a list is for a port. An entry is an address, a path of an
// address and the devices below it, or "pci:VENDOR:DEVICE", in which 0 is any. IDs of the board can
// follow, which are not known here.
func covers(entry string, port machine.Function) placement.Answer {
	if ids, ok := strings.CutPrefix(entry, "pci:"); ok {
		return hasIDs(strings.Split(ids, ":"), port)
	}
	first, below, _ := strings.Cut(entry, "/")
	way := append([]pciaddr.Addr{port.PCI}, port.Upstream...)
	if below != "" {
		steps := strings.Split(below, "/")
		slices.Reverse(steps)
		if len(steps) >= len(way) {
			return placement.No
		}
		for i, step := range steps {
			switch {
			case len(step) != len("00.0"):
				return placement.AnswerUnknown
			case !strings.HasSuffix(way[i].String(), ":"+strings.ToLower(step)):
				return placement.No
			}
		}
		way = way[len(steps):]
	}
	switch a, err := pciaddr.Parse(first); {
	case err != nil:
		return placement.AnswerUnknown
	case a != way[0]:
		return placement.No
	}
	return placement.Yes
}

func hasIDs(ids []string, port machine.Function) placement.Answer {
	if len(ids) < 2 {
		return placement.AnswerUnknown
	}
	for i, of := range []uint16{port.Vendor, port.Device} {
		switch id, err := strconv.ParseUint(ids[i], 16, 16); {
		case err != nil:
			return placement.AnswerUnknown
		case id != 0 && uint16(id) != of:
			return placement.No
		}
	}
	if len(ids) > 2 {
		return placement.AnswerUnknown
	}
	return placement.Yes
}

// turnedOn are the bits that the flags of an entry of config_acs= turn on: the last letter
// is the first bit, and "x" leaves one as it is.
func turnedOn(flags string) (on pci.ACSBits) {
	for i := range min(len(flags), 16) {
		if flags[len(flags)-1-i] == '1' {
			on |= 1 << i
		}
	}
	return on
}
