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

// The kernel skips the program for the end of a thread while another thread that was in it
// waits to go on, on the same processor (seen on Linux 7.2, whose tracepoints can be
// interrupted). The slots and entries that the thread then leaves behind are freed here.

// reclaims is how often the threads are looked for after a run was skipped, once a second: a
// thread stays in procfs for a moment after its end. While a system call reads a map, the
// kernel skips kprobes on that processor, and counts them.
const reclaims = 10

// Reclaim frees the slots of threads that have ended, if the kernel has skipped the program
// for their end since the last call. In a PID namespace procfs has other numbers: there
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

// ReclaimAll frees the slots and entries of all threads and processes that have ended.
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
	// They stay counted among the keys, so the programs look for them in vain.
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
