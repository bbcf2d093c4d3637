// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"

	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Source says which files describe a machine. The zero value is this machine.
//
// A copy of another machine's files gives the same answers as the machine itself. If
// the copy lacks a file, the fact is unknown: it is never read from this machine.
type Source struct {
	// Root is a directory with sys, proc, boot and lib/modules.
	Root string
	// Sys and Proc are the directories of sysfs and procfs if they are not below Root.
	// With Sys alone the machine has neither a procfs nor a boot directory.
	Sys, Proc string
	// Release is the kernel's release by which the rules judge; "" means the one in procfs.
	Release string
	// Process is the ID of the process of this machine whose limits, capabilities,
	// control group, mounts and environment are read; 0 is this process.
	Process int
	// Config is the file with the kernel's configuration; "" means to look for it in
	// the usual places.
	Config string
}

// noFiles has no files below it.
const noFiles = os.DevNull

// Open returns the machine, with the facts about kernel and processor. A fact that
// cannot be read is unknown, which is no error.
func (s Source) Open() *Machine {
	root, sys, proc := s.Root, s.Sys, s.Proc
	if root == "" && sys != "" {
		root = noFiles
	}
	if root == "" {
		root = "/"
	}
	if sys == "" {
		sys = filepath.Join(root, "sys")
	}
	if proc == "" {
		proc = filepath.Join(root, "proc")
	}
	m := &Machine{Root: root, Sys: sysfs.New(sys), Proc: procfs.New(proc), PID: s.Process, cache: &cache{Nodes: map[pciaddr.Addr]*Node{}, hosts: map[string]*HostBridge{}, Classes: map[pciaddr.Addr]uint64{}}}
	m.Kernel, m.Config = readKernel(root, m.Proc, s.Release, s.Config)
	m.CPU = readCPU(m.Proc)
	m.Virtual = m.readVirtual()
	return m
}
