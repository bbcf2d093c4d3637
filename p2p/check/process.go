// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// OfProcess reads a file of the process that --pid names. Nothing is known about a process that has
// ended, even if its file is missing or still has old values, as some files of a zombie have.
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

// Ended is the error if the process is a zombie. The caller asks after it has read a file, since the
// process can end during the read.
func (l *Look) Ended() error {
	state, _ := l.Read(l.Machine.ProcessDir(), "status").Line("State:")
	if strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
		return fmt.Errorf("process %d has ended: %s", l.Machine.PID, state)
	}
	return nil
}
