// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"io/fs"
	"path"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Read reads a file by its name on the machine, without the first slash.
func (l *Look) Read(elem ...string) machine.Reading { return l.Machine.Read(elem...) }

// There says whether a file of any kind exists, and returns its name on the machine.
func (l *Look) There(elem ...string) (placement.Answer, []string) {
	there, where := l.Machine.There(elem...)
	return there, []string{where}
}

// List returns the names in a directory, in order. The Reading has the directory's name,
// and the error if the directory could not be listed. It has no text.
func (l *Look) List(elem ...string) ([]string, machine.Reading) {
	name, where, anchor := l.Machine.Locate(path.Join(elem...))
	entries, err := files.ReadDir(name)
	r := machine.Reading{Where: where, Err: machine.Absent(err, anchor)}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, r
}

// Option returns the value of an option in the kernel's configuration, and the
// file that has it: "n" if the configuration does not have the option, and "" and
// nil if no configuration was read.
func (l *Look) Option(name string) (value string, where []string) {
	if l.Machine.Config == nil {
		return "", nil
	}
	value = l.Machine.Config[name]
	if value == "" {
		value = "n" // a file of the kernel's own has every option that could have been set
	}
	where = []string{l.Machine.Named(l.Machine.Kernel.Source)}
	return value, where
}

// Unread adds an unknown about a file that could not be read. If this process has no
// permission, the remedy is to run p2pcheck as root.
func (l *Look) Unread(scope string, r machine.Reading) *Finding {
	f := l.Unknown(scope, r.At(), "%s", r.Why())
	if errors.Is(r.Err, fs.ErrPermission) {
		f.AsRoot(l.Machine)
	}
	return f
}

// AsRoot sets the remedy to run p2pcheck again as root.
func (f *Finding) AsRoot(m *machine.Machine) *Finding {
	fix := p2p.AsRoot(m, "as root")
	f.Remedy = &fix
	return f
}

// Link reads the target of a symbolic link. If the link leads to itself, a
// snapshot could not read it: the Reading has an error.
func (l *Look) Link(elem ...string) machine.Reading { return l.Machine.Link(elem...) }
