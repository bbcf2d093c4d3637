// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
)

// ProcessDir is the directory in procfs of the process that limits, capabilities,
// control group, mounts and environment are asked for: a program's, or this one.
func (m *Machine) ProcessDir() string {
	if m.PID == 0 {
		return "proc/self"
	}
	return "proc/" + strconv.Itoa(m.PID)
}

// Whose names the process of a finding, and is empty for this one.
func (m *Machine) Whose() string {
	if m.PID == 0 {
		return ""
	}
	return fmt.Sprintf("process %d: ", m.PID)
}

// Process is the one that was asked for in place of this one, and its name, as far
// as it is known; 0 if it is this one.
func (m *Machine) Process() (pid int, name string) {
	if m.PID == 0 {
		return 0, ""
	}
	return m.PID, m.Read(m.ProcessDir(), "comm").Text
}
