// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
)

// acsSetter is what the kernel's command line has to do with bits that are on in a
// port's ACS control register: "" if nothing. It is not sure of an entry that is a path
// or has IDs, and may be of any port.
func (m *Machine) acsSetter(port Addr, on pci.ACSBits) (how string, sure bool) {
	const config = "pci=config_acs= on the kernel's command line"
	may := ""
	for _, entry := range strings.Split(m.pciOption("config_acs"), ";") {
		flags, name, ok := strings.Cut(entry, "@")
		a, err := ParseAddr(name)
		sets := turnedOn(flags)&on != 0
		switch {
		case !ok || err == nil && a != port || err != nil && !sets:
			continue
		case err != nil:
			may = "from " + config + ", which names ports by path or IDs, from the firmware or set since"
			continue
		case sets:
			return "as " + config + " sets it", true
		}
		break // the kernel goes by the first entry of a port
	}
	// The kernel clears these bits of the ports on its list when it starts.
	if may == "" && allOpened([]string{port.String()}, m.openedPorts()) {
		return "set since the kernel started: " + openParameter + " on its command line opens this port", true
	}
	return may, false
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
