// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
)

// ProcessDir returns the procfs directory of the process whose limits, capabilities,
// control group, mounts and environment are read: that of Source.Process, or this
// process.
func (m *Machine) ProcessDir() string {
	if m.PID == 0 {
		return "proc/self"
	}
	return "proc/" + strconv.Itoa(m.PID)
}

// Whose returns the prefix of texts about the process of Source.Process, "process 7: "; ""
// for this process.
func (m *Machine) Whose() string {
	if m.PID == 0 {
		return ""
	}
	return fmt.Sprintf("process %d: ", m.PID)
}

// Process returns the ID and the name of the process that Source.Process names; 0 if it
// names none.
func (m *Machine) Process() (pid int, name string) {
	if m.PID == 0 {
		return 0, ""
	}
	return m.PID, m.Read(m.ProcessDir(), "comm").Text
}
