// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
)

// ProcessDir is the procfs directory of the process whose limits, capabilities, control
// group, mounts and environment are read: the one that was given, or this one.
func (m *Machine) ProcessDir() string {
	if m.PID == 0 {
		return "proc/self"
	}
	return "proc/" + strconv.Itoa(m.PID)
}

// Whose is the prefix of a finding about another process. It is empty for this process.
func (m *Machine) Whose() string {
	if m.PID == 0 {
		return ""
	}
	return fmt.Sprintf("process %d: ", m.PID)
}

// Process is the ID of the process that was given in place of this one, and its name if it
// is known. The ID is 0 for this process.
func (m *Machine) Process() (pid int, name string) {
	if m.PID == 0 {
		return 0, ""
	}
	return m.PID, m.Read(m.ProcessDir(), "comm").Text
}
