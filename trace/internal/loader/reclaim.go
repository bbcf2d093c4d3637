// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
	"github.com/gpurdma/gpurdma/trace/internal/support"
)

// The kernel skips the program for the end of a thread while another thread that
// was in it waits to go on, on the same processor (seen on Linux 7.2, whose
// tracepoints can be interrupted). What the thread then leaves is looked for here.

// reclaims is how often it is looked for after a run was skipped, once a second: a
// thread is in procfs a moment longer. The maps are read by system calls, while which
// kprobes on that processor are skipped, and counted.
const reclaims = 10

// Reclaim gives back what threads have that are gone, if the program for their end
// was skipped since the last time. In a PID namespace procfs has other numbers: there
// a slot stays taken until a thread with the same number comes.
func (l *Loader) Reclaim() error {
	due, err := l.reclaimDue()
	if err != nil || !due {
		return err
	}
	if err := l.ReclaimAll(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reclaims--
	return nil
}

// reclaimDue reports whether it is time to look for threads that are gone.
func (l *Loader) reclaimDue() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return false, nil
	}
	p := l.core.Programs[exitHook.program]
	if p == nil {
		return false, nil
	}
	s, err := p.Stats()
	if err != nil {
		return false, err
	}
	if s.RecursionMisses != l.skippedEnds {
		l.skippedEnds, l.reclaims = s.RecursionMisses, reclaims
	}
	if l.reclaims == 0 || time.Since(l.reclaimed) < time.Second {
		return false, nil
	}
	l.reclaimed = time.Now()
	// Where hidepid hides the first process, it may hide other processes that live.
	return !support.InContainer(l.cfg.Proc) && !l.ended(1, 1), nil
}

// ReclaimAll looks at every thread that has something.
func (l *Loader) ReclaimAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return nil
	}
	var gone []abi.Holding
	for what := range uint32(abi.OwnersTypes) {
		var owners abi.Owners
		if err := l.core.Maps["owners"].Lookup(what, &owners); err != nil {
			return err
		}
		for n, thread := range owners.Thread {
			if thread != 0 && l.ended(thread>>32, thread&(1<<32-1)) {
				gone = append(gone, abi.Holding{What: what, Slot: uint32(n), Thread: thread})
			}
		}
	}
	var pid uint64
	var one uint8
	var dead []uint64
	for it := l.core.Maps["pids"].Iterate(); it.Next(&pid, &one); {
		if l.ended(pid, pid) {
			dead = append(dead, pid)
		}
	}
	// They stay counted among the keys, which costs a look and no more.
	for _, pid := range dead {
		if err := l.core.Maps["pids"].Delete(pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	cs, err := objects.Spec("iter")
	if err != nil {
		return err
	}
	objects.Keep(cs, "reclaim")
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{MapReplacements: l.shared(cs)})
	if err != nil {
		return fault.Load(err)
	}
	defer coll.Close()
	for _, h := range gone {
		if _, err := coll.Programs["reclaim"].Run(&ebpf.RunOptions{Context: h}); err != nil {
			return err
		}
	}
	return nil
}

// ended reports a thread that is not in procfs.
func (l *Loader) ended(pid, tid uint64) bool {
	_, err := os.Stat(procfs.New(l.cfg.Proc).Path(fmt.Sprintf("%d/task/%d", pid, tid)))
	return errors.Is(err, fs.ErrNotExist)
}
