// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Of syslog(2).
const (
	syslogReadAll    = 3
	syslogSizeBuffer = 10
)

// AskedLog is where a log is from that the kernel was asked for.
const AskedLog = "syslog(2)"

// AskLog is for containers: they have no /dev/kmsg, and their filter of devices
// would not let them open it, where syslog(2) asks for CAP_SYSLOG alone.
func AskLog() *KernelLog {
	k := &KernelLog{Where: AskedLog}
	size, err := unix.Klogctl(syslogSizeBuffer, nil)
	if err == nil {
		buf := make([]byte, max(0, min(size, logLimit)))
		size, err = unix.Klogctl(syslogReadAll, buf)
		if err == nil {
			k.Lines, k.Cut, k.Err = SyslogLines(string(buf[:size]))
			return k
		}
	}
	k.Err = os.NewSyscallError("syslog", err)
	return k
}

// atBoot is the time of a kernel's first line.
const atBoot = "[    0.000000]"

// SyslogLines are the lines, without level and time. A kernel that says
// something else at first than who it is, is none: sandboxes make a log up.
func SyslogLines(text string) (lines []string, cut bool, err error) {
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
