// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// apart reports the namespaces that another process does not share with this program: the checks see
// devices and networks in this program's namespaces.
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

// inert says that CAP_IPC_LOCK was given to a process without effect: a bounding set that is smaller
// than the full one has the capability, and the effective set does not.
func inert(status machine.Reading) string {
	text, _ := status.Line("CapBnd")
	bounding, err := strconv.ParseUint(text, 16, 64)
	const capSysAdmin = 21
	if err != nil || bounding>>capIPCLock&1 == 0 || bounding>>capSysAdmin&1 != 0 {
		return ""
	}
	return "; it was given CAP_IPC_LOCK (CapBnd), which for a user that is not root has to be ambient"
}
