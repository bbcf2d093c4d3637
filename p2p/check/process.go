// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// OfProcess reads a file of the process that is asked for. One that has ended is not known, though
// its file is not there, or tells of what it had: of a zombie some still do.
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

// Ended is why nothing is known of another process that is a zombie. It is asked after a file was
// read, which may be the last of it.
func (l *Look) Ended() error {
	state, _ := l.Read(l.Machine.ProcessDir(), "status").Line("State:")
	if strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
		return fmt.Errorf("process %d has ended: %s", l.Machine.PID, state)
	}
	return nil
}
