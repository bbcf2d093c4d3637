// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// Tracer watches registrations. Its methods may be called from any goroutine.
type Tracer struct {
	cfg    Config
	loader *loader.Loader
	reader *ringbuf.Reader
	wake   chan struct{} // wakes attachLater when modules were loaded
	late   chan struct{} // closed when attachLater has returned
	// The counters of the programs: events that the ring had no room for, and skipped runs.
	lostCount   func() ([abi.EventTypes]uint64, error)
	missedCount func() map[string]uint64

	mu      sync.Mutex
	changed *sync.Cond
	rdma    bool
	came    loader.Modules
	counted time.Time // when skipped runs were looked for
	asked   uint64    // how many calls of Flush there were
	serving uint64    // how many of them came before the current round began
	served  uint64    // how many of them came before a round that has ended
	join    *joiner
	queue   []Event
	lost    [abi.EventTypes]uint64
	loss    Loss
	unread  []error // of the inventory
	failed  error
	closed  bool
	done    chan struct{}
}

// Open loads the programs, attaches them and looks for what is there already.
// It needs Linux 5.17 with BTF and, in general, root; [Supported] says what is
// missing, and so does the error. Functions that this kernel does not have are
// in [Tracer.Hooks]. ib_uverbs need not be loaded: it is attached to when it
// is. Close the tracer when done.
func Open(cfg Config) (*Tracer, error) {
	cfg = cfg.withDefaults()
	if cfg.RingSize&(cfg.RingSize-1) != 0 || cfg.RingSize < os.Getpagesize() {
		return nil, fault.New("configuration", fmt.Sprintf("RingSize %d", cfg.RingSize), "give a power of two, at least a page", unix.EINVAL)
	}
	if err := Supported(cfg.Sys, cfg.Proc); err != nil {
		return nil, err
	}
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	table := machine.New(cfg.Sys, cfg.Proc)
	syms := symbols.New(cfg.Proc)
	l := loader.New(cfg.loading(), syms)
	if err := l.Load(table); err != nil {
		l.Close()
		return nil, err
	}
	table.OnChange(l.RefreshWindows)
	t := &Tracer{
		cfg: cfg, loader: l, rdma: l.Has("rdma"), done: make(chan struct{}), late: make(chan struct{}), wake: make(chan struct{}, 1),
		lostCount: l.Lost, missedCount: l.Missed,
		join: newJoiner(&converter{boot: boot, machine: table, symbol: syms.Name, op: l.OpName, optional: l.Has("invalidate_mappings"),
			unmoved: !l.Has("invalidate_mappings") && !l.Has("move_notify"), detours: machine.NewDetours(cfg.Sys),
			findings: newFindings(refusal.Machine{Sys: sysfs.New(cfg.Sys), Proc: procfs.New(cfg.Proc)})}, cfg.MaxRecords),
	}
	t.changed = sync.NewCond(&t.mu)
	if t.reader, err = ringbuf.NewReader(l.Map("events")); err != nil {
		l.Close()
		return nil, fault.New("ring buffer", err.Error(), "", fault.Errno(err))
	}
	if !cfg.NoInventory {
		t.inventory()
	}
	l.FreeTypes()
	go t.run()
	go t.attachLater()
	return t, nil
}

// bootTime is when CLOCK_MONOTONIC was 0.
func bootTime() (time.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Time{}, fault.New("clock", "", "", err)
	}
	return time.Now().Add(-time.Duration(ts.Nano())), nil
}

// Close detaches everything. Iterators end. Close again does nothing.
func (t *Tracer) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		<-t.done
		return nil
	}
	t.closed = true
	t.changed.Broadcast()
	t.mu.Unlock()
	t.loader.Stop()
	err := t.reader.Close()
	<-t.done
	<-t.late
	t.loader.Close()
	return err
}

// Hooks lists the kernel functions that are watched, and those that are not
// with the reason.
func (t *Tracer) Hooks() []Hook {
	var hooks []Hook
	for _, h := range t.loader.Hooks() {
		hooks = append(hooks, Hook(h))
	}
	return hooks
}

// RDMA reports whether ib_uverbs is loaded and watched. Until then there are
// no registrations to see.
func (t *Tracer) RDMA() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rdma
}

// Loss returns how much was lost so far.
func (t *Tracer) Loss() Loss {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.loss
	l.Events = map[string]uint64{}
	for i, n := range t.lost {
		if n > 0 {
			l.Events[eventNames[i]] = n
		}
	}
	l.Missed = maps.Clone(t.loss.Missed)
	l.Evicted, l.Orphaned = t.join.evict, t.join.orphan
	return l
}

// Records returns copies of all records that live, oldest first.
func (t *Tracer) Records() []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(true)
	return t.join.records()
}

// Unreadable returns the errors of the inventory. If there are some, attachments that are not in
// the inventory are unknown, not absent.
func (t *Tracer) Unreadable() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]error(nil), t.unread...)
}
