// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"os"

	"github.com/cilium/ebpf"

	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
	"github.com/gpurdma/gpurdma/trace/internal/support"
)

// self is this process's number in the initial PID namespace. Where procfs
// cannot know it, the kernel is asked by a program that runs once.
func (l *Loader) self() (int, error) {
	if !support.InContainer(l.cfg.Proc) {
		return os.Getpid(), nil
	}
	cs, err := objects.Spec("iter")
	if err != nil {
		return 0, err
	}
	objects.Keep(cs, "whoami")
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{MapReplacements: l.shared(cs)})
	if err != nil {
		return 0, fault.Load(err)
	}
	defer coll.Close()
	var answer uint64
	_, err = coll.Programs["whoami"].Run(&ebpf.RunOptions{Context: uint64(0), ContextOut: &answer})
	if err != nil {
		return 0, fault.New("this process's number", "", "trace the whole system, or a cgroup", fault.Errno(err))
	}
	return int(answer), nil
}
