// SPDX-License-Identifier: Apache-2.0

package libcheck

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// environment is a set of variables, and the program or container that has them.
type environment struct {
	whose  string // the prefix of findings about it: "", "process 7: ", "container job/worker: "
	vars   map[string]string
	unread machine.Reading // the file with the variables; its Err says why they are not known
	// elsewhere are variables that a container's specification takes from another object.
	elsewhere []string
}

// set writes the variables that are set and belong to a check; "none is set" for none.
func (e environment) set(belongs func(string) bool) string {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(e.vars)) {
		if belongs(name) {
			set = append(set, name+"="+shown(e.vars[name]))
		}
	}
	for _, name := range e.elsewhere {
		if name == envFrom || belongs(name) {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return "none is set"
	}
	return strings.Join(set, ", ")
}

// envFrom stands for all variables that a container takes from other objects by its "envFrom".
const envFrom = "envFrom"

// environments returns those of the containers in Subject.Containers; without containers, that of the process.
func environments(l *check.Look) []environment {
	if len(l.Subject.Containers) == 0 {
		return []environment{process(l)}
	}
	var out []environment
	for _, c := range l.Subject.Containers {
		whose := "the container: "
		if c.Name != "" {
			whose = "container " + c.Name + ": "
		}
		out = append(out, environment{whose, c.Env, machine.Reading{Where: l.Subject.Spec}, c.Unread})
	}
	return out
}

// errNoVariable is the error of an environ file without a single "=".
var errNoVariable = errors.New("it has no variable")

// errNotAtExec is the error of another process's environ file that no longer has the variables that
// the process was started with: a program that writes its title there leaves NULs, and the file of
// a zombie or of a kernel thread is empty.
var errNotAtExec = errors.New("it is empty, or the process has written over it: the variables that it was started with are not known")

// process returns the environment of this process, or of the process that --pid names.
func process(l *check.Look) environment {
	return check.Once(l, "environment", func() environment {
		r := l.OfProcess("environ")
		if r.Err == nil && r.Text != "" && !strings.Contains(r.Text, "=") {
			r.Err = errNoVariable
		}
		if r.Err == nil && l.Machine.PID != 0 && !AsAtExec(r.All) {
			r.Err = errNotAtExec
		}
		e := environment{whose: l.Machine.Whose(), vars: map[string]string{}, unread: r}
		if r.Err != nil {
			return e
		}
		for entry := range strings.SplitSeq(r.Text, "\x00") {
			if name, value, ok := strings.Cut(entry, "="); ok {
				e.vars[name] = value
			}
		}
		return e
	})
}

// AsAtExec reports whether the text of /proc/PID/environ still is the environment that the program was started
// with: each entry has a "=", and ends in a NUL. A program can overwrite this memory, or let the kernel show other
// memory in its place.
func AsAtExec(text string) bool {
	if len(text) >= machine.ReadLimit {
		return false
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		if !strings.Contains(entry, "=") {
			return false
		}
	}
	return true
}
