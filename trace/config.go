// SPDX-License-Identifier: Apache-2.0

package trace

import "github.com/gpurdma/gpurdma/trace/internal/loader"

// Config says what to trace. The zero value traces the whole system.
type Config struct {
	// PIDs picks processes, by their numbers in the initial PID namespace.
	PIDs []int
	// Self picks this process, whatever its number is outside a container.
	Self bool
	// Children follows the processes that PIDs and Self start, too.
	Children bool
	// Cgroup picks the processes below a cgroup v2 directory,
	// "/sys/fs/cgroup/machine.slice".
	Cgroup string
	// Inodes picks dma-bufs by inode number (dmabuf.Buf.Inode).
	Inodes []uint64
	// RDMAOnly leaves out attachments that no memory registration makes.
	RDMAOnly bool
	// Exports reports every dma-buf that is exported, too.
	Exports bool

	// WalkLimit is how many entries of a scatter list are read at most, 16384
	// if it is 0. The kernel holds the buffer's lock meanwhile.
	WalkLimit int
	// RingSize is the size in bytes of the buffer between kernel and reader, a
	// power of two; 4 MiB if it is 0.
	RingSize int
	// MaxRecords bounds how many live registrations are followed, 65536 if it
	// is 0. The oldest are given up, which is counted.
	MaxRecords int
	// MaxEvents bounds how many events wait for [Tracer.Events], 16384 if it
	// is 0. The oldest are dropped, which is counted.
	MaxEvents int

	// NoInventory skips looking for what existed before. Who made an
	// attachment is not recorded: the inventory has those of buffers that PIDs
	// or, with Self, this process hold, and of buffers that no process holds
	// any more (in a container: not those). It knows the filter by inode, and not
	// that by cgroup.
	NoInventory bool
	// NoExporterHooks leaves out the exporters' own operations.
	NoExporterHooks bool

	// Sys, Proc and Debug are the roots of sysfs, procfs and debugfs, "" for
	// the live ones.
	Sys, Proc, Debug string

	// For tests.
	tests    loader.Tests
	listed   func() // called between the inventory's list and the following of what is in it
	followed func() // called between that and the second list

	exporterOps int // how many of exporters' own operations are watched at most
}

func (c Config) withDefaults() Config {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&c.WalkLimit, 16<<10)
	set(&c.RingSize, 4<<20)
	set(&c.MaxRecords, 1<<16)
	set(&c.MaxEvents, 16<<10)
	set(&c.exporterOps, 64)
	return c
}

// loading is what loading needs to know.
func (c Config) loading() loader.Config {
	return loader.Config{
		PIDs: c.PIDs, Self: c.Self, Children: c.Children, Cgroup: c.Cgroup, Inodes: c.Inodes,
		RDMAOnly: c.RDMAOnly, Exports: c.Exports, WalkLimit: c.WalkLimit, RingSize: c.RingSize,
		NoExporterHooks: c.NoExporterHooks, ExporterOps: c.exporterOps, Sys: c.Sys, Proc: c.Proc, Tests: c.tests,
	}
}
