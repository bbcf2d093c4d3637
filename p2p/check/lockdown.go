// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// LockdownMode returns the kernel's lockdown mode; "" if the text is not understood.
func LockdownMode(l *Look) (string, machine.Reading) {
	r := l.Read("sys/kernel/security/lockdown")
	_, rest, _ := strings.Cut(r.Text, "[")
	mode, _, ok := strings.Cut(rest, "]")
	if !ok {
		mode = ""
	}
	return mode, r
}

// lockedDown reports a kernel that is known to refuse writes to configuration space, as setpci's.
func lockedDown(l *Look) bool {
	mode, r := LockdownMode(l)
	return r.Err == nil && mode != "" && mode != "none"
}

// Unlocked sets a remedy whose command changes a device's registers. If the kernel is locked
// down, it refuses such a command: the remedy is then the change in instead, without a command.
func Unlocked(l *Look, f *Finding, change, command, weakens, instead string) {
	if lockedDown(l) {
		change, command = instead+": the kernel is locked down, and refuses "+strings.Fields(command)[0], ""
	}
	f.Fix(change, command, weakens)
}

// UnreadLog adds an unknown finding about a kernel log that this process may not read.
func UnreadLog(l *Look, log *machine.KernelLog) {
	f := l.Unread("", machine.Reading{Where: log.Where, Err: log.Err})
	if errors.Is(log.Err, machine.ErrNotCopied) {
		return
	}
	if log.Where == machine.AskedLog {
		f.Fix("look again as root; in a container, with CAP_SYSLOG", "--cap-add SYSLOG", "")
		return
	}
	f.AsRoot(l.Machine)
}
