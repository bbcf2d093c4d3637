// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// onlyRootReadsACS is the change of AsRoot where ACS or the kind of a port cannot be read.
const onlyRootReadsACS = "as root: only root can read ACS and the ports' kinds"

// onlyRootReadsNIC is the change where the NIC's ATS or ordering cannot be read.
const onlyRootReadsNIC = "as root: only root can read the NIC's configuration space"

// readAgain is the remedy for a file that could not be read. It is AsRoot, unless the error says that a copy has the
// file damaged: root would not read more.
func readAgain(m *machine.Machine, why error, change string) *chain.Remedy {
	if m.Root != "/" && errors.Is(why, fs.ErrInvalid) {
		return &chain.Remedy{Change: "take the copy again"}
	}
	r := AsRoot(m, change)
	return &r
}

// AsRoot is the remedy for a file or a register that only root can read, on this machine or for a
// copy of another one.
func AsRoot(m *machine.Machine, change string) chain.Remedy {
	if m.Root != "/" {
		return chain.Remedy{Change: "take the copy again, " + change}
	}
	return Again(m, change, os.Geteuid() == 0)
}

// Again is the remedy to run p2pcheck as root on this machine. If p2pcheck already runs as root,
// the remedy names the capability or the namespace that keeps root from reading.
func Again(m *machine.Machine, change string, root bool) chain.Remedy {
	if root {
		return chain.Remedy{Change: lacking(m)}
	}
	r := chain.Remedy{Change: "look again " + change, Command: "sudo p2pcheck"}
	if m.PID != 0 {
		r.Command += " --pid " + strconv.Itoa(m.PID)
	}
	return r
}

// lacking says what keeps root from reading: a user namespace, dropped capabilities, or else a
// container or lockdown.
func lacking(m *machine.Machine) string {
	var lost []string
	if caps, r := machine.Effective(m.Read("proc/self/status")); r.Err == nil {
		for _, w := range machine.Wanted {
			if caps>>w.Bit&1 == 0 {
				lost = append(lost, w.Name)
			}
		}
	}
	user := m.Link("proc/self/ns/user")
	switch {
	case user.Err == nil && user.Text != machine.FirstUser:
		return "look again as root of the host: this root is of another user namespace"
	case len(lost) > 0:
		return "look again with all of root's capabilities: this root is without " + strings.Join(lost, ", ")
	}
	return "look again on the host, outside of any container or lockdown: this process is root already"
}
