// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// processDir is the directory in procfs of the process that limits, capabilities,
// control group, mounts and environment are asked for: a program's, or this one.
func (m *Machine) processDir() string {
	if m.process == 0 {
		return "proc/self"
	}
	return "proc/" + strconv.Itoa(m.process)
}

// whose names the process of a finding, and is empty for this one.
func (m *Machine) whose() string {
	if m.process == 0 {
		return ""
	}
	return fmt.Sprintf("process %d: ", m.process)
}

// Process is the one that was asked for in place of this one, and its name, as far
// as it is known; 0 if it is this one.
func (m *Machine) Process() (pid int, name string) {
	if m.process == 0 {
		return 0, ""
	}
	return m.process, m.read(m.processDir(), "comm").text
}

// ofProcess reads a file of that process. One that has ended is not known, though
// its file is not there, or tells of what it had: of a zombie some still do.
func (l *look) ofProcess(name string) reading {
	r := l.read(l.m.processDir(), name)
	if l.m.process == 0 {
		return r
	}
	if ended := l.ended(); ended != nil {
		r.err = ended
	} else if r.gone() {
		r.err = fmt.Errorf("process %d is not there (any more)", l.m.process)
	}
	return r
}

// ended is why nothing is known of another process that is a zombie. It is asked
// after a file was read, which may be the last of it.
func (l *look) ended() error {
	state, _ := l.read(l.m.processDir(), "status").line("State:")
	if strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
		return fmt.Errorf("process %d has ended: %s", l.m.process, state)
	}
	return nil
}

// apart says what namespaces another process has of its own: devices and networks
// are told as this program sees them.
func (l *look) apart() {
	if l.m.process == 0 {
		return
	}
	at := []string{"/" + l.m.processDir() + "/ns"}
	var other, unread []string
	for _, kind := range []string{"mnt", "net", "user", "cgroup"} {
		own, its := l.link("proc/self/ns", kind), l.link(l.m.processDir(), "ns", kind)
		switch err := cmp.Or(own.err, its.err); {
		case err != nil:
			unread = append(unread, kind)
		case own.text != its.text:
			other = append(other, kind)
		}
	}
	if ended := l.ended(); ended != nil {
		l.unknown("", at, "%v", ended)
		return
	}
	if len(other) > 0 {
		l.warn("", at, "process %d has other namespaces (%s): files, devices and networks are told as this program sees them", l.m.process, strings.Join(other, ", "))
	}
	if len(unread) > 0 {
		l.unknown("", at, "whether process %d has other namespaces is not known (%s)", l.m.process, strings.Join(unread, ", ")).asRoot(l.m)
	}
}

// inert says that a process was given CAP_IPC_LOCK in vain: in a bounding set that
// somebody has made smaller, and not in effect.
func inert(status reading) string {
	text, _ := status.line("CapBnd")
	bounding, err := strconv.ParseUint(text, 16, 64)
	const capSysAdmin = 21
	if err != nil || bounding>>capIPCLock&1 == 0 || bounding>>capSysAdmin&1 != 0 {
		return ""
	}
	return "; it was given CAP_IPC_LOCK (CapBnd), which for a user that is not root has to be ambient"
}
