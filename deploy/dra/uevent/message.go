// SPDX-License-Identifier: Apache-2.0

package uevent

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// subsystems are those whose devices decide which pairs there are.
var subsystems = []string{"pci", "infiniband", "infiniband_verbs", "drm", "accel", "module"}

// longest is the length of the longest message that the kernel sends: a first line with a path, and
// UEVENT_BUFFER_SIZE bytes of variables (include/linux/kobject.h).
const longest = unix.PathMax + 2048

// concerns reports that a message is of one of the subsystems. Any process with CAP_SYS_ADMIN may send a message
// with any text (uevent_net_rcv_skb in lib/kobject_uevent.c); a text in another form than the kernel's is ignored.
func concerns(message []byte) bool {
	head, rest, ok := bytes.Cut(message, []byte{0})
	if !ok || len(message) > longest {
		return false
	}
	action, path, ok := strings.Cut(string(head), "@")
	if !ok || action == "" || !strings.HasPrefix(path, "/") {
		return false
	}
	for line := range bytes.SplitSeq(rest, []byte{0}) {
		if name, ok := bytes.CutPrefix(line, []byte("SUBSYSTEM=")); ok {
			return slices.Contains(subsystems, string(name))
		}
	}
	return false
}
