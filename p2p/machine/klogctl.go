// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Actions of syslog(2).
const (
	syslogReadAll    = 3
	syslogSizeBuffer = 10
)

// AskedLog is the Where of a log that was read by the system call.
const AskedLog = "syslog(2)"

// askLog reads the log by syslog(2), for containers: they have no /dev/kmsg, and their
// device filter does not allow it. syslog(2) needs only CAP_SYSLOG.
func askLog() *KernelLog {
	k := &KernelLog{Where: AskedLog}
	size, err := unix.Klogctl(syslogSizeBuffer, nil)
	if err == nil {
		buf := make([]byte, max(0, min(size, logLimit)))
		size, err = unix.Klogctl(syslogReadAll, buf)
		if err == nil {
			k.Lines, k.Cut, k.Err = syslogLines(string(buf[:size]))
			return k
		}
	}
	k.Err = os.NewSyscallError("syslog", err)
	return k
}

// atBoot is the time of a kernel's first line.
const atBoot = "[    0.000000]"

// syslogLines splits the text of syslog(2) into lines, without level and time. cut says
// that the beginning was overwritten; err is ErrNoRecord for an empty log. The log of a real kernel starts with its version. A
// log that starts at time 0 without a version comes from a sandbox, and counts as empty.
func syslogLines(text string) (lines []string, cut bool, err error) {
	first, named := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if _, rest, ok := strings.Cut(line, ">"); ok && strings.HasPrefix(line, "<") {
			line = rest
		}
		if len(lines) == 0 {
			first = line
		}
		if len(lines) < 10 {
			named = named || strings.Contains(line, "Linux version")
		}
		if _, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(line, "[") {
			line = rest
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 || !named && strings.HasPrefix(first, atBoot) {
		return nil, false, ErrNoRecord
	}
	return lines, !named, nil
}
