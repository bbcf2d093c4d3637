// SPDX-License-Identifier: Apache-2.0

package machine

// The functions that read the kernel's log without /dev/kmsg, for tests.
var (
	AskLog      = askLog
	SyslogLines = syslogLines
)
