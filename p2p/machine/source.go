// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"

	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Source is where a machine is read from. The zero value is this machine.
//
// A copy of another machine's files is as good as the machine itself. What of
// it is not there is unknown: nothing of this machine takes its place.
type Source struct {
	// Root is a directory with sys, proc, boot and lib/modules.
	Root string
	// Sys and Proc are sysfs and procfs, where they are elsewhere. With Sys
	// alone there is neither a procfs nor a boot directory.
	Sys, Proc string
	// Release is that of the kernel, if it is not to be read in Proc.
	Release string
	// Process is the one that limits, capabilities, control group, mounts and
	// environment are of, of this machine; 0 is this one.
	Process int
	// Config is the kernel's configuration, if it is not to be looked for.
	Config string
}

// noFiles has no files below it.
const noFiles = os.DevNull

// Open reads kernel and processor. What cannot be read is unknown, and is no
// error.
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
	m := &Machine{Root: root, Sys: sysfs.New(sys), Proc: procfs.New(proc), PID: s.Process, cache: &cache{Nodes: map[Addr]*Node{}, hosts: map[string]*HostBridge{}, Classes: map[Addr]uint64{}}}
	m.Kernel, m.Config = readKernel(root, m.Proc, s.Release, s.Config)
	m.CPU = readCPU(m.Proc)
	m.Virtual = m.readVirtual()
	return m
}
