// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
	"github.com/gpurdma/gpurdma/trace/internal/support"
)

// Supported says whether tracing can work here, and if not why and what to
// change. It changes nothing. sys and proc are the roots of sysfs and procfs.
func Supported(sys, proc string) error { return support.Check(sys, proc) }

// Namespaced reports whether this process lives in a PID namespace of its own,
// as in a container. The numbers of processes are then not those that the
// kernel reports, and Config.PIDs cannot be filled from what the process sees;
// Config.Self still works. proc is the root of procfs.
func Namespaced(proc string) bool { return support.InContainer(proc) }

// ReadMachine reads the memory map of the machine: the BARs of all PCI
// functions from sysfs, and RAM from iomem of procfs, which shows addresses
// only to root. sys and proc are their roots, "" for /sys and /proc. What
// cannot be read is left out: a placement that needs it is then Unknown.
func ReadMachine(sys, proc string) *placement.Machine { return machine.Read(sys, proc) }
