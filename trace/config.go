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
	// if it is 0. The kernel holds the buffer's lock while they are read.
	WalkLimit int
	// RingSize is the size in bytes of the buffer between kernel and reader, a
	// power of two; 4 MiB if it is 0.
	RingSize int
	// MaxRecords bounds how many live registrations are followed, 65536 if it
	// is 0. The tracer gives up the oldest, and counts them.
	MaxRecords int
	// MaxEvents bounds how many events wait for [Tracer.Events], 16384 if it
	// is 0. The tracer drops the oldest, and counts them.
	MaxEvents int

	// NoInventory skips the inventory of attachments that existed before the tracer. The
	// kernel does not record which process made an attachment. With PIDs or Self, the
	// inventory therefore has the attachments of buffers that these processes hold and,
	// outside a container, of buffers that no process holds any more. It applies Inodes,
	// but not Cgroup.
	NoInventory bool
	// NoExporterHooks leaves out the exporters' own operations.
	NoExporterHooks bool

	// Sys, Proc and Debug are the roots of sysfs, procfs and debugfs, "" for
	// the live ones.
	Sys, Proc, Debug string

	// For tests.
	tests    loader.Tests
	listed   func() // called after the inventory's first list, before its attachments are followed
	followed func() // called after they are followed, before the second list

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

// loading is the part of the configuration that the loader needs.
func (c Config) loading() loader.Config {
	return loader.Config{
		PIDs: c.PIDs, Self: c.Self, Children: c.Children, Cgroup: c.Cgroup, Inodes: c.Inodes,
		RDMAOnly: c.RDMAOnly, Exports: c.Exports, WalkLimit: c.WalkLimit, RingSize: c.RingSize,
		NoExporterHooks: c.NoExporterHooks, ExporterOps: c.exporterOps, Sys: c.Sys, Proc: c.Proc, Tests: c.tests,
	}
}
