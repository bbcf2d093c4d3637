// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// OfProcess reads a file of the process that --pid names. If the process has ended, the Reading
// has an error, even if the file is missing or still has old values, as some files of a zombie
// have.
func (l *Look) OfProcess(name string) machine.Reading {
	r := l.Read(l.Machine.ProcessDir(), name)
	if l.Machine.PID == 0 {
		return r
	}
	if ended := l.Ended(); ended != nil {
		r.Err = ended
	} else if r.Gone() {
		r.Err = fmt.Errorf("process %d is not there (any more)", l.Machine.PID)
	}
	return r
}

// Ended returns an error if the process that --pid names is a zombie. The caller calls it after it
// has read a file, because the process may end during the read.
func (l *Look) Ended() error {
	state, _ := l.Read(l.Machine.ProcessDir(), "status").Line("State:")
	if strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
		return fmt.Errorf("process %d has ended: %s", l.Machine.PID, state)
	}
	return nil
}
