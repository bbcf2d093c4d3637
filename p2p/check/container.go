// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// InContainer says whether this program runs in a container. It also returns the sign
// that shows it, in words, and the files that have the sign.
func InContainer(l *Look) (placement.Answer, string, []string) {
	for _, name := range []string{".dockerenv", "run/.containerenv"} {
		if there, where := l.There(name); there == placement.Yes {
			return placement.Yes, where[0] + " is there", where
		}
	}
	var unread []string // control groups
	for _, process := range []string{"1", "self"} {
		r := l.Read("proc", process, "cgroup")
		if !r.Gone() && !strings.Contains(r.Text, ":/") {
			unread = append(unread, r.Where)
		}
		for _, word := range []string{"docker", "kubepods", "containerd", "libpod", "lxc"} {
			if strings.Contains(r.Text, word) {
				return placement.Yes, "process " + process + " is in a control group of " + word, r.At()
			}
		}
	}
	// A container can share the host's processes and have its own files.
	own, first := l.Link("proc/self/ns/mnt"), l.Link("proc/1/ns/mnt")
	root, where, err := rootFileSystem(l)
	switch {
	case own.Err == nil && first.Err == nil && own.Text != first.Text:
		return placement.Yes, "this is another mount namespace than that of process 1", own.At()
	case (own.Err != nil || first.Err != nil) && root == "overlay":
		return placement.Yes, "the root is an overlay, as of a container's image", where
	}
	user, pid := l.Link("proc/self/ns/user"), l.Link("proc/self/ns/pid")
	switch {
	case (own.Err != nil || first.Err != nil) && err != nil:
		return placement.AnswerUnknown, "neither the mount namespace of process 1 can be read nor what is mounted at the root", where
	case unread != nil:
		return placement.AnswerUnknown, "the control groups cannot be read", unread
	case user.Err != nil || pid.Err != nil:
		return placement.AnswerUnknown, "the namespaces cannot be read", user.At()
	case user.Text != machine.FirstUser:
		return placement.Yes, "this is another user namespace than the first", user.At()
	case pid.Text != machine.FirstPID:
		return placement.Yes, "this is another PID namespace than the first", pid.At()
	}
	return placement.No, "this is the first user and PID namespace", append(user.At(), pid.At()...)
}

// rootFileSystem returns the type of the file system that is mounted at the root; "" if no line has
// it.
func rootFileSystem(l *Look) (string, []string, error) {
	mounts, err := l.Machine.Proc.Mounts()
	at := []string{"/proc/self/mountinfo"}
	if err == nil && len(mounts) == 0 {
		err = machine.ErrNotCopied
	}
	for _, m := range slices.Backward(mounts) {
		if m.Point == "/" {
			return m.Type, at, nil
		}
	}
	return "", at, err
}
