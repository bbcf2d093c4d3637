// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
)

// pollEvery is how often the ring is read when nothing wakes the reader.
const pollEvery = 25 * time.Millisecond

// maxBatch is how many events are joined before the loss counters are read.
const maxBatch = 1024

// Loss counts what was not seen.
type Loss struct {
	// Events that did not fit the ring, by what they said.
	Events map[string]uint64 `json:"events,omitempty"`
	// Missed is how often the kernel skipped a program, by what was not seen
	// for it: "mappings", "deregistrations" (Hook.What).
	Missed map[string]uint64 `json:"missed,omitempty"`
	// Dropped events waited too long for Tracer.Events; the records that they
	// belong to are not harmed.
	Dropped uint64 `json:"dropped"`
	// Evicted records were given up because too many lived (Config.MaxRecords).
	Evicted uint64 `json:"evicted"`
	// Orphaned events belong to records that were never seen.
	Orphaned uint64 `json:"orphaned"`
	// Undecoded events were of a shape that this program does not know.
	Undecoded uint64 `json:"undecoded"`
}

// Any reports that something was lost.
func (l Loss) Any() bool {
	return len(l.Events) > 0 || len(l.Missed) > 0 || l.Dropped+l.Evicted+l.Undecoded > 0
}

// String lists what was lost, or says "nothing lost".
func (l Loss) String() string {
	var parts []string
	for _, name := range eventNames {
		if n := l.Events[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(l.Missed)) {
		parts = append(parts, fmt.Sprintf("%d skipped runs of the program for %s", l.Missed[what], what))
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{l.Dropped, "events not read in time"},
		{l.Evicted, "records given up"}, {l.Undecoded, "events not understood"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(parts) == 0 {
		return "nothing lost"
	}
	return "lost: " + strings.Join(parts, ", ")
}

// Tracer watches registrations. Its methods may be called from any goroutine.
type Tracer struct {
	cfg    Config
	loader *loader
	reader *ringbuf.Reader
	wake   chan struct{} // modules came
	late   chan struct{} // closed when nobody attaches any more
	// Of the programs: what the ring had no room for, and what was skipped.
	lostCount   func() ([eventTypes]uint64, error)
	missedCount func() map[string]uint64

	mu      sync.Mutex
	changed *sync.Cond
	rdma    bool
	came    modules
	counted time.Time // when skipped runs were looked for
	asked   uint64    // how often somebody wanted all that there was
	serving uint64    // asked before the round began that is under way
	served  uint64    // asked before a round that has ended
	join    *joiner
	queue   []Event
	lost    [eventTypes]uint64
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
		return nil, refuse("configuration", fmt.Sprintf("RingSize %d", cfg.RingSize), "give a power of two, at least a page", unix.EINVAL)
	}
	if err := Supported(cfg.Sys, cfg.Proc); err != nil {
		return nil, err
	}
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	machine := newMachineTable(cfg.Sys, cfg.Proc)
	syms := newSymbols(cfg.Proc)
	l := newLoader(cfg, syms)
	if err := l.load(machine); err != nil {
		l.close()
		return nil, err
	}
	machine.changed = l.refreshWindows
	t := &Tracer{
		cfg: cfg, loader: l, rdma: l.have["rdma"], done: make(chan struct{}), late: make(chan struct{}), wake: make(chan struct{}, 1),
		lostCount: l.lost, missedCount: l.missed,
		join: newJoiner(&converter{boot: boot, machine: machine, symbol: syms.name, op: l.opName, optional: l.has("invalidate_mappings"),
			unmoved: !l.has("invalidate_mappings") && !l.has("move_notify"), detours: newDetours(cfg.Sys),
			findings: newFindings(refusal.Machine{Sys: sysfs.New(cfg.Sys), Proc: procfs.New(cfg.Proc)})}, cfg.MaxRecords),
	}
	t.changed = sync.NewCond(&t.mu)
	if t.reader, err = ringbuf.NewReader(l.core.Maps["events"]); err != nil {
		l.close()
		return nil, refuse("ring buffer", err.Error(), "", rootErr(err))
	}
	if !cfg.NoInventory {
		t.inventory()
	}
	l.types = nil
	go t.run()
	go t.attachLater()
	return t, nil
}

// monotonic is the programs' clock.
func monotonic() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // Open had it
	return uint64(ts.Nano())
}

// bootTime is when CLOCK_MONOTONIC was 0.
func bootTime() (time.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Time{}, refuse("clock", "", "", err)
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
	t.loader.stop()
	err := t.reader.Close()
	<-t.done
	<-t.late
	t.loader.close()
	return err
}

// Hooks lists the kernel functions that are watched, and those that are not
// with the reason.
func (t *Tracer) Hooks() []Hook {
	t.loader.mu.Lock()
	defer t.loader.mu.Unlock()
	return append([]Hook(nil), t.loader.hooks...)
}

// RDMA reports whether ib_uverbs is loaded and watched. Until then there are
// no registrations to see.
func (t *Tracer) RDMA() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rdma
}

// AwaitRDMA returns when ib_uverbs is loaded and watched: what registers before is
// not seen. Its error is ctx's cause, or os.ErrClosed.
func (t *Tracer) AwaitRDMA(ctx context.Context) error {
	stop := t.wakeAfter(ctx)
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.rdma {
		if t.closed {
			return os.ErrClosed
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.changed.Wait()
	}
	return nil
}

// Loss says what was not seen so far.
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

// Unreadable says what the inventory could not look at: what is missing from
// it is then unknown, not absent.
func (t *Tracer) Unreadable() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]error(nil), t.unread...)
}

// wakeAfter has who waits look at ctx when that is over. With the lock: who has looked
// waits by then.
func (t *Tracer) wakeAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
}

// Flush waits until everything that happened before the call was read.
func (t *Tracer) Flush(ctx context.Context) error {
	stop := t.wakeAfter(ctx)
	defer stop()
	t.mu.Lock()
	t.asked++
	mine := t.asked
	t.mu.Unlock()
	// The round that this ends may have begun before: the next one waits for nothing.
	if err := t.reader.Flush(); err != nil {
		return refuse("ring buffer", "", "", rootErr(err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.served < mine; t.changed.Wait() {
		if err := t.over(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a round to the end of the ring, and says until when it may wait for
// something to be there.
func (t *Tracer) begin() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving = t.asked
	if t.serving > t.served {
		return time.Now()
	}
	return time.Now().Add(pollEvery)
}

// over says why waiting is over, nil if it is not.
func (t *Tracer) over(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.failed != nil:
		return t.failed
	case t.closed:
		return os.ErrClosed
	}
	return nil
}

// Events yields what happens, in the order of the kernel, until ctx ends or
// the tracer is closed. There is one queue: two loops share the events. The
// error, if there is one, is the last value; the end of ctx is none.
func (t *Tracer) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		stop := t.wakeAfter(ctx)
		defer stop()
		for {
			events, err := t.next(ctx)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				if !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
					yield(Event{}, err)
				}
				return
			}
		}
	}
}

// next waits for events. What is there is handed out before an end is.
func (t *Tracer) next(ctx context.Context) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) == 0 {
		if err := t.over(ctx); err != nil {
			return nil, err
		}
		t.changed.Wait()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	events := t.queue[:1:1]
	t.queue = t.queue[1:]
	return events, nil
}

// Pending takes the events that wait for [Tracer.Events], and waits for none.
// After [Tracer.Flush] they are all that happened before it.
func (t *Tracer) Pending() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.queue
	t.queue = nil
	return events
}

// Refusal explains the newest registration among [Tracer.Pending] that failed,
// nil if there is none: what a library refuses never reaches the kernel. One
// without a descriptor is ibvfd's question what the device can do, asked before
// and after; it says something where the answer is no.
func (t *Tracer) Refusal(ctx context.Context) *Failure {
	if t.Flush(ctx) != nil {
		return nil
	}
	var found *Failure
	known := false
	for _, e := range t.Pending() {
		if e.Kind == Refused && (e.Record.FD >= 0 || !known) {
			f := e.Record.Explain()
			found, known = &f, e.Record.FD >= 0
		}
	}
	return found
}

// Prove answers where a registration is, as [placement.Prover] says.
func (t *Tracer) Prove(ctx context.Context, key placement.Key) (placement.Placement, error) {
	if key.LKey == 0 && key.RKey == 0 && key.Inode == 0 {
		return placement.Placement{}, refuse("placement key", "neither keys nor an inode", "name the MR or the dma-buf", unix.EINVAL)
	}
	flushed := t.Flush(ctx)
	if flushed != nil && ctx.Err() == nil {
		return placement.Placement{}, flushed
	}
	stop := t.wakeAfter(ctx)
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if e := t.join.find(key); e != nil {
			t.count(true)
			in := e.in
			if flushed != nil && in.Lost == "" {
				in.Lost = "the last events were not read in time"
			}
			return t.join.decide(in), nil
		}
		const unseen = "no live registration with this key was seen"
		if why := t.loader.hides(key); why != "" { // it will not come
			return placement.Placement{Reason: unseen + ": " + why}, nil
		}
		if err := t.over(ctx); err != nil {
			if ctx.Err() == nil {
				return placement.Placement{}, err
			}
			return placement.Placement{Reason: unseen + t.blind()}, nil
		}
		t.changed.Wait()
	}
}

// blind says why a registration may have stayed unseen.
func (t *Tracer) blind() string {
	switch {
	case !t.rdma:
		return ": ib_uverbs is not loaded"
	case t.lost[eventRecord] > 0:
		return fmt.Sprintf(": %d records were lost", t.lost[eventRecord])
	}
	return "; it may be older than the tracer, or a filter leaves it out"
}

// run reads the ring until it is closed.
func (t *Tracer) run() {
	defer close(t.done)
	var raw ringbuf.Record
	for {
		t.reader.SetDeadline(t.begin())
		var drained bool
		for n := 0; n < maxBatch && !drained; n++ {
			err := t.reader.ReadInto(&raw)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) {
				drained = true
				break
			}
			if err != nil {
				t.fail(err)
				return
			}
			t.take(decode(raw.RawSample))
			drained = raw.Remaining == 0
		}
		if t.deliver(drained) {
			_ = t.loader.reclaim() // or the next time
		}
	}
}

// take takes one event out of the ring.
func (t *Tracer) take(ev any, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch x, isExport := ev.(*wireExport); {
	case err != nil:
		t.loss.Undecoded++
	case isExport && x.Event.Head.Type == eventModule:
		t.moduleCame(text(x.Exporter[:]))
	default:
		t.join.handle(ev)
	}
}

func (t *Tracer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errors.Is(err, os.ErrClosed) {
		t.failed = &dmabuf.Error{Op: "trace", Device: "ring buffer", Err: err}
	}
	t.changed.Broadcast()
}

// deliver hands out a batch. drained: it was all there was. It reports whether
// skipped runs were looked for.
func (t *Tracer) deliver(drained bool) (looked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	looked = len(t.join.out) > 0 || t.serving > t.served || time.Since(t.counted) > time.Second
	t.count(looked)
	t.queue = append(t.queue, t.join.take()...)
	if over := len(t.queue) - t.cfg.MaxEvents; over > 0 {
		t.queue = append([]Event(nil), t.queue[over:]...)
		t.loss.Dropped += uint64(over)
	}
	if drained {
		t.served = t.serving
	}
	t.changed.Broadcast()
	return looked
}

// count reads what was lost and, with a system call for each program, what was
// skipped. It comes between the last event that was joined and whatever is handed
// out: what that event needed was counted before it was sent, so that no verdict is
// given without knowing. t.mu is held.
func (t *Tracer) count(skipped bool) {
	if counts, err := t.lostCount(); err == nil {
		if words := lossWords(t.lost, counts); words != "" {
			t.join.lose(words, monotonic())
		}
		if counts[eventModule] != t.lost[eventModule] {
			t.moduleCame("")
		}
		t.lost = counts
	}
	if !skipped {
		return
	}
	t.counted = time.Now()
	missed := t.missedCount()
	if words := missedWords(t.loss.Missed, missed); words != "" {
		t.join.lose(words, monotonic())
		if missed[moduleHook.what] != t.loss.Missed[moduleHook.what] {
			t.moduleCame("")
		}
		t.loss.Missed = missed
	}
}

// missedWords says what was skipped between two readings of the counters.
func missedWords(before, after map[string]uint64) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what]; n > before[what] {
			parts = append(parts, fmt.Sprintf("%d runs of the program for %s", n-before[what], what))
		}
	}
	return strings.Join(parts, ", ")
}

// moduleCame has a module attached to that was loaded after the tracer, "" if which
// one is not known. t.mu is held.
func (t *Tracer) moduleCame(name string) {
	if name == "" {
		t.came = allModules
	} else {
		t.came.add(name)
	}
	select {
	case t.wake <- struct{}{}:
	default: // it will be looked for anyway
	}
}

// attachLater attaches to modules that come, until the tracer is closed. The reader
// does not wait: to look for symbols and types takes longer than the ring has room
// for.
func (t *Tracer) attachLater() {
	defer close(t.late)
	for {
		select {
		case <-t.loader.quit:
			return
		case <-t.wake:
			t.attachLate()
		}
	}
}

// attachLate follows modules that were loaded after the tracer.
func (t *Tracer) attachLate() {
	t.mu.Lock()
	came := t.came
	t.came = modules{}
	t.mu.Unlock()
	rdma, err := t.loader.moduleCame(came)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rdma = rdma
	if err != nil && !errors.Is(err, os.ErrClosed) {
		t.unread = append(t.unread, err)
	}
	t.changed.Broadcast()
}

var _ placement.Prover = (*Tracer)(nil)
