// SPDX-License-Identifier: Apache-2.0

package loader

import "github.com/cilium/ebpf/btf"

// Config is the part of trace.Config that the loader needs, with the defaults filled in.
type Config struct {
	PIDs            []int
	Self, Children  bool
	Cgroup          string
	Inodes          []uint64
	RDMAOnly        bool
	Exports         bool
	WalkLimit       int
	RingSize        int
	NoExporterHooks bool
	ExporterOps     int    // how many of exporters' own operations are watched at most
	Sys, Proc       string // the roots of sysfs and procfs, "" for the live ones

	Tests Tests
}

// Tests changes the loader for tests.
type Tests struct {
	RDMALater      bool      // as if ib_uverbs were not loaded when the tracer opens
	RDMAWithoutBTF bool      // as if the RDMA modules carried no BTF
	KernelTypes    *btf.Spec // in place of the kernel's own
	Meanwhile      func()    // called between the first look at the kernel and the first program in it
	ModuleCame     func()    // called before programs are attached to modules that came later
}
