// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"

	"github.com/cilium/ebpf"
)

// Namespaced reports whether this process lives in a PID namespace of its own,
// as in a container. The numbers of processes are then not those that the
// kernel reports, and Config.PIDs cannot be filled from what the process sees;
// Config.Self still works. proc is the root of procfs.
func Namespaced(proc string) bool {
	if proc == "" {
		proc = "/proc"
	}
	return inContainer(proc)
}

// self is this process's number in the initial PID namespace. Where procfs
// cannot know it, the kernel is asked by a program that runs once.
func (l *loader) self() (int, error) {
	if !Namespaced(l.cfg.Proc) {
		return os.Getpid(), nil
	}
	cs, err := spec("iter")
	if err != nil {
		return 0, err
	}
	keep(cs, []hook{{program: "whoami"}})
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{MapReplacements: l.shared(cs)})
	if err != nil {
		return 0, explainLoad(err)
	}
	defer coll.Close()
	var answer uint64
	_, err = coll.Programs["whoami"].Run(&ebpf.RunOptions{Context: uint64(0), ContextOut: &answer})
	if err != nil {
		return 0, refuse("this process's number", "", "trace the whole system, or a cgroup", rootErr(err))
	}
	return int(answer), nil
}
