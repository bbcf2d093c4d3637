// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"strconv"
)

// Capability is a capability of a process.
type Capability struct {
	Bit  uint   // its number in include/uapi/linux/capability.h
	Name string // "CAP_SYSLOG"
	Lost string // the facts that are unknown without it, or what fails, in words
}

// Wanted lists the capabilities that p2pcheck needs. The caller must not change it.
var Wanted = []Capability{
	{21, "CAP_SYS_ADMIN", "ACS, links, tracing"},
	{34, "CAP_SYSLOG", "the kernel's log and symbols"},
	{14, "CAP_IPC_LOCK", "registrations beyond the limit"},
	{39, "CAP_BPF", "tracing"},
	{38, "CAP_PERFMON", "tracing"},
}

// RawPackets is the capability that programs with queue pairs for raw packets
// need. p2pcheck itself does not need it.
var RawPackets = Capability{13, "CAP_NET_RAW", "queue pairs for raw packets"}

// Effective returns the effective capabilities of a process as a mask, in which bit
// Capability.Bit stands for a capability. r is the process's status file. If r has an
// error, or no valid CapEff, the Reading that Effective returns has the error.
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
