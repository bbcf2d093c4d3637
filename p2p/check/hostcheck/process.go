// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// apart reports the namespaces that the process of --pid does not share with this program. The checks read
// devices and networks in this program's namespaces, and the process may have others.
func apart(l *check.Look) {
	if l.Machine.PID == 0 {
		return
	}
	at := []string{"/" + l.Machine.ProcessDir() + "/ns"}
	var other, unread []string
	for _, kind := range []string{"mnt", "net", "user", "cgroup"} {
		own, its := l.Link("proc/self/ns", kind), l.Link(l.Machine.ProcessDir(), "ns", kind)
		switch err := cmp.Or(own.Err, its.Err); {
		case err != nil:
			unread = append(unread, kind)
		case own.Text != its.Text:
			other = append(other, kind)
		}
	}
	if ended := l.Ended(); ended != nil {
		l.Unknown("", at, "%v", ended)
		return
	}
	if len(other) > 0 {
		l.Warn("", at, "process %d has other namespaces (%s): the checks see files, devices and networks as this program does", l.Machine.PID, strings.Join(other, ", "))
	}
	if len(unread) > 0 {
		l.Unknown("", at, "whether process %d has other namespaces is not known (%s)", l.Machine.PID, strings.Join(unread, ", ")).AsRoot(l.Machine)
	}
}

// inert explains why a process lacks a CAP_IPC_LOCK that it was given; "" if it was not given. A runtime has given
// it if the bounding set has it, and is smaller than the full set. Without the ambient set it has no effect for a
// user that is not root.
func inert(status machine.Reading) string {
	text, _ := status.Line("CapBnd")
	bounding, err := strconv.ParseUint(text, 16, 64)
	const capSysAdmin = 21
	if err != nil || bounding>>capIPCLock&1 == 0 || bounding>>capSysAdmin&1 != 0 {
		return ""
	}
	return "; it was given CAP_IPC_LOCK (CapBnd), which for a user that is not root has to be ambient"
}
