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

// Wanted lists capabilities, with the facts that are unknown without each of them.
var Wanted = []capability{
	{21, "CAP_SYS_ADMIN", "ACS, links, tracing"},
	{34, "CAP_SYSLOG", "the kernel's log and symbols"},
	{14, "CAP_IPC_LOCK", "registrations beyond the limit"},
	{39, "CAP_BPF", "tracing"},
	{38, "CAP_PERFMON", "tracing"},
}

// RawPackets is the capability that programs with queue pairs for raw packets
// need. p2pcheck itself does not need it.
var RawPackets = capability{13, "CAP_NET_RAW", "queue pairs for raw packets"}

// Effective returns the effective capabilities in the text of a process's status
// file, as a mask. If it cannot, the Reading that it returns has the error.
func Effective(r Reading) (uint64, Reading) {
	text, ok := r.Line("CapEff")
	n, err := strconv.ParseUint(text, 16, 64)
	if r.Err == nil && (!ok || err != nil) {
		r.Err = errors.New("it has no CapEff")
	}
	return n, r
}

// The names of the first user namespace and the first PID namespace, as links in
// /proc/PID/ns have them (include/linux/proc_ns.h).
const (
	FirstUser = "user:[4026531837]"
	FirstPID  = "pid:[4026531836]"
)
