// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"strconv"
)

type capability struct {
	Bit        uint
	Name, Lost string
}

// Wanted lists capabilities, and the facts that stay unknown without each of them.
var Wanted = []capability{
	{21, "CAP_SYS_ADMIN", "ACS, links, tracing"},
	{34, "CAP_SYSLOG", "the kernel's log and symbols"},
	{14, "CAP_IPC_LOCK", "registrations beyond the limit"},
	{39, "CAP_BPF", "tracing"},
	{38, "CAP_PERFMON", "tracing"},
}

// RawPackets is the capability that programs with queue pairs for raw packets need. This
// package does not need it.
var RawPackets = capability{13, "CAP_NET_RAW", "queue pairs for raw packets"}

// Effective reads the effective capabilities from a process's status.
func Effective(r Reading) (uint64, Reading) {
	text, ok := r.Line("CapEff")
	n, err := strconv.ParseUint(text, 16, 64)
	if r.Err == nil && (!ok || err != nil) {
		r.Err = errors.New("it has no CapEff")
	}
	return n, r
}

// Names of the first namespaces: include/linux/proc_ns.h.
const (
	FirstUser = "user:[4026531837]"
	FirstPID  = "pid:[4026531836]"
)
